//! The store as seen by one contender: the calls that fail, and what keeps the contender waiting.

use std::time::Duration;

use crate::calls::AnsweredCall;
use crate::store::{Failure, RetryPolicy};
use leasehold_core::election::BootTime;
use leasehold_core::lock::{LockNotice, LockStatus, Standing};

/// Current health of the store.
#[derive(Debug, Clone, Default)]
pub struct StoreHealth {
    /// The failing reads; `None` while they succeed.
    reads: Option<ConsecutiveFailures>,
    /// The failing writes. Reads that succeed do not end them: a server that refuses writes, or does
    /// not acknowledge them, may answer reads.
    writes: Option<ConsecutiveFailures>,
    /// True if the queue is full.
    queue_full: bool,
    /// End of the wait that an older document than before has caused.
    doubt_until: Option<BootTime>,
}

/// Consecutive failures of one kind of call.
#[derive(Debug, Clone)]
struct ConsecutiveFailures {
    /// Reason of the newest.
    failure: Failure,
    /// Time of the first.
    since: BootTime,
}

impl StoreHealth {
    /// Records a response.
    pub fn answered(&mut self, answered: &AnsweredCall, now: BootTime) {
        if answered.late {
            return;
        }
        let reads = answered.operation == "read";
        if answered.failure.is_none() && !reads {
            // A server that acknowledges a write answers reads too.
            self.reads = None;
        }
        if self.is_unchanged_by(answered) {
            return;
        }
        let failing = match reads {
            true => &mut self.reads,
            false => &mut self.writes,
        };
        let since = failing.as_ref().map_or(now, |failing| failing.since);
        let failure = answered.failure.clone();
        *failing = failure.map(|failure| ConsecutiveFailures { failure, since });
    }

    /// Records a notice of the contender.
    pub fn notice(&mut self, notice: &LockNotice, now: BootTime) {
        match notice {
            LockNotice::QueueFull => {
                self.queue_full = true;
                // A document that was read just now shows why the join was rejected.
                self.writes = None;
            }
            LockNotice::PlaceLost => self.queue_full = false,
            LockNotice::StoreRolledBack { wait, .. } => self.doubt_until = Some(now + *wait),
            _ => {}
        }
    }

    /// Returns true if a response does not end the failing writes, because a write that matches no
    /// document shows no more than a read.
    pub fn is_unchanged_by(&self, answered: &AnsweredCall) -> bool {
        let refused =
            |failing: &ConsecutiveFailures| failing.failure.retry != RetryPolicy::WaitForServer;
        answered.is_rejected() && self.writes.as_ref().is_some_and(refused)
    }

    /// Returns the failure if waiting is useless because MongoDB rejects the calls until an
    /// operator changes something. A waiter that is already in the queue continues, because it may
    /// have been admitted with credentials that are being replaced.
    pub fn refusal(&self, status: &LockStatus) -> Option<&Failure> {
        let joining = matches!(status.standing, Standing::Joining);
        let lasts =
            |failing: &&ConsecutiveFailures| failing.failure.retry == RetryPolicy::Reconfigure;
        let lasting = self.failing().find(lasts).filter(|_| joining);
        lasting.map(|failing| &failing.failure)
    }

    /// Returns true if calls of one kind fail.
    pub fn failed(&self) -> bool {
        self.failing().next().is_some()
    }

    /// Returns why calls fail; a reason named by a server has priority.
    pub fn failure(&self) -> Option<&Failure> {
        let named = self
            .failing()
            .find(|failing| failing.failure.code.is_some());
        let failing = named.or_else(|| self.failing().next());
        failing.map(|failing| &failing.failure)
    }

    /// Returns the failure of the newest write, unless a write has succeeded since.
    pub fn failed_write(&self) -> Option<&Failure> {
        self.writes.as_ref().map(|failing| &failing.failure)
    }

    /// Returns when calls of one kind will have failed for `patience`; `None` while both succeed.
    pub fn unreachable_until(&self, patience: Duration) -> Option<BootTime> {
        let since = self.failing().map(|failing| failing.since).min();
        since.map(|since| since + patience)
    }

    /// Returns true if other contenders keep the lock from this one. If calls have failed for
    /// `renew_deadline`, the store does: a holder whose calls fail too has lost the lock by then, and
    /// the last known holders and the queue are out of date.
    pub fn is_kept_by_others(
        &self,
        status: &LockStatus,
        now: BootTime,
        renew_deadline: Duration,
    ) -> bool {
        let outdated = self.unreachable_until(renew_deadline);
        let known = outdated.is_none_or(|outdated| now < outdated);
        known && (waits_for_others(status) || self.queue_full)
    }

    /// Returns the remaining wait for holders that an older document does not show.
    pub fn doubt(&self, now: BootTime) -> Option<Duration> {
        let left = self.doubt_until?.since(now);
        (!left.is_zero()).then_some(left)
    }

    fn failing(&self) -> impl Iterator<Item = &ConsecutiveFailures> {
        self.writes.iter().chain(&self.reads)
    }
}

/// Returns true if MongoDB has responded and the lock cannot be acquired immediately.
pub fn waits_for_others(status: &LockStatus) -> bool {
    matches!(
        status.standing,
        Standing::Waiting { position, holding, .. } if position > 0 || holding > 0
    )
}
