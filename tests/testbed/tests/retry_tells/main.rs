//! Goal: verify that the suite distinguishes flaky tests from broken tests. Method: build a test
//! binary whose tests fail once, twice or always, and run it as the suite does.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Seconds without output after which a binary counts as hung.
const SILENCE: &str = "3";

fn stub() -> &'static Path {
    static STUB: OnceLock<PathBuf> = OnceLock::new();
    STUB.get_or_init(|| {
        let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stub-0123456789abcdef");
        let built = Command::new("rustc")
            .args(["--test", "--edition=2024", "-o"])
            .arg(&binary)
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/retry_tells/stub.rs"))
            .status();
        assert!(built.expect("rustc runs").success());
        binary
    })
}

struct Suite {
    place: tempfile::TempDir,
}

impl Suite {
    fn new() -> Self {
        let place = tempfile::tempdir().expect("a directory");
        Self { place }
    }

    fn retry(&self, words: &[&str]) -> Output {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("retry");
        Command::new(script)
            .args(["--silence", SILENCE])
            .args(words)
            .current_dir(self.place.path())
            .env("STUB_RUNS", self.place.path())
            .env_remove("RUST_TEST_THREADS")
            .output()
            .expect("the command starts")
    }

    /// Runs the named tests, as Cargo does.
    fn run(&self, tests: &[&str]) -> (Option<i32>, String) {
        let binary = stub().to_str().expect("a path in UTF-8");
        let words = ["run", "failed-tests", binary, "--exact"];
        said(&self.retry(&[&words, tests].concat()))
    }

    fn close(&self) -> (Option<i32>, String) {
        said(&self.retry(&["close", "failed-tests"]))
    }

    fn runs(&self, test: &str) -> usize {
        std::fs::read(self.place.path().join(test)).map_or(0, |runs| runs.len())
    }

    /// Returns the file with the output of the first run; `closing` contains its path.
    fn first_output(&self, closing: &str) -> String {
        let path = closing
            .split_once("first run: ")
            .and_then(|(_, path)| path.split_once(')'))
            .expect("the path of the first output")
            .0;
        std::fs::read_to_string(self.place.path().join(path)).expect("the first output")
    }
}

fn said(output: &Output) -> (Option<i32>, String) {
    assert!(output.stderr.is_empty(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code(), text)
}

fn results(text: &str) -> Vec<&str> {
    text.lines()
        .filter(|line| line.starts_with("test result: "))
        .map(|line| line.split("; finished").next().expect("a part"))
        .collect()
}

#[test]
fn passed_tests_are_not_run_again() {
    let suite = Suite::new();
    let (code, text) = suite.run(&["passes", "is_ignored"]);
    assert_eq!(code, Some(0), "{text}");
    let expected = "test result: ok. 1 passed; 0 failed; 1 ignored; 0 measured; 12 filtered out";
    assert_eq!(results(&text), [expected]);
    assert_eq!(suite.close(), (Some(0), String::new()));
    assert_eq!(suite.runs("passes"), 1);
}

#[test]
fn a_test_that_fails_once_is_flaky() {
    let suite = Suite::new();
    let (code, text) = suite.run(&["passes", "is_ignored", "fails_once"]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(results(&text), [""; 0], "the closing line is withheld");
    let (code, text) = suite.close();
    assert_eq!(code, Some(0), "{text}");
    let expected = "test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 11 filtered out";
    assert_eq!(results(&text), [expected]);
    let last = text.lines().last().expect("a line");
    let expected =
        "flaky: stub fails_once failed once, then passed alone (output of the first run: ";
    assert!(last.starts_with(expected), "{text}");
    assert!(suite.first_output(last).contains("the first run"));
    assert_eq!((suite.runs("passes"), suite.runs("fails_once")), (1, 2));
}

#[test]
fn a_test_that_fails_twice_is_flaky() {
    let suite = Suite::new();
    assert_eq!(suite.run(&["fails_twice"]).0, Some(0));
    let (code, text) = suite.close();
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("flaky: stub fails_twice failed twice, then"),
        "{text}"
    );
    assert_eq!(suite.runs("fails_twice"), 3);
}

#[test]
fn a_test_that_fails_always_is_broken() {
    let suite = Suite::new();
    assert_eq!(
        suite.run(&["passes", "fails_always", "fails_once"]).0,
        Some(0)
    );
    let (code, text) = suite.close();
    assert_eq!(code, Some(1), "{text}");
    let expected =
        "test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 11 filtered out";
    assert_eq!(results(&text), [expected]);
    assert!(text.contains("\nflaky: stub fails_once"), "{text}");
    assert!(text.contains("\nbroken: stub fails_always"), "{text}");
    assert_eq!(
        text.matches("any run").count(),
        2,
        "each attempt shows its output: {text}"
    );
    assert_eq!(suite.runs("fails_always"), 3);
}

#[test]
fn a_proven_bug_is_not_run_again() {
    let suite = Suite::new();
    let proofs = ["violates_once", "has_a_counterexample_once"];
    let all = [&["fails_once", "fails_once_too"], &proofs[..]].concat();
    assert_eq!(suite.run(&all).0, Some(0));
    let (code, text) = suite.close();
    assert_eq!(code, Some(1), "{text}");
    for test in proofs {
        let line = format!("retry: stub {test} has proven a bug and is not run again");
        assert!(text.contains(&line), "{text}");
        assert!(text.contains(&format!("\nbroken: stub {test}")), "{text}");
        assert_eq!(suite.runs(test), 1);
    }
    // Tests whose output contains no proof of a bug count as flaky.
    assert_eq!(text.matches("\nflaky: ").count(), 2, "{text}");
}

#[test]
fn the_marker_of_a_violation_is_that_of_the_testbed() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("retry");
    let script = std::fs::read_to_string(script).expect("the script");
    let marker = format!("VIOLATION = {:?}\n", leasehold_testbed::INVARIANT_VIOLATED);
    assert!(script.contains(&marker), "{marker}");
}

