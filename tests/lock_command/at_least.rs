//! Goal: a lock stays held for at least its minimum hold, even if the command exits earlier.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::job::{Job, Output, Place, eventually};

/// Minimum hold of a job, longer than its lease.
const LEAST: Duration = Duration::from_secs(10);
const LEASE: &str = "--lease-duration=4s";
const AT_LEAST: &str = "--at-least=10s";

/// Runs a job that does nothing on a simulated host. Jobs on one host share their observations of
/// locks.
fn run_on(host: &str, place: &Place, lock: &str, flags: &[&str]) -> Output {
    let directory = place.path(host);
    std::fs::create_dir_all(&directory).unwrap();
    let mut command = place.command(&[&["lock", lock], flags, &["--", "true"]].concat());
    command.env("XDG_RUNTIME_DIR", directory);
    Job::start(command).output()
}

#[test]
fn others_wait_for_the_minimum_hold_of_a_job_that_exited_at_once() {
    let place = Place::new();
    let began = Instant::now();
    // The default lease duration is so long that no call is slow enough to be logged.
    let done = place.run_empty("ended", &[AT_LEAST, "--identity=quick"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(done.stderr, "", "no output, like flock");
    let waited = place.run_empty("ended", &[]);
    waited.says(0, "removed an ended holder whose minimum hold has passed");
    // The test started its clock before the acquisition, so the minimum hold must have passed.
    assert!(began.elapsed() >= LEAST, "{:?}", began.elapsed());
    let free = place.run_empty("ended", &["--no-wait"]);
    assert_eq!(
        free.code, 0,
        "without --at-least, the lock is free: {free:?}"
    );
}

#[test]
fn a_job_exits_before_its_minimum_hold_and_others_see_the_hold() {
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
fn the_minimum_hold_applies_to_a_killed_job_too() {
    let place = Place::new();
    let began = Instant::now();
    let killed = place.holder("killed", &[AT_LEAST, LEASE]);
    // Kills the job, whose guard and command then exit too.
    killed.signal(Signal::KILL);
    let waited = place.run_empty("killed", &[LEASE]);
    waited.says(0, "removed an expired holder");
    assert!(began.elapsed() >= LEAST, "{:?}", began.elapsed());
}

#[test]
fn operators_see_the_minimum_hold_and_need_force_to_end_it() {
    let place = Place::new();
    let done = place.run_empty("shown", &["--at-least=1h"]);
    assert_eq!(done.code, 0, "{done:?}");
    place.wait_listed("kept");
    let refused = place.run(&["locks", "break", "shown"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    let why = "a holder's work has ended, but its minimum hold lasts another 59m";
    assert!(refused.stdout.contains(why), "{refused:?}");
    let forced = place.run(&["locks", "break", "shown", "--force", "--yes"]);
    assert_eq!(forced.code, 0, "{forced:?}");
    for lock in ["reused", "unused"] {
        assert_eq!(place.run_empty(lock, &[AT_LEAST]).code, 0);
    }
    eventually("both locks show an ended holder", || {
        place.run(&["locks"]).stdout.matches(" ended ").count() == 2
    });
    let other = place.run_empty("reused", &["--slots=3", "--no-wait"]);
    other.says(0, "last used without --slots");
    let pruned = place.run(&["locks", "prune", "--unused-for=0s"]);
    assert_eq!(pruned.code, 0, "{pruned:?}");
    assert!(pruned.stdout.contains("pruned unused\n"), "{pruned:?}");
}

/// Covers a command that cannot be executed, and a waiter that times out.
#[test]
fn a_job_whose_command_did_not_start_has_no_minimum_hold() {
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
fn a_break_does_not_wait_for_the_minimum_hold_of_a_killed_job() {
    let place = Place::new();
    let killed = place.holder("dead", &["--at-least=1h", LEASE]);
    killed.signal(Signal::KILL);
    let refused = place.run(&["locks", "break", "dead"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    let why = "a holder has expired, but its minimum hold lasts another 59m";
    assert!(refused.stdout.contains(why), "{refused:?}");
}

#[test]
fn a_job_that_runs_longer_than_its_minimum_hold_frees_the_lock() {
    let place = Place::new();
    let done = place.run_under("longer", &["--at-least=100ms", LEASE], "sleep 1");
    assert_eq!(done.code, 0, "{done:?}");
    let free = place.run_empty("longer", &["--no-wait"]);
    assert_eq!(free.code, 0, "{free:?}");
}

/// Cron jobs do not wait, so no single job observes an entry for its whole minimum hold. A job in a
/// container cannot even read earlier jobs' observations.
#[test]
fn jobs_that_do_not_wait_get_the_lock_after_the_minimum_hold() {
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
        eventually("the next job runs", || run() == 0);
        assert!(began.elapsed() >= LEAST, "{times}: {:?}", began.elapsed());
    }
}

#[test]
fn a_minimum_hold_keeps_one_slot_of_several() {
    let place = Place::new();
    let kept = place.run_empty("some", &["--slots=2", "--at-least=1h"]);
    assert_eq!(kept.code, 0, "{kept:?}");
    let other = place.holder("some", &["--slots=2"]);
    let refused = place.run_empty("some", &["--slots=2", "--no-wait"]);
    assert_eq!(refused.code, 75, "{refused:?}");
    drop(other);
}

#[test]
fn an_inner_lock_cannot_set_the_minimum_hold_of_the_outer_lock() {
    let place = Place::new();
    let store = place.store().join(" ");
    let program = crate::job::PROGRAM;
    let inner = format!("{program} lock {store} outer --at-least=5s -- true");
    let done = place.run_under("outer", &[], &inner);
    done.says(78, "give --at-least to the outer command");
}
