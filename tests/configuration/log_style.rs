//! Goal: without configuration, log lines are text for humans and JSON for collectors, and colors
//! appear only on terminals. Method: runs commands, with output to a pipe and to a terminal,
//! against a port without MongoDB.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use crate::setup::Files;

/// The commands connect to a port that refuses connections.
const NOWHERE: &str = "--mongodb-uri=mongodb://127.0.0.1:1/";

/// Returns the first line about MongoDB on standard error. On a terminal, standard error and
/// standard output both go to the terminal of `script`.
fn first_line(terminal: bool, arguments: &[&str], environment: &[(&str, &str)]) -> String {
    // A daemon would survive the hangup of its terminal, so the script ends it explicitly.
    let mut words = vec![
        "timeout",
        "--foreground",
        "6",
        env!("CARGO_BIN_EXE_leasehold"),
    ];
    words.extend(arguments);
    let mut command = match terminal {
        true => {
            let words: Vec<_> = words.iter().map(|word| format!("'{word}'")).collect();
            let mut script = Command::new("script");
            script.args(["-qefc", &words.join(" "), "/dev/null"]);
            script
        }
        false => {
            let mut command = Command::new(words[0]);
            command.args(&words[1..]);
            command
        }
    };
    let runtime = Files::new();
    command
        .env_clear()
        .env("XDG_RUNTIME_DIR", runtime.path())
        .env("PATH", std::env::var_os("PATH").expect("a working fixture"))
        .envs(environment.iter().copied())
        .stdin(Stdio::null());
    let output: Box<dyn Read>;
    let mut child;
    match terminal {
        true => {
            child = command
                .stdout(Stdio::piped())
                .spawn()
                .expect("a working fixture");
            output = Box::new(child.stdout.take().expect("a working fixture"));
        }
        false => {
            child = command
                .stderr(Stdio::piped())
                .spawn()
                .expect("a working fixture");
            output = Box::new(child.stderr.take().expect("a working fixture"));
        }
    }
    let lines = BufReader::new(output).lines();
    let lines: Vec<_> = lines.map(|line| line.expect("text")).collect();
    // The line about the servers comes after a second, before or after the first failure.
    let failed = |line: &String| line.contains("MongoDB ") && !line.contains("connecting to");
    let line = lines.into_iter().find(failed);
    child.wait().expect("a working fixture");
    line.expect("a line about MongoDB")
}

const LOCK: [&str; 7] = [
    "lock",
    "jobs",
    "--wait=2s",
    NOWHERE,
    "--mongodb-operation-timeout=300ms",
    "--",
    "true",
];

fn directory(files: &Files) -> String {
    let status = files.path().join("status");
    format!("--status-directory={}", status.display())
}

fn run(directory: &str) -> [&str; 5] {
    [
        "run",
        "--lease=orders",
        "--http-listen=",
        NOWHERE,
        directory,
    ]
}

#[test]
fn a_daemon_writes_json_to_a_pipe_and_text_to_a_terminal() {
    let files = Files::new();
    let directory = directory(&files);
    let run = run(&directory);
    let line = first_line(false, &run, &[]);
    assert!(line.starts_with("{\"timestamp\":"), "{line}");
    let line = first_line(true, &run, &[("TERM", "dumb")]);
    assert!(
        line.contains(" WARN  MongoDB ") && line.contains(" lease=orders"),
        "{line}"
    );
}

#[test]
fn the_lines_of_a_lock_name_the_lock_unless_a_format_is_configured() {
    let line = first_line(false, &LOCK, &[("TERM", "xterm")]);
    let begins = "leasehold: lock jobs: MongoDB call failed (attempt 1)";
    assert!(
        line.starts_with(&format!("{begins}, retrying in 1s for up to ")),
        "{line}"
    );
    assert!(!line.contains('\u{1b}'), "{line}");
    let line = first_line(true, &LOCK, &[("TERM", "xterm")]);
    assert!(line.starts_with(begins), "{line}");
    let line = first_line(false, &LOCK, &[("LEASEHOLD_LOG__FORMAT", "text")]);
    let (date, rest) = line.split_once(' ').expect("a working fixture");
    assert!(date.ends_with('Z') && date.contains('T'), "{line}");
    assert!(
        rest.starts_with("WARN  MongoDB call failed (attempt 1), retrying in 1s for up to "),
        "{line}"
    );
    let line = first_line(false, &LOCK, &[("LEASEHOLD_LOG__FORMAT", "json")]);
    assert!(line.starts_with("{\"timestamp\":"), "{line}");
}

#[test]
fn only_the_first_and_the_last_line_of_a_lock_name_the_remedy() {
    let runtime = Files::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    // Several attempts fit into the limit, which is two thirds of the lease, on a busy machine too.
    command.args(["lock", "jobs", "--no-wait", "--lease-duration=9s", NOWHERE]);
    command.args(["--", "true"]).env_clear();
    command.env("XDG_RUNTIME_DIR", runtime.path());
    let output = command.output().expect("a working fixture");
    assert_eq!(output.status.code(), Some(69), "{output:?}");
    let lines = String::from_utf8(output.stderr).expect("text");
    assert!(
        lines.contains("leasehold: lock jobs: still no primary (attempt "),
        "{lines}"
    );
    assert_eq!(lines.matches("check host and port").count(), 2, "{lines}");
}

#[test]
fn colors_depend_on_the_terminal_and_no_color() {
    let files = Files::new();
    let directory = directory(&files);
    let run = run(&directory);
    let line = first_line(true, &run, &[("TERM", "xterm")]);
    assert!(
        line.contains("\u{1b}[33mWARN \u{1b}[0m MongoDB"),
        "{line:?}"
    );
    for refusal in [("TERM", "dumb"), ("NO_COLOR", "1")] {
        let environment = [("TERM", "xterm"), refusal];
        let line = first_line(true, &run, &environment);
        assert!(
            !line.contains('\u{1b}') && line.contains("WARN  MongoDB"),
            "{line:?}"
        );
        let help = first_line(true, &["leases", "--help"], &environment);
        assert!(!help.contains('\u{1b}'), "{help:?}");
    }
    let help = first_line(true, &["leases", "--help"], &[("TERM", "xterm")]);
    assert!(help.contains("\u{1b}["), "{help:?}");
}
