use std::process::{Child, Command};

use super::*;

const ALONE: &str = "LEASEHOLD_TEST_ALONE";

/// Runs the test again in a separate process, and returns true there. In a process with other
/// tests, a forked child would hold the file locks of those tests until it calls exec.
fn runs_alone(test: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let test = format!("children::tests::{test}");
    let run = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &test])
        .env(ALONE, "yes")
        .output()
        .unwrap();
    assert!(run.status.success(), "{run:?}");
    let output = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(output.contains("1 passed"), "{output}");
    false
}

fn seen(children: &mut Children) -> Vec<u32> {
    let mut seen = Vec::new();
    let visit = |pid: Pid| seen.push(pid.as_raw_nonzero().get().unsigned_abs());
    children.each(visit).unwrap();
    seen
}

fn sleeper() -> Child {
    Command::new("sleep").arg("20").spawn().unwrap()
}

fn both() -> [Children; 2] {
    let found = Children {
        listed: false,
        ..Children::new()
    };
    [Children::new(), found]
}

#[test]
fn children_are_seen_until_they_were_waited_for_whichever_thread_started_them() {
    if !runs_alone("children_are_seen_until_they_were_waited_for_whichever_thread_started_them") {
        return;
    }
    let mut living = std::thread::spawn(sleeper).join().unwrap();
    let mut killed = sleeper();
    killed.kill().unwrap();
    for mut children in both() {
        let seen = seen(&mut children);
        assert!(seen.contains(&living.id()), "{seen:?}");
        assert!(seen.contains(&killed.id()), "{seen:?}");
        assert!(!seen.contains(&std::process::id()), "{seen:?}");
    }
    living.kill().unwrap();
    living.wait().unwrap();
    killed.wait().unwrap();
    for mut children in both() {
        let seen = seen(&mut children);
        assert!(!seen.contains(&living.id()) && !seen.contains(&killed.id()));
    }
}

#[test]
fn more_children_than_fit_into_a_buffer_are_all_seen() {
    if !runs_alone("more_children_than_fit_into_a_buffer_are_all_seen") {
        return;
    }
    // 700 ids of five digits do not fit into the buffer of 4 KiB.
    let mut started: Vec<_> = (0..700).map(|_| sleeper()).collect();
    for mut children in both() {
        let seen = seen(&mut children);
        let missing = started.iter().filter(|child| !seen.contains(&child.id()));
        assert_eq!(missing.count(), 0);
    }
    for child in &mut started {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn the_parent_is_found_whatever_a_process_calls_itself() {
    let rest = " 0".repeat(50);
    let parent = |begin: &[u8]| {
        let stat = Stat::parse(&[begin, rest.as_bytes()].concat());
        stat.map(|stat| stat.parent)
    };
    assert_eq!(parent(b"12 (a) b) S 7 8 9"), Some(7));
    assert_eq!(parent(b"12 (\xff ( 4 5) S 71 8 9"), Some(71));
    assert_eq!(parent(b"12 (cut"), None);
    assert_eq!(Stat::parse(b""), None);
}
