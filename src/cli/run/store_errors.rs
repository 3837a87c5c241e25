//! The newest failure of the store, as long as it lasts.
//!
//! Reads and writes are tracked separately, because a read-only role or a missing majority makes
//! writes fail, but not reads.

use tokio::sync::watch;

use crate::calls::Answered;
use crate::election::BootTime;
use crate::publish::StoreError;
use crate::store::{Failure, RetryPolicy};

/// Tracks the results of store calls.
#[derive(Debug)]
pub(super) struct StoreErrors {
    published: watch::Sender<Option<StoreError>>,
    read: Option<Failing>,
    write: Option<Failing>,
}

#[derive(Debug)]
struct Failing {
    since: BootTime,
    last: BootTime,
    failure: Failure,
}

impl StoreErrors {
    /// Creates a tracker without failures, and the receiver of the published error.
    pub(super) fn channel() -> (Self, watch::Receiver<Option<StoreError>>) {
        let (published, receiver) = watch::channel(None);
        let errors = Self {
            published,
            read: None,
            write: None,
        };
        (errors, receiver)
    }

    /// Records a result. Returns true if the published error changed.
    pub(super) fn answered(&mut self, answered: &Answered, now: BootTime) -> bool {
        let reads = answered.operation == "read";
        let failing = if reads {
            &mut self.read
        } else {
            &mut self.write
        };
        match &answered.failure {
            Some(failure) => {
                let since = failing.as_ref().map_or(now, |failing| failing.since);
                *failing = Some(Failing {
                    since,
                    last: now,
                    failure: failure.clone(),
                });
            }
            None => *failing = None,
        }
        // A candidate that cannot lead may never write again, so a successful read clears a failed
        // write. A write that was refused stays until a write succeeds.
        if reads && answered.failure.is_none() {
            let lasts = |failing: &Failing| failing.failure.retry == RetryPolicy::Reconfigure;
            self.write = self.write.take().filter(lasts);
        }
        let newest = self.read.iter().chain(&self.write).max_by_key(|f| f.last);
        let error = newest.map(|failing| StoreError {
            message: failing.failure.to_string(),
            since: failing.since,
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

    fn answered(operation: &'static str, failure: Option<Failure>) -> Answered {
        Answered {
            operation,
            outcome: "",
            elapsed: Duration::ZERO,
            failure,
            late: false,
        }
    }

    fn at(seconds: u64) -> BootTime {
        BootTime::default() + Duration::from_secs(seconds)
    }

    #[test]
    fn an_error_stands_from_its_beginning_until_the_store_answers() {
        let (mut errors, shown) = StoreErrors::channel();
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
    fn a_refused_write_stays_shown_although_reads_are_answered() {
        let (mut errors, shown) = StoreErrors::channel();
        let refused = Failure::new("not authorized", "").with_retry(RetryPolicy::Reconfigure);
        errors.answered(&answered("acquire", Some(refused)), at(1));
        errors.answered(&answered("read", None), at(2));
        assert!(shown.borrow().is_some());
        // A successful read also resolves a write whose outcome was unknown.
        let unknown = Failure::new("no answer", "").with_retry(RetryPolicy::WaitForServer);
        errors.answered(&answered("acquire", Some(unknown)), at(3));
        errors.answered(&answered("read", None), at(4));
        assert_eq!(*shown.borrow(), None);
    }
}
