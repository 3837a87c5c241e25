//! Sets up configuration files and environments, and runs the real binary without configuration
//! from this process's environment.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use leasehold::config::{Config, Sources, find};
use leasehold_testbed::assert_contains;
use tempfile::TempDir;

/// A connection string whose password must never appear in output.
pub(crate) const URI: &str = "mongodb://operator:hunter2@db.example.net:27017/?replicaSet=rs0";
pub(crate) const PASSWORD: &str = "hunter2";

pub(crate) struct Files(TempDir);

impl Files {
    pub(crate) fn new() -> Self {
        Self(TempDir::new().expect("a temporary directory"))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, content).expect("written");
        path
    }
}

pub(crate) fn sources(
    files: &[PathBuf],
    variables: &[(&str, &str)],
    flags: &[(&str, &str)],
) -> Sources {
    Sources {
        files: files.to_vec(),
        environment: variables
            .iter()
            .map(|(name, value)| (OsString::from(name), OsString::from(value)))
            .collect(),
        flags: flags
            .iter()
            .map(|(path, value)| (find(path).expect("a key"), (*value).to_owned()))
            .collect(),
        ..Sources::default()
    }
}

/// A minimal configuration. Sets `identity.name` although it is optional, because its default is
/// unpredictable.
pub(crate) const REQUIRED: [(&str, &str); 3] = [
    ("lease.name", "orders"),
    ("identity.name", "me"),
    ("mongodb.uri", "mongodb://localhost"),
];

pub(crate) fn config(sources: &Sources) -> Config {
    sources.load().config().expect("valid")
}

pub(crate) fn required_and<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    [&REQUIRED, more].concat()
}

#[track_caller]
pub(crate) fn refused(sources: &Sources, expected: &[&str]) -> String {
    let refused = refusal(sources);
    for part in expected {
        assert_contains(&refused, part);
    }
    refused
}

pub(crate) fn refusal(sources: &Sources) -> String {
    sources.load().config().expect_err("refused").to_string()
}

/// Runs the real binary without environment variables that configure it.
pub(crate) fn leasehold(arguments: &[&str], variables: &[(&str, &str)]) -> Answer {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("LEASEHOLD_") || text.starts_with("POD_") {
            command.env_remove(name);
        }
    }
    let output = command
        .args(arguments)
        .envs(variables.iter().copied())
        .output()
        .expect("the command starts");
    Answer::from(output)
}

pub(crate) struct Answer {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Answer {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().expect("the command exited"),
            stdout: String::from_utf8(output.stdout).expect("the output is UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("the output is UTF-8"),
        }
    }
}
