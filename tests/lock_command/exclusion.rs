//! Goal: exclusive locks, shared locks and slots keep their promises, in the order of arrival.

use rustix::process::Signal;

use crate::job::{Job, Output, Place, eventually};

/// Returns the maximum number of jobs that ran simultaneously.
fn most_at_once(place: &Place) -> usize {
    let (mut now, mut most) = (0, 0);
    for line in place.journal() {
        match line[0].as_str() {
            "begin" => now += 1,
            "end" => now -= 1,
            other => panic!("{other}"),
        }
        most = most.max(now);
    }
    assert_eq!(now, 0, "each that began has ended");
    most
}

fn jobs(place: &Place, count: usize, flags: &[&str]) -> Vec<Job> {
    jobs_that(place, count, flags, "sleep 0.1")
}

/// Returns a shell command that waits until this number of jobs has begun.
fn until_begun(place: &Place, count: usize) -> String {
    let journal = place.path("journal");
    format!(
        "until [ $(grep -c ^begin {}) -ge {count} ]; do sleep 0.02; done",
        journal.display()
    )
}

/// Starts jobs that do this work under a lock; `how` is its name, and flags.
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
fn one_at_a_time() {
    let place = Place::new();
    all_succeed(jobs(&place, 8, &["one"]));
    assert_eq!(most_at_once(&place), 1);
    let lines = place.journal();
    let mut tokens: Vec<i64> = lines.iter().map(|line| line[1].parse().unwrap()).collect();
    tokens.dedup();
    let granted: Vec<_> = (1..=8).collect();
    assert_eq!(tokens, granted, "in the order of the grants");
}

#[test]
fn readers_together_and_a_writer_alone() {
    let place = Place::new();
    // All four begin before a writer waits, because a later reader would wait behind it.
    let together = format!("{}; sleep 0.1", until_begun(&place, 4));
    let mut started = jobs_that(&place, 4, &["readers", "--shared"], &together);
    eventually("four hold it", || place.journal().len() >= 4);
    started.extend(jobs(&place, 2, &["readers"]));
    started.extend(jobs(&place, 4, &["readers", "--shared"]));
    all_succeed(started);
    assert!(most_at_once(&place) >= 4, "{:?}", place.journal());
}

#[test]
fn so_many_slots_and_no_more() {
    let place = Place::new();
    let together = until_begun(&place, 3);
    all_succeed(jobs_that(&place, 9, &["slots", "--slots=3"], &together));
    assert_eq!(most_at_once(&place), 3);
}

#[test]
fn another_number_of_slots_is_a_clear_error() {
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
    assert_eq!(late.code, 75, "behind the writer: {late:?}");
    reader.signal(Signal::TERM);
    assert_eq!(writer.output().code, 0);
    assert_eq!(reader.output().code, 128 + 15);
}

#[test]
fn a_killed_waiter_is_named_and_does_not_block_the_queue() {
    let place = Place::new();
    // Long enough that most calls are answered in time.
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
    // A holder that is slow to end may be the one that removes it.
    let named = |output: &Output| {
        let removed = output.stderr.contains("removed an expired waiter");
        removed && output.stderr.contains("identity=dead")
    };
    // Nor is a removal logged if the program ends before a late answer to it.
    let unanswered = |output: &Output| output.stderr.contains("outcome=\"unknown\"");
    let ends = [first, next];
    assert!(
        ends.iter().any(|end| named(end) || unanswered(end)),
        "{ends:?}"
    );
}
