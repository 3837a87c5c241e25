//! Goal: exclusive locks, shared locks and slots exclude as documented, and are granted in the
//! order of arrival.

use std::collections::BTreeSet;

use leasehold_testbed::INVARIANT_VIOLATED;
use rustix::process::Signal;

use crate::job::{Job, Output, Place, eventually};

/// Returns the maximum number of jobs that ran simultaneously, which must not exceed `limit`.
fn most_at_once(place: &Place, limit: usize) -> usize {
    let (mut now, mut most) = (0, 0);
    for line in place.journal() {
        match line[0].as_str() {
            "begin" => now += 1,
            "end" => now -= 1,
            other => panic!("{other}"),
        }
        most = most.max(now);
    }
    let journal = place.journal();
    assert!(
        most <= limit,
        "{INVARIANT_VIOLATED}: {most} jobs run, limit {limit}: {journal:?}"
    );
    assert_eq!(now, 0, "a job began but did not end");
    most
}

fn jobs(place: &Place, count: usize, flags: &[&str]) -> Vec<Job> {
    jobs_that(place, count, flags, "sleep 0.1")
}

/// Returns a shell command that waits until this many jobs have begun.
fn until_begun(place: &Place, count: usize) -> String {
    let journal = place.path("journal");
    format!(
        "until [ $(grep -c ^begin {}) -ge {count} ]; do sleep 0.02; done",
        journal.display()
    )
}

/// `how` contains the lock's name followed by flags of `leasehold lock`.
fn jobs_that(place: &Place, count: usize, how: &[&str], work: &str) -> Vec<Job> {
    let script = format!("{}; {work}; {}", place.note("begin"), place.note("end"));
    let start = |_| place.start_under(how[0], &how[1..], &script);
    (0..count).map(start).collect()
}

fn all_succeed(jobs: Vec<Job>) {
    for job in jobs {
        assert_eq!(job.output().code, 0);
    }
}

#[test]
fn only_one_job_runs_at_a_time() {
    let place = Place::new();
    all_succeed(jobs(&place, 8, &["one"]));
    assert_eq!(most_at_once(&place, 1), 1);
    let lines = place.journal();
    let mut tokens: Vec<i64> = lines.iter().map(|line| line[1].parse().unwrap()).collect();
    tokens.dedup();
    assert_eq!(tokens.len(), 8, "{tokens:?}");
    // Tokens may have gaps, because a job that acquires the lock too late to start its command
    // releases the lock.
    assert!(
        tokens.is_sorted(),
        "tokens grow with each grant: {tokens:?}"
    );
}

#[test]
fn readers_run_together_and_a_writer_runs_alone() {
    let place = Place::new();
    // All four readers begin before the writer joins the queue, because a later reader would queue
    // behind the writer.
    let together = format!("{}; sleep 0.1", until_begun(&place, 4));
    let mut started = jobs_that(&place, 4, &["readers", "--shared"], &together);
    eventually("four jobs hold the lock", || place.journal().len() >= 4);
    started.extend(jobs(&place, 2, &["readers"]));
    started.extend(jobs(&place, 4, &["readers", "--shared"]));
    all_succeed(started);
    assert!(most_at_once(&place, 8) >= 4, "{:?}", place.journal());
}

#[test]
fn as_many_jobs_run_as_there_are_slots() {
    let place = Place::new();
    let together = until_begun(&place, 3);
    all_succeed(jobs_that(&place, 9, &["slots", "--slots=3"], &together));
    assert_eq!(most_at_once(&place, 3), 3);
}

