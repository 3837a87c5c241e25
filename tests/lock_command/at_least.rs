//! Goal: a lock stays taken for exactly its minimum hold after the acquisition, even if the command
//! has ended.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::job::{Job, Output, Place, eventually};

/// Minimum hold of a job, longer than its lease.
const LEAST: Duration = Duration::from_secs(10);
const LEASE: &str = "--lease-duration=4s";
const AT_LEAST: &str = "--at-least=10s";

/// Runs a job that does nothing as if on this host. Jobs of a host share their observations of
/// locks.
fn run_on(host: &str, place: &Place, lock: &str, flags: &[&str]) -> Output {
    let directory = place.path(host);
    std::fs::create_dir_all(&directory).unwrap();
    let mut command = place.command(&[&["lock", lock], flags, &["--", "true"]].concat());
    command.env("XDG_RUNTIME_DIR", directory);
    Job::start(command).output()
}

#[test]
fn others_wait_for_the_least_time_of_a_job_that_ended_at_once() {
    let place = Place::new();
    let began = Instant::now();
    // Use the default lease duration, so that no call is slow enough to be logged.
    let done = place.run_empty("ended", &[AT_LEAST, "--identity=quick"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(done.stderr, "", "silent as flock is");
    let waited = place.run_empty("ended", &[]);
    waited.says(0, "removed an ended holder whose minimum hold has passed");
    // The test took the time before the acquisition, so the minimum hold must have passed.
    assert!(began.elapsed() >= LEAST, "{:?}", began.elapsed());
    let free = place.run_empty("ended", &["--no-wait"]);
    assert_eq!(free.code, 0, "without the flag nothing is kept: {free:?}");
}

#[test]
fn a_job_does_not_wait_for_the_rest_and_others_see_it() {
    let place = Place::new();
    let done = place.run_empty("kept", &["--at-least=1h", "--identity=quick"]);
    assert_eq!(done.code, 0, "{done:?}");
    place.wait_listed("kept");
    let refused = place.run_empty("kept", &["--no-wait"]);
    refused.says(75, "held by quick (exclusive) since 20");
    refused.says(75, "(its work has ended, its place is kept)");
    let empty = run_on("container", &place, "kept", &["--no-wait"]);
    assert_eq!(empty.code, 75, "{empty:?}");
}

#[test]
fn the_place_of_a_killed_job_is_kept_too() {
    let place = Place::new();
    let began = Instant::now();
    let killed = place.holder("killed", &[AT_LEAST, LEASE]);
    // Kill the job. Its guard and its command then exit too.
    killed.signal(Signal::KILL);
    let waited = place.run_empty("killed", &[LEASE]);
    waited.says(0, "removed an expired holder");
    assert!(began.elapsed() >= LEAST, "{:?}", began.elapsed());
}

#[test]
fn operators_see_the_rest_and_remove_a_place_only_by_force() {
    let place = Place::new();
    let done = place.run_empty("shown", &["--at-least=1h"]);
    assert_eq!(done.code, 0, "{done:?}");
    place.wait_listed("kept");
    let refused = place.run(&["locks", "break", "shown"]);
    refused.says(
        1,
        "its work has ended and its place is kept for another 59m",
    );
    let forced = place.run(&["locks", "break", "shown", "--force", "--yes"]);
    assert_eq!(forced.code, 0, "{forced:?}");
    for lock in ["reused", "unused"] {
        assert_eq!(place.run_empty(lock, &[AT_LEAST]).code, 0);
    }
    eventually("both have ended", || {
        place.run(&["locks"]).stdout.matches(" ended ").count() == 2
    });
    let other = place.run_empty("reused", &["--slots=3", "--no-wait"]);
    other.says(0, "last used without --slots");
    let pruned = place.run(&["locks", "prune", "--unused-for=0s"]);
    assert_eq!(pruned.code, 0, "{pruned:?}");
    assert!(pruned.stdout.contains("pruned unused\n"), "{pruned:?}");
}

/// Tests a command that cannot be executed, and a waiter that times out.
#[test]
fn a_job_that_did_not_begin_keeps_nothing() {
    let place = Place::new();
    let missing = place.run(&["lock", "begun", "--at-least=1h", "--", "/nowhere/at-all"]);
    assert_eq!(missing.code, 127);
    let holder = place.holder("begun", &[]);
    let waited = place.run_empty("begun", &["--at-least=1h", "--wait=5s"]);
    assert_eq!(waited.code, 75);
    holder.signal(Signal::TERM);
    assert_eq!(holder.output().code, 128 + 15);
    let free = place.run_empty("begun", &["--no-wait"]);
    assert_eq!(free.code, 0, "{free:?}");
}

#[test]
fn a_break_does_not_wait_for_the_least_time_of_a_killed_job() {
    let place = Place::new();
    let killed = place.holder("dead", &["--at-least=1h", LEASE]);
    killed.signal(Signal::KILL);
    let refused = place.run(&["locks", "break", "dead"]);
    refused.says(
        1,
        "a holder has expired and its place is kept for another 59m",
    );
}

#[test]
fn a_job_that_works_for_longer_keeps_nothing() {
    let place = Place::new();
    let done = place.run_under("longer", &["--at-least=100ms", LEASE], "sleep 1");
    assert_eq!(done.code, 0, "{done:?}");
    let free = place.run_empty("longer", &["--no-wait"]);
    assert_eq!(free.code, 0, "{free:?}");
}

/// Cron jobs do not wait, so no single job observes an entry for its whole minimum hold. In
/// containers, a job does not even see the observations of earlier jobs.
#[test]
fn jobs_that_do_not_wait_find_the_place_free_after_its_least_time() {
    let place = Place::new();
    let flags = [AT_LEAST, LEASE, "--no-wait"];
    let mut containers = 0;
    let mut run = || {
        containers += 1;
        run_on(&format!("container-{containers}"), &place, "cron", &flags).code
    };
    for times in 1..=2 {
        let began = Instant::now();
        eventually("a job runs", || run() == 0);
        eventually("the next one runs", || run() == 0);
        assert!(began.elapsed() >= LEAST, "{times}: {:?}", began.elapsed());
    }
}

#[test]
fn a_place_is_kept_by_one_of_several_slots() {
    let place = Place::new();
    let kept = place.run_empty("some", &["--slots=2", "--at-least=1h"]);
    assert_eq!(kept.code, 0, "{kept:?}");
    let other = place.holder("some", &["--slots=2"]);
    let refused = place.run_empty("some", &["--slots=2", "--no-wait"]);
    assert_eq!(refused.code, 75, "{refused:?}");
    drop(other);
}

#[test]
fn an_inner_lock_cannot_keep_the_place_of_the_outer_one() {
    let place = Place::new();
    let store = place.store().join(" ");
    let program = crate::job::PROGRAM;
    let inner = format!("{program} lock {store} outer --at-least=5s -- true");
    let done = place.run_under("outer", &[], &inner);
    done.says(78, "give --at-least to the outer command");
}
