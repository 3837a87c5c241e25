use std::time::Duration;

use crate::calls::AnsweredCall;
use crate::store::{Failure, RetryPolicy};
use leasehold_clock::duration::short;
use leasehold_core::election::BootTime;
use leasehold_core::lock::{LockNotice, LockStatus, Standing};

/// MongoDB's health, as one contender sees it.
#[derive(Debug, Clone, Default)]
pub struct StoreHealth {
    reads: Option<ConsecutiveFailures>,
    /// The failing writes. Kept after a successful read, because a server may refuse only writes.
    writes: Option<ConsecutiveFailures>,
    queue_full: bool,
    /// End of the wait after a rollback of the document.
    doubt_until: Option<BootTime>,
}

#[derive(Debug, Clone)]
struct ConsecutiveFailures {
    newest: Failure,
    since: BootTime,
}

impl StoreHealth {
    pub(super) fn answered(&mut self, answered: &AnsweredCall, now: BootTime) {
        if answered.late {
            return;
        }
        let reads = answered.operation == "read";
        if answered.failure.is_none() && !reads {
            // A server that acknowledges a write also answers reads.
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
        let newest = answered.failure.clone();
        *failing = newest.map(|newest| ConsecutiveFailures { newest, since });
    }

    pub(super) fn notice(&mut self, notice: &LockNotice, now: BootTime) {
        match notice {
            LockNotice::QueueFull => {
                self.queue_full = true;
                // The join failed because the queue is full, not because writes fail.
                self.writes = None;
            }
            LockNotice::PlaceLost => {
                self.queue_full = false;
                // MongoDB has answered a write of the lost claim. The next join shows whether
                // MongoDB accepts writes.
                self.writes = None;
            }
            LockNotice::StoreRolledBack { wait, .. } => self.doubt_until = Some(now + *wait),
            _ => {}
        }
    }

    /// True if this call matched no document and earlier writes were refused: the call does not
    /// show that writes succeed again.
    pub fn is_unchanged_by(&self, answered: &AnsweredCall) -> bool {
        let failed = self.failed_write();
        answered.is_rejected() && failed.is_some_and(|it| it.retry != RetryPolicy::WaitForServer)
    }

    /// Returns the failure that ends the attempt. A contender in the queue keeps waiting instead,
    /// because an operator may be replacing its credentials.
    pub(super) fn refusal(&self, status: &LockStatus) -> Option<&Failure> {
        let joining = matches!(status.standing, Standing::Joining);
        let mut newest = self.failing().map(|failing| &failing.newest);
        let lasting = newest.find(|failure| failure.retry == RetryPolicy::Reconfigure);
        lasting.filter(|_| joining)
    }

    /// True if reads or writes fail.
    pub fn failed(&self) -> bool {
        self.failing().next().is_some()
    }

    /// Returns why calls fail. Prefers a failure with an error code from a server.
    pub(super) fn failure(&self) -> Option<&Failure> {
        let newest = || self.failing().map(|failing| &failing.newest);
        let named = newest().find(|failure| failure.code.is_some());
        named.or_else(|| newest().next())
    }

    /// Returns the failure of the newest failed write, unless a write has succeeded since.
    pub fn failed_write(&self) -> Option<&Failure> {
        self.writes.as_ref().map(|failing| &failing.newest)
    }

    /// Returns the instant at which reads or writes will have failed for `patience`; `None` while
    /// both succeed.
    pub fn unreachable_until(&self, patience: Duration) -> Option<BootTime> {
        let since = self.failing().map(|failing| failing.since).min();
        since.map(|since| since + patience)
    }

    /// True if this contender lacks the lock because of other contenders, not because of MongoDB.
    /// Once calls have failed for `renew_deadline`, the known holders no longer count, because
    /// their calls may have failed as well.
    pub(super) fn is_kept_by_others(
        &self,
        status: &LockStatus,
        now: BootTime,
        renew_deadline: Duration,
    ) -> bool {
        let outdated = self.unreachable_until(renew_deadline);
        let known = outdated.is_none_or(|outdated| now < outdated);
        known && (waits_for_others(status) || self.queue_full)
    }

    /// Returns the failure to report during the wait after a rollback.
    pub(super) fn doubt(&self, now: BootTime) -> Option<Failure> {
        let left = self.doubt_until?.since(now);
        let kind = "lock document is older than last seen (restored or rolled back)";
        let detail = format!("unlisted holders may exist for another {}", short(left));
        (!left.is_zero()).then(|| Failure::new(kind, detail))
    }

    fn failing(&self) -> impl Iterator<Item = &ConsecutiveFailures> {
        self.writes.iter().chain(&self.reads)
    }
}

/// True if other entries precede this contender's entry, or hold the lock.
pub fn waits_for_others(status: &LockStatus) -> bool {
    matches!(
        status.standing,
        Standing::Waiting { position, holding, .. } if position > 0 || holding > 0
    )
}

#[cfg(test)]
mod tests {
    use leasehold_clock::boot_now;
    use leasehold_core::election::{Claim, Session, Token};

