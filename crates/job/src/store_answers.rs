//! MongoDB's responses during a wait or a hold: lines for the log, and the reason to give up.

use std::time::Duration;

use tokio::sync::watch;
use tracing::{info, warn};

use leasehold_mongodb::calls::AnsweredCall;

use leasehold_clock as clock;
use leasehold_core::election::{Identity, ResourceName};
use leasehold_core::lock::LockNotice;
use leasehold_host::log::{ErrorThrottle, millis, shown};
use leasehold_mongodb::locker::StoreHealth;
use leasehold_mongodb::store::{Failure, RetryPolicy};

/// Current state of the store.
#[derive(Debug, Clone, Default)]
pub(super) struct StoreState {
    pub(super) health: StoreHealth,
    /// True if the command has reported why it gives up, so that later failures are not logged.
    given_up: bool,
}

impl StoreState {
    /// Describes the wait for holders that an older document does not show.
    pub(super) fn doubt(&self) -> Option<String> {
        let left = seconds(self.health.doubt(clock::boot_now())?);
        Some(format!(
            "lock document is older than before (restored or rolled back); holders that it does \
             not show may exist for another {left}"
        ))
    }

    /// Suppresses log lines about failures from now on.
    pub(super) fn give_up(&mut self) {
        self.given_up = true;
    }
}

/// Tracks the responses.
pub(super) struct StoreAnswers {
    lock: ResourceName,
    identity: Identity,
    retry_interval: Duration,
    reads: ErrorThrottle,
    writes: ErrorThrottle,
    state: watch::Sender<StoreState>,
}

impl StoreAnswers {
    pub(super) fn new(
        lock: ResourceName,
        identity: Identity,
        retry_interval: Duration,
        state: watch::Sender<StoreState>,
    ) -> Self {
        Self {
            lock,
            identity,
            retry_interval,
            reads: ErrorThrottle::default(),
            writes: ErrorThrottle::default(),
            state,
        }
    }

    /// Records a response. The first failure is logged, and later ones at growing intervals.
    pub(super) fn answered(&mut self, answered: &AnsweredCall) {
        let AnsweredCall {
            operation,
            outcome,
            failure,
            late,
            ..
        } = answered;
        if *late || self.state.borrow().given_up {
            return;
        }
        let now = clock::boot_now();
        let (lock, identity) = (&self.lock, &self.identity);
        let reads = *operation == "read";
        let errors = match reads {
            true => &mut self.reads,
            false => &mut self.writes,
        };
        match failure {
            Some(failure) => {
                if errors.failed_with(failure.kind, failure.code, now) {
                    let (failing_for, failures) = errors.so_far(now);
                    // A refusal is final for a contender without a place.
                    let retry = match (*operation, failure.retry) {
                        ("try" | "join" | "create" | "read", RetryPolicy::Reconfigure) => {
                            String::new()
                        }
                        _ => format!(", retrying in {}", shown(self.retry_interval)),
                    };
                    let what = match *operation {
                        "try" => "join",
                        "sweep" => "eviction",
                        other => other,
                    };
                    warn!(
                        %lock, %identity, operation, outcome, why = %failure, failures,
                        failing_for_ms = millis(failing_for),
                        "MongoDB {what} failed (attempt {failures}){retry}"
                    );
                }
            }
            None if self.state.borrow().health.is_unchanged_by(answered) => {}
            None => {
                if let Some((since, failures)) = errors.over() {
                    let after_ms = millis(now.since(since));
                    info!(%lock, %identity, operation, after_ms, failures, "MongoDB answers again");
                }
            }
        }
        self.state
            .send_modify(|state| state.health.answered(answered, now));
    }

    /// Returns the failure of the newest write, unless a write has succeeded since.
    pub(super) fn failed_write(&self) -> Option<Failure> {
        self.state.borrow().health.failed_write().cloned()
    }

    /// Records a notice of the contender.
    pub(super) fn notice(&self, notice: &LockNotice) {
        let now = clock::boot_now();
        self.state
            .send_modify(|state| state.health.notice(notice, now));
    }
}

