//! Goal: the checker refuses an enormous line without keeping the line in memory.

#![allow(
    clippy::unwrap_used,
    reason = "a fixture that fails should end its test"
)]

use std::io::Write;
use std::process::{Command, Stdio};

use leasehold_trace_check::{Checker, LINE_BYTES_MAX, VIOLATIONS_MAX};

/// Length of the line: sixteen times the checker's memory limit.
const LINE: usize = 512 * 1024 * 1024;
/// Limit on the checker's resident memory, in kB. A line's buffer may be twice the maximum length.
const MEMORY_MAX: u64 = 32 * 1024;

#[test]
fn a_long_line_is_refused_and_not_kept() {
    let program = env!("CARGO_BIN_EXE_leasehold-trace-check");
    let mut command = Command::new(program);
    command.arg("/dev/stdin").stdin(Stdio::piped());
    let mut check = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut input = check.stdin.take().unwrap();
    let block = vec![b'x'; 1024 * 1024];
    for _ in 0..LINE / block.len() {
        input.write_all(&block).unwrap();
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", check.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak: u64 = peak.unwrap().trim_end_matches("kB").trim().parse().unwrap();
    input.write_all(b"\n{}\n").unwrap();
    drop(input);
    let output = check.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(peak < MEMORY_MAX, "{peak} kB");
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("line 1: not a record of a trace: longer than 4194304 bytes"),
        "{text}"
    );
    assert!(
        text.contains("line 2: not a record of a trace: it names no machine"),
        "{text}"
    );
}

#[test]
fn a_line_of_the_maximum_length_is_read_and_one_that_ends_with_the_file_is_not() {
    for (length, end, violation) in [
        (LINE_BYTES_MAX, "\n", Some("expected value")),
        (LINE_BYTES_MAX, "", None),
        (LINE_BYTES_MAX + 1, "\n", Some("longer than")),
        (LINE_BYTES_MAX + 1, "", Some("longer than")),
    ] {
        let text = "x".repeat(length) + end;
        let mut checker = Checker::default();
        checker.read(text.as_bytes()).unwrap();
        let found = checker.finish().err().unwrap_or_default();
        assert_eq!(
            found.len(),
            usize::from(violation.is_some()),
            "{length} {end:?}"
        );
        let expected = violation.unwrap_or_default();
        assert!(
            found.iter().all(|found| found.what.contains(expected)),
            "{found:?}"
        );
    }
}

#[test]
fn lines_that_are_not_text_are_refused_and_few_violations_are_kept() {
    let mut checker = Checker::default();
    checker.read(&b"\xff\n"[..]).unwrap();
    checker
        .read(vec![b'\n'; 3 * VIOLATIONS_MAX].as_slice())
        .unwrap();
    let violations = checker.finish().unwrap_err();
    assert_eq!(violations.len(), VIOLATIONS_MAX);
    assert!(
        violations[0].what.contains("invalid utf-8"),
        "{}",
        violations[0]
    );
    assert_eq!(violations[1].line, 2);
}