    use super::*;

    fn status(standing: Standing) -> LockStatus {
        LockStatus {
            standing,
            since: BootTime::default(),
            claim: Claim::from_bytes([0; 16]),
            session: Session::from_bytes([0; 16]),
            provisional: false,
            slot: None,
            token_highest: Token::ZERO,
            store_reached: false,
        }
    }

    impl StoreHealth {
        fn now(&mut self, answered: &AnsweredCall) {
            self.answered(answered, boot_now());
        }

        fn notices(&mut self, notice: &LockNotice) {
            self.notice(notice, boot_now());
        }
    }

    fn answered(failure: Option<Failure>) -> AnsweredCall {
        AnsweredCall {
            operation: "join",
            outcome: "failed",
            elapsed: Duration::ZERO,
            failure,
            late: false,
        }
    }

    #[test]
    fn a_refusal_is_final_only_for_a_contender_without_a_place() {
        let mut health = StoreHealth::default();
        let refused =
            Failure::new("authentication failed", "").with_retry(RetryPolicy::Reconfigure);
        health.now(&answered(Some(refused)));
        let waiting = Standing::Waiting {
            position: 0,
            holding: 0,
            ahead: Vec::new(),
        };
        assert!(health.refusal(&status(Standing::Joining)).is_some());
        assert!(health.refusal(&status(waiting)).is_none());
        let away = Failure::new("no primary", "").with_retry(RetryPolicy::WaitForServer);
        health.now(&answered(Some(away)));
        assert!(health.refusal(&status(Standing::Joining)).is_none());
    }

    #[test]
    fn an_outage_is_counted_from_the_first_failure_until_an_answer() {
        let mut health = StoreHealth::default();
        let patience = Duration::from_secs(240);
        assert_eq!(health.unreachable_until(patience), None);
        let away = || {
            answered(Some(
                Failure::new("no primary", "").with_retry(RetryPolicy::WaitForServer),
            ))
        };
        health.now(&away());
        let first = health.unreachable_until(patience);
        health.now(&away());
        assert!(first.is_some());
        assert_eq!(health.unreachable_until(patience), first);
        health.now(&answered(None));
        assert_eq!(health.unreachable_until(patience), None);
    }

    #[test]
    fn reads_that_succeed_do_not_end_an_outage_of_writes() {
        let mut health = StoreHealth::default();
        let patience = Duration::from_secs(240);
        health.now(&answered(Some(Failure::new(
            "MongoDB refused the write",
            "",
        ))));
        let first = health.unreachable_until(patience);
        assert!(first.is_some());
        health.now(&AnsweredCall {
            operation: "read",
            ..answered(None)
        });
        assert_eq!(health.unreachable_until(patience), first);
        assert!(health.failure().is_some());
        health.now(&answered(None));
        assert!(!health.failed());
    }

