//! MongoDB's responses while a lock is waited for or held: lines for the log, and the reason to
//! give up.

use std::time::Duration;

use tokio::sync::watch;
use tracing::{info, warn};

use crate::calls::Answered;

use crate::clock;
use crate::election::{BootTime, Identity, LeaseName};
use crate::lock::{Standing, Status};
use crate::log::{ErrorThrottle, millis, shown};
use crate::store::{Failure, RetryPolicy};

/// Current state of the store.
#[derive(Debug, Clone, Default)]
pub(super) struct StoreState {
    /// The failing reads; `None` while they succeed.
    reads: Option<Failing>,
    /// The failing writes. Reads that succeed do not end them: a server that refuses writes, or does
    /// not acknowledge them, may answer reads.
    writes: Option<Failing>,
    /// True if the queue is full.
    pub(super) queue_full: bool,
    /// Time until which a document that is older than before keeps this contender waiting.
    doubt_until: Option<BootTime>,
    /// True if the command has reported why it gives up, so that later failures are not logged.
    given_up: bool,
}

/// Consecutive failures of one kind of call.
#[derive(Debug, Clone)]
struct Failing {
    /// Reason of the newest.
    failure: Failure,
    /// Time of the first.
    since: BootTime,
}

impl StoreState {
    /// Returns the failure if waiting is useless because MongoDB rejects the calls until an
    /// operator changes something. A waiter that is already in the queue continues, because it may
    /// have been admitted with credentials that are being replaced.
    pub(super) fn refusal(&self, status: &Status) -> Option<&Failure> {
        let joining = matches!(status.standing, Standing::Joining);
        let lasts = |failing: &&Failing| failing.failure.retry == RetryPolicy::Reconfigure;
        let lasting = self.failing().find(lasts).filter(|_| joining);
        lasting.map(|failing| &failing.failure)
    }

    /// Returns true if calls of one kind fail.
    pub(super) fn failed(&self) -> bool {
        self.failing().next().is_some()
    }

    /// Returns the reason why calls fail, for humans: one that a server has named, if there is any.
    pub(super) fn failure(&self) -> Option<String> {
        let named = self
            .failing()
            .find(|failing| failing.failure.code.is_some());
        let failing = named.or_else(|| self.failing().next());
        failing.map(|failing| failing.failure.to_string())
    }

    /// Returns when calls of one kind will have failed for `patience`; `None` while both succeed.
    pub(super) fn unreachable_until(&self, patience: Duration) -> Option<BootTime> {
        let since = self.failing().map(|failing| failing.since).min();
        since.map(|since| since + patience)
    }

    /// Describes the wait for holders that an older document does not show.
    pub(super) fn doubt(&self) -> Option<String> {
        let left = self.doubt_until?.since(clock::boot_now());
        let left = (!left.is_zero()).then(|| seconds(left))?;
        Some(format!(
            "lock document is older than before (restored or rolled back); holders that it does \
             not show may exist for another {left}"
        ))
    }

    /// Suppresses log lines about failures from now on.
    pub(super) fn give_up(&mut self) {
        self.given_up = true;
    }

    fn failing(&self) -> impl Iterator<Item = &Failing> {
        self.writes.iter().chain(&self.reads)
    }
}