/// Two jobs of a lock never have the same slot number at the same time.
#[test]
fn each_slot_has_one_holder_at_a_time() {
    let place = Place::new();
    let journal = place.path("journal");
    let note = |what: &str| format!("echo {what} $LEASEHOLD_SLOT >> {}", journal.display());
    let script = format!("{}; sleep 0.05; {}", note("begin"), note("end"));
    let start = |_| place.start_under("numbered", &["--slots=3"], &script);
    all_succeed((0..12).map(start).collect());
    let (mut held, mut seen) = (BTreeSet::new(), BTreeSet::new());
    for line in place.journal() {
        let slot: u32 = line[1].parse().unwrap();
        seen.insert(slot);
        match line[0].as_str() {
            "begin" => assert!(
                held.insert(slot),
                "{INVARIANT_VIOLATED}: two jobs have slot {slot}: {:?}",
                place.journal()
            ),
            _ => assert!(held.remove(&slot)),
        }
    }
    assert_eq!(seen, BTreeSet::from([0, 1, 2]));
}

#[test]
fn a_returning_holder_gets_its_previous_slot() {
    let place = Place::new();
    let slot = |identity: &str| {
        let identity = format!("--identity={identity}");
        let flags = ["--slots=3", &identity];
        let output = place.run_under("ordinal", &flags, "echo $LEASEHOLD_SLOT");
        assert_eq!(output.code, 0, "{output:?}");
        output.stdout.trim().to_owned()
    };
    let first = place.holder("ordinal", &["--slots=3", "--identity=first"]);
    assert_eq!(slot("second"), "1");
    first.signal(Signal::TERM);
    first.output();
    assert_eq!(slot("second"), "1", "the previous slot, although 0 is free");
    assert_eq!(slot("third"), "0");
    // A lock without slots does not set the variable.
    let plain = place.run_under("plain", &[], "echo ${LEASEHOLD_SLOT-none}");
    assert_eq!(plain.stdout.trim(), "none");
    let _holder = place.start_under("ordinal", &["--slots=3", "--identity=second"], "sleep 1000");
    place.wait_listed("slot 1 of 3");
}

#[test]
fn a_different_number_of_slots_is_refused() {
    let place = Place::new();
    let holder = place.holder("two", &["--slots=2"]);
    let other = place.run_empty("two", &["--slots=3"]);
    other.says(78, "in use with --slots 2");
    let plain = place.run_empty("two", &[]);
    assert_eq!(plain.code, 78);
    drop(holder);
}

#[test]
fn a_waiting_writer_is_not_starved_by_arriving_readers() {
    let place = Place::new();
    let reader = place.holder("fair", &["--shared"]);
    let writer = place.start_under("fair", &["--identity=writer"], &place.note("writer"));
    place.wait_listed("writer");
    let late = place.run_empty("fair", &["--shared", "--no-wait"]);
    assert_eq!(late.code, 75, "queued behind the writer: {late:?}");
    reader.signal(Signal::TERM);
    assert_eq!(writer.output().code, 0);
    assert_eq!(reader.output().code, 128 + 15);
}

#[test]
fn a_killed_waiter_is_named_and_does_not_block_the_queue() {
    let place = Place::new();
    // This lease duration is long enough that most calls do not time out on a busy machine.
    let lease = "--lease-duration=5s";
    let first = place.holder("dead", &[lease]);
    let dead = place.start_empty("dead", &[lease, "--identity=dead"]);
    place.wait_listed("dead ");
    let next = place.start_empty("dead", &[lease, "--identity=next"]);
    place.wait_listed("next ");
    dead.signal(Signal::KILL);
    drop(dead);
    first.signal(Signal::TERM);
    let (first, next) = (first.output(), next.output());
    assert_eq!((first.code, next.code), (128 + 15, 0));
    // A holder that exits slowly may remove the expired waiter itself.
    let named = |output: &Output| {
        let removed = output.stderr.contains("removed an expired waiter");
        removed && output.stderr.contains("identity=dead")
    };
    // A program that exits before MongoDB has answered does not log the removal.
    let unanswered = |output: &Output| output.stderr.contains(" failed (attempt ");
    let ends = [first, next];
    assert!(
        ends.iter().any(|end| named(end) || unanswered(end)),
        "{ends:?}"
    );
}
