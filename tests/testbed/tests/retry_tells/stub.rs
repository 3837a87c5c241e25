//! These tests fail as often as their names say. Each test counts its runs in a file in the
//! directory `STUB_RUNS`.

use std::process::{Command, Stdio};

fn earlier_runs(test: &str) -> usize {
    let path = std::path::Path::new(&std::env::var("STUB_RUNS").unwrap()).join(test);
    let runs = std::fs::read(&path).map_or(0, |runs| runs.len());
    std::fs::write(path, vec![b'x'; runs + 1]).unwrap();
    runs
}

struct NeverDropped;

impl Drop for NeverDropped {
    fn drop(&mut self) {
        loop {
            std::thread::park();
        }
    }
}

#[test]
fn passes() {
    earlier_runs("passes");
}

#[test]
#[ignore = "runs only on request"]
fn is_ignored() {
    panic!("it was ignored");
}

#[test]
fn fails_once() {
    assert!(earlier_runs("fails_once") >= 1, "the first run");
}

#[test]
fn fails_once_too() {
    assert!(earlier_runs("fails_once_too") >= 1, "the first run");
}

#[test]
#[should_panic(expected = "a later run")]
fn does_not_panic_once() {
    assert!(earlier_runs("does_not_panic_once") == 0, "a later run");
}

#[test]
fn violates_once() {
    assert!(
        earlier_runs("violates_once") >= 1,
        "invariant violated: two leaders"
    );
}

#[test]
fn has_a_counterexample_once() {
    assert!(
        earlier_runs("has_a_counterexample_once") >= 1,
        "Test failed: it is 777.\nminimal failing input: x = 777\n\tsuccesses: 3"
    );
}

#[test]
fn fails_twice() {
    assert!(earlier_runs("fails_twice") >= 2, "one of the first runs");
}

#[test]
fn fails_always() {
    earlier_runs("fails_always");
    panic!("any run");
}

#[test]
fn hangs_once() {
    if earlier_runs("hangs_once") == 0 {
        let _never = NeverDropped;
        panic!("the first run");
    }
}

#[test]
fn hangs_always() {
    earlier_runs("hangs_always");
    let _never = NeverDropped;
    panic!("any run");
}

#[test]
fn aborts_once() {
    if earlier_runs("aborts_once") == 0 {
        std::process::abort();
    }
}

#[test]
fn leaves_a_process() {
    if earlier_runs("leaves_a_process") == 0 {
        // The child inherits the standard output and keeps it open.
        let sleeper = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn();
        let runs = std::env::var("STUB_RUNS").unwrap();
        std::fs::write(format!("{runs}/sleeper"), sleeper.unwrap().id().to_string()).unwrap();
        panic!("the first run");
    }
}

#[test]
fn exits() {
    std::process::exit(0);
}