/// Tracks the responses.
pub(super) struct StoreAnswers {
    lock: LeaseName,
    identity: Identity,
    retry_interval: Duration,
    reads: ErrorThrottle,
    writes: ErrorThrottle,
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
            reads: ErrorThrottle::default(),
            writes: ErrorThrottle::default(),
            state,
        }
    }

    /// Records a response. The first failure is logged, and later ones at growing intervals.
    pub(super) fn answered(&mut self, answered: &Answered) {
        let Answered {
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
        // A write that matches no document shows no more than a read.
        let proves_nothing = |failing: &Failing| {
            answered.is_rejected() && failing.failure.retry != RetryPolicy::WaitForServer
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
            None if self
                .state
                .borrow()
                .writes
                .as_ref()
                .is_some_and(proves_nothing) => {}
            None => {
                if let Some((since, failures)) = errors.over() {
                    let after_ms = millis(now.since(since));
                    info!(%lock, %identity, operation, after_ms, failures, "MongoDB answers again");
                }
            }
        }
        self.state.send_modify(|state| {
            if failure.is_none() && !reads {
                // A server that acknowledges a write answers reads too.
                state.reads = None;
            }
            if state.writes.as_ref().is_some_and(proves_nothing) {
                return;
            }
            let failing = match reads {
                true => &mut state.reads,
                false => &mut state.writes,
            };
            let since = failing.as_ref().map_or(now, |failing| failing.since);
            let failure = failure.clone();
            *failing = failure.map(|failure| Failing { failure, since });
        });
    }

    /// Returns the failure of the newest write, unless a write has succeeded since.
    pub(super) fn failed_write(&self) -> Option<Failure> {
        let state = self.state.borrow();
        state.writes.as_ref().map(|failing| failing.failure.clone())
    }

    /// Records if the queue is full, which a document shows that was read just now.
    pub(super) fn queue_full(&self, full: bool) {
        self.state.send_modify(|state| {
            state.queue_full = full;
            state.writes = state.writes.take().filter(|_| !full);
        });
    }

    /// Records that the document is older than before, so that the contender waits.
    pub(super) fn rolled_back(&self, wait: Duration) {
        let until = clock::boot_now() + wait;
        self.state
            .send_modify(|state| state.doubt_until = Some(until));
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
    use crate::election::{Claim, Session, Token};

    fn status(standing: Standing) -> Status {
        Status {
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
        assert!(state.borrow().refusal(&status(Standing::Joining)).is_some());
        assert!(state.borrow().refusal(&status(waiting)).is_none());
        let away = Failure::new("no primary", "").with_retry(RetryPolicy::WaitForServer);
        answers.answered(&answered(Some(away)));
        assert!(state.borrow().refusal(&status(Standing::Joining)).is_none());
    }

    #[test]
    fn an_outage_is_counted_from_the_first_failure_until_an_answer() {
        let (mut answers, state) = answers();
        let patience = Duration::from_secs(240);
        assert_eq!(state.borrow().unreachable_until(patience), None);
        let away = || {
            answered(Some(
                Failure::new("no primary", "").with_retry(RetryPolicy::WaitForServer),
            ))
        };
        answers.answered(&away());
        let first = state.borrow().unreachable_until(patience);
        answers.answered(&away());
        assert!(first.is_some());
        assert_eq!(state.borrow().unreachable_until(patience), first);
        answers.answered(&answered(None));
        assert_eq!(state.borrow().unreachable_until(patience), None);
    }

    #[test]
    fn reads_that_succeed_do_not_end_an_outage_of_writes() {
        let (mut answers, state) = answers();
        let patience = Duration::from_secs(240);
        answers.answered(&answered(Some(Failure::new(
            "MongoDB refused the write",
            "",
        ))));
        let first = state.borrow().unreachable_until(patience);
        assert!(first.is_some());
        answers.answered(&Answered {
            operation: "read",
            ..answered(None)
        });
        assert_eq!(state.borrow().unreachable_until(patience), first);
        assert!(state.borrow().failure().is_some());
        answers.answered(&answered(None));
        assert!(!state.borrow().failed());
    }

    #[test]
    fn a_join_that_matches_no_document_does_not_end_an_outage_of_writes() {
        let (mut answers, state) = answers();
        let patience = Duration::from_secs(240);
        let refused = Failure::new("MongoDB refused the write", "");
        answers.answered(&answered(Some(refused)));
        let first = state.borrow().unreachable_until(patience);
        let rejected = || Answered {
            outcome: "rejected",
            ..answered(None)
        };
        answers.answered(&rejected());
        assert_eq!(state.borrow().unreachable_until(patience), first);
        // A server that could not be reached is reached now.
        answers.answered(&answered(Some(Failure::no_answer(Duration::ZERO))));
        answers.answered(&rejected());
        assert!(!state.borrow().failed());
        // A full queue was read from the document.
        answers.answered(&answered(Some(Failure::new(
            "MongoDB refused the write",
            "",
        ))));
        answers.queue_full(true);
        assert!(!state.borrow().failed());
    }

    #[test]
    fn the_wait_after_a_rollback_is_named_while_it_lasts() {
        let (answers, state) = answers();
        assert_eq!(state.borrow().doubt(), None);
        answers.rolled_back(Duration::from_secs(60));
        let doubt = state.borrow().doubt();
        assert!(doubt.is_some_and(|doubt| doubt.contains("older than before")));
        answers.rolled_back(Duration::ZERO);
        assert_eq!(state.borrow().doubt(), None);
    }

    #[test]
    fn durations_are_short() {
        assert_eq!(seconds(Duration::from_millis(1_234)), "1.2s");
        assert_eq!(seconds(Duration::from_millis(75_900)), "1m 15s");
    }
}