#[test]
fn two_flaky_tests_are_accepted_and_a_third_is_not() {
    let suite = Suite::new();
    let two = ["fails_once", "does_not_panic_once"];
    assert_eq!(suite.run(&two).0, Some(0));
    let (code, text) = suite.close();
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(text.matches("\nflaky: ").count(), 2, "{text}");
    let suite = Suite::new();
    let three = ["fails_once", "does_not_panic_once", "fails_once_too"];
    assert_eq!(suite.run(&three).0, Some(0));
    let (code, text) = suite.close();
    assert_eq!(code, Some(1), "{text}");
    assert_eq!(text.matches("\nflaky: ").count(), 3, "{text}");
    let last = text.lines().last().expect("a line");
    assert_eq!(last, "retry: 3 tests are flaky, at most 2 are accepted");
}

#[test]
fn a_test_that_fails_and_hangs_is_killed_and_run_again() {
    let suite = Suite::new();
    let (code, text) = suite.run(&["passes", "hangs_once"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("stub printed nothing for 3 s and was killed"),
        "{text}"
    );
    let (code, text) = suite.close();
    assert_eq!(code, Some(0), "{text}");
    let expected = "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 12 filtered out";
    assert_eq!(results(&text), [expected]);
    assert!(
        text.contains("\nflaky: stub hangs_once failed once"),
        "{text}"
    );
    assert_eq!((suite.runs("passes"), suite.runs("hangs_once")), (1, 2));
}

#[test]
fn a_test_that_hangs_always_is_broken() {
    let suite = Suite::new();
    assert_eq!(suite.run(&["hangs_always"]).0, Some(0));
    let (code, text) = suite.close();
    assert_eq!(code, Some(1), "{text}");
    assert_eq!(text.matches("retry: killed").count(), 2, "{text}");
    assert!(text.contains("\nbroken: stub hangs_always"), "{text}");
}

#[test]
fn a_binary_that_ends_early_has_failed_tests() {
    let suite = Suite::new();
    assert_eq!(suite.run(&["aborts_once"]).0, Some(0));
    let (code, text) = suite.close();
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("\nflaky: stub aborts_once failed once"),
        "{text}"
    );
    // A test that exits the binary with code 0 has no result.
    let suite = Suite::new();
    assert_eq!(suite.run(&["exits"]).0, Some(0));
    let (code, text) = suite.close();
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("\nbroken: stub exits"), "{text}");
}

#[test]
fn a_process_that_a_test_left_behind_is_not_awaited() {
    let suite = Suite::new();
    let (code, text) = suite.run(&["leaves_a_process"]);
    let sleeper = std::fs::read_to_string(suite.place.path().join("sleeper"));
    let sleeper = sleeper.expect("the test has run");
    assert!(
        Path::new("/proc").join(&sleeper).exists(),
        "the leftover process is running"
    );
    let killed = Command::new("kill").arg(&sleeper).status();
    assert!(killed.expect("kill runs").success());
    assert_eq!(code, Some(0), "{text}");
    assert!(!text.contains("was killed"), "{text}");
    let (code, text) = suite.close();
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("\nflaky: stub leaves_a_process"), "{text}");
}

#[test]
fn a_failure_outside_of_a_test_is_not_run_again() {
    let suite = Suite::new();
    // The binary refuses its arguments.
    let (code, text) = suite.run(&["--no-such-option"]);
    assert_eq!(code, Some(101), "{text}");
    assert_eq!(suite.close().0, Some(0), "nothing is recorded");
}
