use std::path::PathBuf;
use std::process::{Command, Stdio};

use leasehold_testbed::{Launch, Scratch, process};

use crate::contest::{LONG, PROGRAM};

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Answer {
    #[track_caller]
    pub(crate) fn refuses_naming(&self, parts: &[&str]) {
        assert_eq!(self.code, 78, "{self:?}");
        for part in parts {
            assert!(self.stderr.contains(part), "{part}: {}", self.stderr);
        }
    }
}

pub(crate) fn leasehold(arguments: &[&str], environment: &[(&str, &str)]) -> Answer {
    let output = Command::new(PROGRAM)
        .args(arguments)
        .env_clear()
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    Answer {
        code: process::exit_code(output.status),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

pub(crate) async fn refused(arguments: &[&str], environment: &[(&str, &str)]) -> Answer {
    let scratch = Scratch::new();
    let log = scratch.path().join("log");
    let launch = Launch::new(PROGRAM)
        .argument("run")
        .arguments(arguments.iter().copied())
        .envs(environment.iter().copied())
        .stderr(&log);
    let process = launch.start().unwrap();
    let ended = process.wait(LONG).await;
    let stderr = std::fs::read_to_string(&log).unwrap();
    let code = ended.map(process::exit_code);
    Answer {
        code: code.unwrap_or_else(|| panic!("still running: {stderr}")),
        stdout: String::new(),
        stderr,
    }
}

pub(crate) struct Files(Scratch);

impl Files {
    pub(crate) fn new() -> Self {
        Self(Scratch::new())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: &str) -> String {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }
}
