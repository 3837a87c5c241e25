//! Publishes the current failure of the store. Reads and writes are tracked separately, because a
//! read-only role, a full disk or a missing majority makes only writes fail.

use tokio::sync::watch;

use crate::calls::AnsweredCall;
use crate::election::{BootTime, Timings};
use crate::publish::StoreError;
use crate::store::{Failure, RetryPolicy};

#[derive(Debug)]
pub(super) struct StoreErrors {
    published: watch::Sender<Option<StoreError>>,
    /// Limits how long the failure of a write stays published if reads succeed: one lease duration
    /// after the last attempt.
    timings: watch::Receiver<Timings>,
    read: Option<Failing>,
    write: Option<Failing>,
    /// Instants of the newest successful read and of the newest applied write.
    read_at: BootTime,
    applied_at: BootTime,
}

/// Consecutive failures of one kind of call.
#[derive(Debug)]
struct Failing {
    since: BootTime,
    last: BootTime,
    failure: Failure,
    /// True if the server refused several calls in a row.
    repeats: bool,
    /// True if a read has succeeded since the last failure.
    read_since: bool,
    /// True if a write failed again although a read had succeeded in between.
    despite_reads: bool,
}

impl Failing {
    fn again(before: Option<Self>, failure: &Failure, sent: BootTime, now: BootTime) -> Self {
        let before = before.as_ref();
        Self {
            since: before.map_or(sent, |before| before.since),
            last: now,
            failure: failure.clone(),
            repeats: before.is_some() && failure.retry == RetryPolicy::Retry,
            read_since: false,
            despite_reads: before.is_some_and(|before| before.despite_reads || before.read_since),
        }
    }

    /// Returns true if a successful read does not clear this failure.
    fn stands(&self) -> bool {
        let refused = self.repeats || self.failure.retry == RetryPolicy::Reconfigure;
        refused || self.despite_reads || !self.read_since
    }
}

impl StoreErrors {
    pub(super) fn channel(
        timings: watch::Receiver<Timings>,
    ) -> (Self, watch::Receiver<Option<StoreError>>) {
        let (published, receiver) = watch::channel(None);
        let errors = Self {
            published,
            timings,
            read: None,
            write: None,
            read_at: BootTime::default(),
            applied_at: BootTime::default(),
        };
        (errors, receiver)
    }

    pub(super) fn failed_read(&self) -> Option<&Failure> {
        self.read.as_ref().map(|failing| &failing.failure)
    }

    pub(super) fn failed_write(&self) -> Option<&Failure> {
        self.write.as_ref().map(|failing| &failing.failure)
    }

    /// Returns true if a later call has already succeeded. The election does not retry a read that
    /// it has abandoned, so no later result would clear the failure.
    pub(super) fn is_outdated(&self, answered: &AnsweredCall, now: BootTime) -> bool {
        answered.failure.as_ref().is_some_and(|failure| {
            let succeeded_at = match answered.operation {
                "read" if failure.retry == RetryPolicy::Reconfigure => self.read_at,
                // A server that applies a write also answers reads.
                "read" => self.read_at.max(self.applied_at),
                _ => self.applied_at,
            };
            now - answered.elapsed < succeeded_at
        })
    }

