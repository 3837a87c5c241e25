//! What the store answers while a lock is waited for or held: lines for the
//! log, and the reason to give up.

use std::time::Duration;

use tokio::sync::watch;
use tracing::{info, warn};

use crate::calls::Answered;

use crate::clock;
use crate::election::{BootTime, Identity, LeaseName};
use crate::lock::{Standing, Status};
use crate::log::{ErrorThrottle, shown};
use crate::store::{Failure, Remedy};

/// What is known of the store at this moment.
#[derive(Debug, Clone, Default)]
pub(super) struct StoreState {
    /// Why the newest call failed; `None` while the store answers.
    failure: Option<Failure>,
    /// Since when no call was answered.
    since: Option<BootTime>,
    /// As many wait as there may.
    pub(super) queue_full: bool,
}

impl StoreState {
    /// Why waiting is of no use: the store refuses, and will until somebody
    /// changes that. Who has a place in the queue may have been let in by
    /// credentials that are being replaced, and goes on.
    pub(super) fn refusal(&self, status: &Status) -> Option<&Failure> {
        let joining = matches!(status.standing, Standing::Joining);
        self.failure
            .as_ref()
            .filter(|failure| joining && failure.remedy == Remedy::Change)
    }

    /// Whether the newest call failed.
    pub(super) fn failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Why the newest call failed, for people.
    pub(super) fn failure(&self) -> Option<String> {
        self.failure.as_ref().map(ToString::to_string)
    }

    /// When it will not have answered for `patience`; `None` while it answers.
    pub(super) fn silent_until(&self, patience: Duration) -> Option<BootTime> {
        self.since.map(|since| since + patience)
    }
}

/// Follows the answers.
pub(super) struct StoreAnswers {
    lock: LeaseName,
    identity: Identity,
    retry_interval: Duration,
    trouble: ErrorThrottle,
    state: watch::Sender<StoreState>,
}

impl StoreAnswers {
    pub(super) fn new(
        lock: LeaseName,
        identity: Identity,
        retry_interval: Duration,
        state: watch::Sender<StoreState>,
    ) -> Self {
        Self {
            lock,
            identity,
            retry_interval,
            trouble: ErrorThrottle::default(),
            state,
        }
    }

    /// Takes an answer. A failure is a line at first and then at growing intervals.
    pub(super) fn answered(&mut self, answered: &Answered) {
        let Answered {
            operation,
            outcome,
            failure,
            late,
            ..
        } = answered;
        if *late {
            return;
        }
        let now = clock::boot_now();
        let (lock, identity) = (&self.lock, &self.identity);
        match failure {
            Some(failure) => {
                if self.trouble.failed(failure.kind, now) {
                    let (failing_for, failures) = self.trouble.so_far(now);
                    let retry = shown(self.retry_interval);
                    warn!(
                        %lock, %identity, operation, outcome, why = %failure, failures,
                        failing_for = seconds(failing_for),
                        "MongoDB {operation} failed (attempt {failures}), retrying in {retry}"
                    );
                }
            }
            None => {
                if let Some((since, failures)) = self.trouble.over() {
                    let after = seconds(now.since(since));
                    info!(%lock, %identity, operation, after, failures, "MongoDB answers again");
                }
            }
        }
        self.state.send_modify(|state| {
            state.since = failure.as_ref().map(|_| state.since.unwrap_or(now));
            state.failure.clone_from(failure);
        });
    }

    /// As many wait as there may, or no more.
    pub(super) fn queue_full(&self, full: bool) {
        self.state.send_modify(|state| state.queue_full = full);
    }
}

/// A duration as people read it: tenths of seconds up to ten, whole ones above.
pub(super) fn seconds(duration: Duration) -> String {
    match duration.as_secs() {
        0..10 => format!("{:.1}s", duration.as_secs_f64()),
        whole => humantime::format_duration(Duration::from_secs(whole)).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::election::{Claim, Session, Token};

    fn status(standing: Standing) -> Status {
        Status {
            standing,
            since: BootTime::default(),
            claim: Claim::from_bytes([0; 16]),
            session: Session::from_bytes([0; 16]),
            token_highest: Token::ZERO,
            store_reached: false,
        }
    }

    fn answers() -> (StoreAnswers, watch::Receiver<StoreState>) {
        let (sender, receiver) = watch::channel(StoreState::default());
        let name = LeaseName::new("x").expect("legal");
        let identity = Identity::new("me").expect("legal");
        let answers = StoreAnswers::new(name, identity, Duration::from_secs(1), sender);
        (answers, receiver)
    }

    fn answered(failure: Option<Failure>) -> Answered {
        Answered {
            operation: "join",
            outcome: "failed",
            elapsed: Duration::ZERO,
            failure,
            late: false,
        }
    }

    #[test]
    fn a_refusal_is_final_for_who_has_no_place_and_for_nobody_else() {
        let (mut answers, state) = answers();
        let refused = Failure::new("authentication failed", "").until(Remedy::Change);
        answers.answered(&answered(Some(refused)));
        let waiting = Standing::Waiting {
            position: 0,
            holding: 0,
            ahead: Vec::new(),
        };
        assert!(state.borrow().refusal(&status(Standing::Joining)).is_some());
        assert!(state.borrow().refusal(&status(waiting)).is_none());
        let away = Failure::new("no primary", "").until(Remedy::Reach);
        answers.answered(&answered(Some(away)));
        assert!(state.borrow().refusal(&status(Standing::Joining)).is_none());
    }

    #[test]
    fn silence_is_counted_from_the_first_failure_until_an_answer() {
        let (mut answers, state) = answers();
        let patience = Duration::from_secs(240);
        assert_eq!(state.borrow().silent_until(patience), None);
        let away = || answered(Some(Failure::new("no primary", "").until(Remedy::Reach)));
        answers.answered(&away());
        let first = state.borrow().silent_until(patience);
        answers.answered(&away());
        assert!(first.is_some());
        assert_eq!(state.borrow().silent_until(patience), first);
        answers.answered(&answered(None));
        assert_eq!(state.borrow().silent_until(patience), None);
    }

    #[test]
    fn durations_are_short() {
        assert_eq!(seconds(Duration::from_millis(1_234)), "1.2s");
        assert_eq!(seconds(Duration::from_millis(75_900)), "1m 15s");
    }
}