/// Formats a duration for humans: with tenths up to ten seconds, in whole seconds above.
pub(super) fn seconds(duration: Duration) -> String {
    match duration.as_secs() {
        0..10 => format!("{:.1}s", duration.as_secs_f64()),
        whole => humantime::format_duration(Duration::from_secs(whole)).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::election::{BootTime, Claim, Session, Token};
    use leasehold_core::lock::{LockStatus, Standing};

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

    fn answers() -> (StoreAnswers, watch::Receiver<StoreState>) {
        let (sender, receiver) = watch::channel(StoreState::default());
        let name = ResourceName::new("x").expect("legal");
        let identity = Identity::new("me").expect("legal");
        let answers = StoreAnswers::new(name, identity, Duration::from_secs(1), sender);
        (answers, receiver)
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
        let (mut answers, state) = answers();
        let refused =
            Failure::new("authentication failed", "").with_retry(RetryPolicy::Reconfigure);
        answers.answered(&answered(Some(refused)));
        let waiting = Standing::Waiting {
            position: 0,
            holding: 0,
            ahead: Vec::new(),
        };
        assert!(
            state
                .borrow()
                .health
                .refusal(&status(Standing::Joining))
                .is_some()
        );
        assert!(state.borrow().health.refusal(&status(waiting)).is_none());
        let away = Failure::new("no primary", "").with_retry(RetryPolicy::WaitForServer);
        answers.answered(&answered(Some(away)));
        assert!(
            state
                .borrow()
                .health
                .refusal(&status(Standing::Joining))
                .is_none()
        );
    }

    #[test]
    fn an_outage_is_counted_from_the_first_failure_until_an_answer() {
        let (mut answers, state) = answers();
        let patience = Duration::from_secs(240);
        assert_eq!(state.borrow().health.unreachable_until(patience), None);
        let away = || {
            answered(Some(
                Failure::new("no primary", "").with_retry(RetryPolicy::WaitForServer),
            ))
        };
        answers.answered(&away());
        let first = state.borrow().health.unreachable_until(patience);
        answers.answered(&away());
        assert!(first.is_some());
        assert_eq!(state.borrow().health.unreachable_until(patience), first);
        answers.answered(&answered(None));
        assert_eq!(state.borrow().health.unreachable_until(patience), None);
    }

    #[test]
    fn reads_that_succeed_do_not_end_an_outage_of_writes() {
        let (mut answers, state) = answers();
        let patience = Duration::from_secs(240);
        answers.answered(&answered(Some(Failure::new(
            "MongoDB refused the write",
            "",
        ))));
        let first = state.borrow().health.unreachable_until(patience);
        assert!(first.is_some());
        answers.answered(&AnsweredCall {
            operation: "read",
            ..answered(None)
        });
        assert_eq!(state.borrow().health.unreachable_until(patience), first);
        assert!(state.borrow().health.failure().is_some());
        answers.answered(&answered(None));
        assert!(!state.borrow().health.failed());
    }

    #[test]
    fn a_join_that_matches_no_document_does_not_end_an_outage_of_writes() {
        let (mut answers, state) = answers();
        let patience = Duration::from_secs(240);
        let refused = Failure::new("MongoDB refused the write", "");
        answers.answered(&answered(Some(refused)));
        let first = state.borrow().health.unreachable_until(patience);
        let rejected = || AnsweredCall {
            outcome: "rejected",
            ..answered(None)
        };
        answers.answered(&rejected());
        assert_eq!(state.borrow().health.unreachable_until(patience), first);
        // A server that could not be reached is reached now.
        answers.answered(&answered(Some(Failure::no_answer(Duration::ZERO))));
        answers.answered(&rejected());
        assert!(!state.borrow().health.failed());
        // A full queue was read from the document.
        answers.answered(&answered(Some(Failure::new(
            "MongoDB refused the write",
            "",
        ))));
        answers.notice(&LockNotice::QueueFull);
        assert!(!state.borrow().health.failed());
    }

    #[test]
    fn others_keep_the_lock_unless_calls_fail_for_a_renew_deadline() {
        let (mut answers, state) = answers();
        let renew_deadline = Duration::from_secs(18);
        let waiting = status(Standing::Waiting {
            position: 0,
            holding: 1,
            ahead: Vec::new(),
        });
        let kept = |status: &LockStatus, later: u64| {
            let now = clock::boot_now() + Duration::from_secs(later);
            let state = state.borrow();
            state.health.is_kept_by_others(status, now, renew_deadline)
        };
        assert!(kept(&waiting, 3600));
        assert!(!kept(&status(Standing::Joining), 0));
        answers.notice(&LockNotice::QueueFull);
        assert!(kept(&status(Standing::Joining), 3600));
        answers.answered(&answered(Some(Failure::new(
            "MongoDB refused the write",
            "",
        ))));
        for status in [waiting, status(Standing::Joining)] {
            assert!(kept(&status, 17), "{status:?}");
            assert!(!kept(&status, 18), "{status:?}");
        }
    }

    #[test]
    fn a_queue_that_is_no_longer_full_does_not_keep_the_lock() {
        let (mut answers, state) = answers();
        let kept = || {
            let (state, joining) = (state.borrow(), status(Standing::Joining));
            let renew_deadline = Duration::from_secs(18);
            (state.health).is_kept_by_others(&joining, clock::boot_now(), renew_deadline)
        };
        answers.notice(&LockNotice::QueueFull);
        answers.answered(&answered(Some(Failure::new("no primary", ""))));
        assert!(kept());
        answers.notice(&LockNotice::PlaceLost);
        assert!(!kept());
    }

    #[test]
    fn the_wait_after_a_rollback_is_named_while_it_lasts() {
        let rolled_back = |wait| LockNotice::StoreRolledBack {
            seen: Token::ZERO,
            found: None,
            wait,
        };
        let (answers, state) = answers();
        assert_eq!(state.borrow().doubt(), None);
        answers.notice(&rolled_back(Duration::from_secs(60)));
        let doubt = state.borrow().doubt();
        assert!(doubt.is_some_and(|doubt| doubt.contains("older than before")));
        answers.notice(&rolled_back(Duration::ZERO));
        assert_eq!(state.borrow().doubt(), None);
    }

    #[test]
    fn durations_are_short() {
        assert_eq!(seconds(Duration::from_millis(1_234)), "1.2s");
        assert_eq!(seconds(Duration::from_millis(75_900)), "1m 15s");
    }
}