    /// Records a result. Returns true if the published error changed.
    pub(super) fn answered(&mut self, answered: &AnsweredCall, now: BootTime) -> bool {
        let outdated = self.is_outdated(answered, now);
        let reads = answered.operation == "read";
        let failing = if reads {
            &mut self.read
        } else {
            &mut self.write
        };
        match &answered.failure {
            Some(_) if outdated => {}
            Some(failure) => {
                let sent = now - answered.elapsed;
                *failing = Some(Failing::again(failing.take(), failure, sent, now));
            }
            // A write that matches no document does not prove that writes are accepted.
            None if reads || answered.is_rejected() => {
                if let Some(write) = &mut self.write {
                    write.read_since = true;
                }
                if reads {
                    (self.read, self.read_at) = (None, now);
                }
            }
            None => {
                (self.write, self.applied_at) = (None, now);
                let lasts = |read: &Failing| read.failure.retry == RetryPolicy::Reconfigure;
                self.read = self.read.take().filter(lasts);
            }
        }
        // A candidate that does not lead might never write again, and so never clear its failed
        // write. If reads succeed, the failed write is therefore dropped after one lease duration,
        // unless only a new configuration can help.
        let patience = self.timings.borrow().lease_duration();
        let attempted = |write: &Failing| {
            let lasts = write.failure.retry == RetryPolicy::Reconfigure;
            lasts || !write.read_since || now.since(write.last) < patience
        };
        self.write = self.write.take().filter(attempted);
        let write = self.write.as_ref().filter(|write| write.stands());
        let newest = self.read.iter().chain(write).max_by_key(|f| f.last);
        // When a leader loses its lease in an outage, its writes stop and its reads fail instead.
        // The outage began with the first failed write.
        let unanswered = self.write.iter().filter(|write| !write.read_since);
        let outage = unanswered.map(|write| write.since).min();
        let error = newest.map(|failing| StoreError {
            message: failing.failure.to_string(),
            since: outage.map_or(failing.since, |outage| outage.min(failing.since)),
        });
        self.published.send_if_modified(|published| {
            let changed = *published != error;
            *published = error;
            changed
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn timings() -> watch::Receiver<Timings> {
        watch::channel(Timings::default()).1
    }

    fn answered(operation: &'static str, failure: Option<Failure>) -> AnsweredCall {
        AnsweredCall {
            operation,
            outcome: if failure.is_none() {
                "applied"
            } else {
                "unknown"
            },
            elapsed: Duration::ZERO,
            failure,
            late: false,
        }
    }

    fn at(seconds: u64) -> BootTime {
        BootTime::default() + Duration::from_secs(seconds)
    }

    #[test]
    fn an_error_is_published_until_the_store_answers() {
        let (mut errors, shown) = StoreErrors::channel(timings());
        let failed = |why| answered("read", Some(Failure::new(why, "")));
        assert!(errors.answered(&failed("no primary"), at(1)));
        assert!(!errors.answered(&failed("no primary"), at(2)));
        assert!(errors.answered(&failed("connection failed"), at(3)));
        let error = StoreError {
            message: "connection failed".to_owned(),
            since: at(1),
        };
        assert_eq!(*shown.borrow(), Some(error));
        assert!(errors.answered(&answered("read", None), at(4)));
        assert_eq!(*shown.borrow(), None);
    }

    #[test]
    fn an_outage_begins_with_the_first_unanswered_call() {
        let (mut errors, shown) = StoreErrors::channel(timings());
        let since = || shown.borrow().as_ref().map(|error| error.since);
        let unanswered = |operation| AnsweredCall {
            elapsed: Duration::from_secs(3),
            ..answered(operation, Some(Failure::no_answer(Duration::from_secs(3))))
        };
        errors.answered(&unanswered("renew"), at(10));
        assert_eq!(since(), Some(at(7)), "when the call was sent");
        errors.answered(&unanswered("read"), at(25));
        assert_eq!(since(), Some(at(7)), "not when the lease was lost");
        errors.answered(&answered("read", None), at(30));
        errors.answered(&unanswered("read"), at(40));
        assert_eq!(since(), Some(at(37)), "another outage");
    }

    #[test]
    fn a_failure_that_is_older_than_a_success_is_not_published() {
        let (mut errors, shown) = StoreErrors::channel(timings());
        let unanswered = |operation| AnsweredCall {
            elapsed: Duration::from_secs(3),
            ..answered(operation, Some(Failure::no_answer(Duration::from_secs(3))))
        };
        errors.answered(&answered("read", None), at(12));
        assert!(errors.is_outdated(&unanswered("read"), at(13)));
        errors.answered(&unanswered("read"), at(13));
        assert_eq!(*shown.borrow(), None, "sent at 10");
        errors.answered(&answered("acquire", None), at(20));
        for operation in ["read", "renew"] {
            errors.answered(&unanswered(operation), at(21));
            assert_eq!(*shown.borrow(), None, "{operation} sent at 18");
        }
        errors.answered(&unanswered("read"), at(24));
        assert!(shown.borrow().is_some(), "sent at 21");
        // A leader reads only after events.
        errors.answered(&answered("renew", None), at(25));
        assert_eq!(*shown.borrow(), None);
    }

    #[test]
    fn applied_writes_do_not_hide_refused_reads() {
        let (mut errors, shown) = StoreErrors::channel(timings());
        let refused = Failure::new("not authorized", "").with_retry(RetryPolicy::Reconfigure);
        let refused = AnsweredCall {
            elapsed: Duration::from_secs(1),
            ..answered("read", Some(refused))
        };
        errors.answered(&answered("renew", None), at(5));
        errors.answered(&refused, at(5));
        errors.answered(&answered("renew", None), at(6));
        assert!(shown.borrow().is_some());
        errors.answered(&answered("read", None), at(7));
        assert_eq!(*shown.borrow(), None);
    }

    #[test]
    fn successful_reads_do_not_hide_a_refused_write() {
        let (mut errors, shown) = StoreErrors::channel(timings());
        let refused = Failure::new("not authorized", "").with_retry(RetryPolicy::Reconfigure);
        errors.answered(&answered("acquire", Some(refused)), at(1));
        errors.answered(&answered("read", None), at(2));
        assert!(shown.borrow().is_some());
        // A successful read clears the failure of a single write with an unknown outcome.
        let (mut errors, shown) = StoreErrors::channel(timings());
        let unknown = Failure::new("no answer", "").with_retry(RetryPolicy::WaitForServer);
        errors.answered(&answered("acquire", Some(unknown)), at(3));
        errors.answered(&answered("read", None), at(4));
        assert_eq!(*shown.borrow(), None);
    }

    #[test]
    fn refused_writes_are_published_until_a_write_is_applied() {
        let (mut errors, shown) = StoreErrors::channel(timings());
        let refused = |operation| {
            let failure = Failure::new("MongoDB refused the write", "");
            answered(operation, Some(failure))
        };
        let since = |shown: &watch::Receiver<Option<StoreError>>| {
            shown.borrow().as_ref().map(|error| error.since)
        };
        errors.answered(&refused("renew"), at(1));
        errors.answered(&refused("renew"), at(2));
        errors.answered(&answered("read", None), at(3));
        assert_eq!(since(&shown), Some(at(1)));
        errors.answered(&refused("take_over"), at(20));
        errors.answered(&answered("read", None), at(21));
        // While the document is missing, an acquisition matches nothing, so the server reports no
        // error even if it refuses writes.
        let rejected = AnsweredCall {
            outcome: "rejected",
            ..answered("acquire", None)
        };
        errors.answered(&rejected, at(22));
        assert_eq!(since(&shown), Some(at(1)));
        errors.answered(&answered("take_over", None), at(23));
        assert_eq!(since(&shown), None);
        assert_eq!(errors.failed_write(), None);
    }

    #[test]
    fn successful_reads_do_not_hide_unanswered_writes() {
        let (mut errors, shown) = StoreErrors::channel(timings());
        let unanswered = answered("take_over", Some(Failure::no_answer(Duration::ZERO)));
        let read = answered("read", None);
        errors.answered(&unanswered, at(1));
        errors.answered(&read, at(2));
        assert!(shown.borrow().is_none(), "the server is reachable");
        errors.answered(&unanswered, at(5));
        errors.answered(&read, at(6));
        assert!(shown.borrow().is_some(), "but refuses writes");
        // Another candidate leads, so this candidate makes no more attempts.
        errors.answered(&read, at(30));
        assert!(shown.borrow().is_none());
    }
}