    #[test]
    fn a_join_that_matches_no_document_does_not_end_an_outage_of_writes() {
        let mut health = StoreHealth::default();
        let patience = Duration::from_secs(240);
        let refused = Failure::new("MongoDB refused the write", "");
        health.now(&answered(Some(refused)));
        let first = health.unreachable_until(patience);
        let rejected = || AnsweredCall {
            outcome: "rejected",
            ..answered(None)
        };
        health.now(&rejected());
        assert_eq!(health.unreachable_until(patience), first);
        // The server, previously unreachable, answers again.
        health.now(&answered(Some(Failure::no_answer(Duration::ZERO))));
        health.now(&rejected());
        assert!(!health.failed());
        // The notice proves that the document was read.
        health.now(&answered(Some(Failure::new(
            "MongoDB refused the write",
            "",
        ))));
        health.notices(&LockNotice::QueueFull);
        assert!(!health.failed());
    }

    #[test]
    fn others_keep_the_lock_unless_calls_fail_for_a_renew_deadline() {
        let mut health = StoreHealth::default();
        let renew_deadline = Duration::from_secs(18);
        let waiting = status(Standing::Waiting {
            position: 0,
            holding: 1,
            ahead: Vec::new(),
        });
        let kept = |health: &StoreHealth, status: &LockStatus, later: u64| {
            let now = boot_now() + Duration::from_secs(later);
            health.is_kept_by_others(status, now, renew_deadline)
        };
        assert!(kept(&health, &waiting, 3600));
        assert!(!kept(&health, &status(Standing::Joining), 0));
        health.notices(&LockNotice::QueueFull);
        assert!(kept(&health, &status(Standing::Joining), 3600));
        health.now(&answered(Some(Failure::new(
            "MongoDB refused the write",
            "",
        ))));
        for status in [waiting, status(Standing::Joining)] {
            assert!(kept(&health, &status, 17), "{status:?}");
            assert!(!kept(&health, &status, 18), "{status:?}");
        }
    }

    #[test]
    fn a_queue_that_is_no_longer_full_does_not_keep_the_lock() {
        let mut health = StoreHealth::default();
        let kept = |health: &StoreHealth| {
            let joining = status(Standing::Joining);
            health.is_kept_by_others(&joining, boot_now(), Duration::from_secs(18))
        };
        health.notices(&LockNotice::QueueFull);
        health.now(&answered(Some(Failure::new("no primary", ""))));
        assert!(kept(&health));
        health.notices(&LockNotice::PlaceLost);
        assert!(!kept(&health));
    }

    #[test]
    fn a_waiter_that_lost_its_place_joins_again_before_it_gives_up() {
        let mut health = StoreHealth::default();
        let refused = Failure::new("authentication failed", "");
        health.now(&answered(Some(
            refused.with_retry(RetryPolicy::Reconfigure),
        )));
        health.now(&AnsweredCall {
            outcome: "rejected",
            ..answered(None)
        });
        assert!(health.refusal(&status(Standing::Joining)).is_some());
        health.notices(&LockNotice::PlaceLost);
        assert_eq!(health.refusal(&status(Standing::Joining)), None);
    }

    #[test]
    fn the_wait_after_a_rollback_is_named_while_it_lasts() {
        let rolled_back = |wait| LockNotice::StoreRolledBack {
            seen: Token::ZERO,
            found: None,
            wait,
        };
        let mut health = StoreHealth::default();
        assert_eq!(health.doubt(boot_now()), None);
        health.notices(&rolled_back(Duration::from_secs(60)));
        let doubt = health.doubt(boot_now()).expect("it lasts");
        assert!(
            doubt.to_string().contains("older than last seen"),
            "{doubt}"
        );
        health.notices(&rolled_back(Duration::ZERO));
        assert_eq!(health.doubt(boot_now()), None);
    }
}
