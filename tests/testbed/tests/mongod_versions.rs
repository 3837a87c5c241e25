//! Goal: the tests run only on supported versions of MongoDB. Method: run the script that finds
//! mongod, with a fake mongod that prints a version.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fetch-mongod");

/// Runs the script with a fake mongod that prints `text` as its version.
fn judged(directory: &Path, text: &str) -> Output {
    let program = directory.join("mongod");
    std::fs::write(&program, format!("#!/bin/sh\necho '{text}'\n")).expect("written");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&program, mode).expect("executable");
    let mut script = Command::new(SCRIPT);
    script.arg("--version").env("MONGOD", &program);
    script.output().expect("the command starts")
}

#[test]
fn supported_versions_are_named_and_others_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    for version in ["4.4.0", "5.0.31", "6.0.5", "7.0.14", "8.0.4", "8.2.0-rc1"] {
        let output = judged(directory.path(), &format!("db version v{version}"));
        assert!(output.status.success(), "{output:?}");
        let shown = String::from_utf8_lossy(&output.stdout);
        assert_eq!(shown, format!("mongod {version}\n"));
    }
    for (text, reason) in [
        (
            "db version v4.2.24",
            "is MongoDB 4.2.24; the tests need 4.4 to 8.x",
        ),
        (
            "db version v9.0.0",
            "is MongoDB 9.0.0; the tests need 4.4 to 8.x",
        ),
        ("something else", "does not say which version it is"),
    ] {
        let output = judged(directory.path(), text);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let shown = String::from_utf8_lossy(&output.stderr);
        assert!(shown.contains(reason), "{shown}");
        assert!(output.stdout.is_empty(), "{output:?}");
    }
}
