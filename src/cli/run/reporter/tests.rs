//! Goal: verify that the log claims only the outages that happened. Method: capture the log.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;

#[derive(Debug, Default, Clone)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl io::Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

const HOUR: u64 = 3600;

fn applied(operation: &'static str) -> AnsweredCall {
    AnsweredCall {
        operation,
        outcome: "applied",
        elapsed: Duration::ZERO,
        failure: None,
        late: false,
    }
}

fn unanswered(operation: &'static str) -> AnsweredCall {
    let elapsed = Duration::from_secs(3);
    AnsweredCall {
        outcome: "unknown",
        elapsed,
        failure: Some(Failure::no_answer(elapsed)),
        ..applied(operation)
    }
}

/// Returns the log of these results, each of which arrives at a second.
fn log_of(results: impl IntoIterator<Item = (u64, AnsweredCall)>) -> String {
    let timings = watch::channel(Timings::default()).1;
    let not_started = watch::channel(None).1;
    let lease = ResourceName::new("orders").unwrap();
    let mut reporter = Reporter::new(lease, timings.clone(), false, not_started);
    let (mut store_errors, _published) = StoreErrors::channel(timings);
    let page = Page::default();
    let written = page.clone();
    let log = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || written.clone())
        .finish();
    tracing::subscriber::with_default(log, || {
        for (second, result) in results {
            let now = BootTime::default() + Duration::from_secs(second);
            store_errors.answered(&result, now);
            reporter.answered(&result, &store_errors, now);
        }
    });
    String::from_utf8(page.0.lock().unwrap().clone()).unwrap()
}

#[test]
fn the_end_of_an_outage_is_logged_with_its_duration() {
    let log = log_of([
        (10, unanswered("renew")),
        (12, applied("renew")),
        (20, unanswered("read")),
        (23, applied("acquire")),
        (24, applied("read")),
    ]);
    let ends: Vec<_> = log.lines().filter(|line| line.contains("again")).collect();
    let [write, read] = ends[..] else {
        panic!("{log}")
    };
    assert!(write.contains("after_ms=5000 failures=1"), "{write}");
    assert!(read.contains("after_ms=6000 failures=1"), "{read}");
}

#[test]
fn a_follower_that_writes_again_days_later_has_not_failed_for_days() {
    let reads = (1..24).map(|hour| (hour * HOUR, applied("read")));
    let mut results = vec![(10, unanswered("renew")), (11, unanswered("renew"))];
    results.extend(reads);
    results.push((24 * HOUR, applied("acquire")));
    let log = log_of(results);
    assert_eq!(log.matches("failed (attempt").count(), 1, "{log}");
    assert!(!log.contains("again"), "{log}");
}

#[test]
fn a_leader_that_reads_again_days_later_has_not_failed_for_days() {
    let mut results = vec![(12, applied("read")), (13, unanswered("read"))];
    results.extend((1..24).map(|hour| (hour * HOUR, applied("renew"))));
    results.push((24 * HOUR, applied("read")));
    assert_eq!(log_of(results), "");
}
