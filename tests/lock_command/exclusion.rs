//! Goal: exclusive locks, shared locks and slots keep their promises, in the order of arrival.

use leasehold_testbed::run;

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

fn jobs_that(place: &Place, count: usize, flags: &[&str], work: &str) -> Vec<Job> {
    let script = format!("{}; {work}; {}", place.note("begin"), place.note("end"));
    let start = |_| {
        let words = [&["lock"], flags, &["--", "sh", "-c", &script]].concat();
        place.start(&words)
    };
    (0..count).map(start).collect()
}

#[test]
fn one_at_a_time() {
    let place = run(Place::new());
    for job in jobs(&place, 8, &["one"]) {
        assert_eq!(job.output().code, 0);
    }
    assert_eq!(most_at_once(&place), 1);
    let mut tokens: Vec<_> = place
        .journal()
        .iter()
        .map(|line| line[1].parse::<i64>().unwrap())
        .collect();
    tokens.dedup();
    assert_eq!(
        tokens,
        (1..=8).collect::<Vec<_>>(),
        "in the order of the grants"
    );
}

#[test]
fn readers_together_and_a_writer_alone() {
    let place = run(Place::new());
    // All four begin before a writer waits, because a later reader would wait behind it.
    let together = format!("{}; sleep 0.1", until_begun(&place, 4));
    let mut started = jobs_that(&place, 4, &["readers", "--shared"], &together);
    eventually("four hold it", || place.journal().len() >= 4);
    started.extend(jobs(&place, 2, &["readers"]));
    started.extend(jobs(&place, 4, &["readers", "--shared"]));
    for job in started {
        assert_eq!(job.output().code, 0);
    }
    assert!(most_at_once(&place) >= 4, "{:?}", place.journal());
}

#[test]
fn so_many_slots_and_no_more() {
    let place = run(Place::new());
    let together = until_begun(&place, 3);
    for job in jobs_that(&place, 9, &["slots", "--slots=3"], &together) {
        assert_eq!(job.output().code, 0);
    }
    assert_eq!(most_at_once(&place), 3);
}

#[test]
fn another_number_of_slots_is_a_clear_error() {
    let place = run(Place::new());
    let holds = place.note("holds");
    let holder = place.start(&[
        "lock",
        "two",
        "--slots=2",
        "--",
        "sh",
        "-c",
        &format!("{holds}; exec sleep 1000"),
    ]);
    place.wait_noted("holds");
    let other = place.run(&["lock", "two", "--slots=3", "--", "true"]);
    assert_eq!(other.code, 78);
    assert!(other.stderr.contains("in use with --slots 2"), "{other:?}");
    let plain = place.run(&["lock", "two", "--", "true"]);
    assert_eq!(plain.code, 78);
    drop(holder);
}

#[test]
fn a_waiting_writer_is_not_starved_by_arriving_readers() {
    let place = run(Place::new());
    let long = format!("{}; exec sleep 1000", place.note("first"));
    let reader = place.start(&["lock", "fair", "--shared", "--", "sh", "-c", &long]);
    place.wait_noted("first");
    let writer = place.start(&[
        "lock",
        "fair",
        "--identity=writer",
        "--",
        "sh",
        "-c",
        &place.note("writer"),
    ]);
    eventually("it waits", || {
        place.run(&["locks"]).stdout.contains("writer")
    });
    let late = place.run(&["lock", "fair", "--shared", "--no-wait", "--", "true"]);
    assert_eq!(late.code, 75, "behind the writer: {late:?}");
    reader.signal(rustix::process::Signal::TERM);
    assert_eq!(writer.output().code, 0);
    assert_eq!(reader.output().code, 128 + 15);
}

#[test]
fn a_dead_waiter_does_not_block_the_queue_and_is_named() {
    let place = run(Place::new());
    // Long enough that most calls are answered in time.
    let flags = ["lock", "dead", "--lease-duration=5s"];
    let long = format!("{}; exec sleep 1000", place.note("first"));
    let first = place.start(&[&flags[..], &["--", "sh", "-c", &long]].concat());
    place.wait_noted("first");
    let dead = place.start(&[&flags[..], &["--identity=dead", "--", "true"]].concat());
    eventually("it waits", || {
        place.run(&["locks"]).stdout.contains("dead ")
    });
    let next = place.start(&[&flags[..], &["--identity=next", "--", "true"]].concat());
    eventually("it waits", || {
        place.run(&["locks"]).stdout.contains("next ")
    });
    dead.signal(rustix::process::Signal::KILL);
    drop(dead);
    first.signal(rustix::process::Signal::TERM);
    let (first, next) = (first.output(), next.output());
    assert_eq!((first.code, next.code), (128 + 15, 0));
    // A holder that is slow to end may be the one that removes it.
    let named = |output: &Output| {
        let removed = output.stderr.contains("removed an expired waiter");
        removed && output.stderr.contains("identity=dead")
    };
    // A removal is not logged if the program ends before a late answer to it.
    let unanswered = [&first, &next]
        .iter()
        .any(|output| output.stderr.contains("outcome=\"unknown\""));
    assert!(
        named(&next) || named(&first) || unanswered,
        "{first:?} {next:?}"
    );
}
