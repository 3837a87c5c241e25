//! Makes store calls. The number of calls is bounded. A call that times out is not dropped: its
//! outcome first counts as unknown, and the true outcome is reported later.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::store::{Answer, Failure, RetryPolicy, UNANSWERED};
use leasehold_clock::duration::shown;
use leasehold_core::election::{CallId, Outcome};

/// Maximum number of calls in the driver, including calls that timed out. Further calls fail
/// without being sent. At the defaults, about fifteen calls are in flight after a connection has
/// hung for a minute.
pub(crate) const CALLS_MAX: usize = 16;

/// A store call and its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnsweredCall {
    /// The operation's name.
    pub operation: &'static str,
    /// The outcome's name.
    pub outcome: &'static str,
    /// Time from passing the call to the driver until its answer or timeout.
    pub elapsed: Duration,
    /// Reason for the failure, if any.
    pub failure: Option<Failure>,
    /// True if the call's outcome was previously reported as unknown.
    pub late: bool,
}

impl AnsweredCall {
    /// True if the server answered that the write matched no document.
    pub fn is_rejected(&self) -> bool {
        self.failure.is_none() && self.outcome == "rejected"
    }
}

pub(crate) struct CallReply<F> {
    pub(crate) call: CallId,
    pub(crate) outcome: Outcome<F>,
    /// Details for humans; `None` if the driver panicked.
    pub(crate) answered: Option<AnsweredCall>,
}

pub(crate) struct InFlight<F> {
    timeout: Duration,
    /// Bounds the queue of replies, because a call keeps its permit until its last reply is taken.
    places: Arc<Semaphore>,
    sender: mpsc::UnboundedSender<(CallReply<F>, Option<OwnedSemaphorePermit>)>,
    replies: mpsc::UnboundedReceiver<(CallReply<F>, Option<OwnedSemaphorePermit>)>,
}

impl<F: Send + 'static> InFlight<F> {
    pub(crate) fn new(timeout: Duration) -> Self {
        let (sender, replies) = mpsc::unbounded_channel();
        Self {
            timeout,
            places: Arc::new(Semaphore::new(CALLS_MAX)),
            sender,
            replies,
        }
    }

    /// Must be called inside a tokio runtime.
    pub(crate) fn perform(
        &mut self,
        call: CallId,
        name: &'static str,
        server: Option<String>,
        operation: impl Future<Output = Answer<F>> + Send + 'static,
    ) {
        let reply = move |answer: Answer<F>, elapsed, late| CallReply {
            call,
            answered: Some(AnsweredCall {
                operation: name,
                outcome: name_of(&answer.outcome),
                elapsed,
                failure: answer.failure,
                late,
            }),
            outcome: answer.outcome,
        };
        let failed = |outcome, failure: Failure| {
            Answer::failed(outcome, failure.with_retry(RetryPolicy::WaitForServer))
        };
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            let failure = Failure::new(
                "too many calls hang in the driver",
                "none has been answered",
            );
            let reply = reply(failed(Outcome::Failed, failure), Duration::ZERO, false);
            // Cannot fail, because `self` owns a receiver.
            let _ = self.sender.send((reply, None));
            return;
        };
        let (timeout, sender) = (self.timeout, self.sender.clone());
        let started = leasehold_clock::boot_now();
        let mut answer = tokio::spawn(operation);
        tokio::spawn(async move {
            let elapsed = || leasehold_clock::boot_now().since(started);
            let (answer, late) = match tokio::time::timeout(timeout, &mut answer).await {
                Ok(answer) => (answer, false),
                Err(_) => {
                    let from = server.map(|server| format!(" from {server}"));
                    let after = format!("({})", shown(timeout));
                    let failure = Failure::new("no answer within operation_timeout", UNANSWERED)
                        .of(after + &from.unwrap_or_default());
                    let unknown = reply(failed(Outcome::Unknown, failure), elapsed(), false);
                    // Fails only after the loop has ended.
                    let _ = sender.send((unknown, None));
                    (answer.await, true)
                }
            };
            let last = match answer {
                Ok(answer) => reply(answer, elapsed(), late),
                Err(_) => CallReply {
                    call,
                    outcome: Outcome::Unknown,
                    answered: None,
                },
            };
            let _ = sender.send((last, Some(place)));
        });
    }

    pub(crate) fn in_flight(&self) -> usize {
        CALLS_MAX - self.places.available_permits()
    }

    /// Waits for the next reply, indefinitely if no call is in flight. Cancel safe.
    pub(crate) async fn next(&mut self) -> CallReply<F> {
        match self.replies.recv().await {
            Some((reply, _place)) => reply,
            // Unreachable, because `self` owns a sender.
            None => std::future::pending().await,
        }
    }
}

fn name_of<F>(outcome: &Outcome<F>) -> &'static str {
    match outcome {
        Outcome::Applied(_) => "applied",
        Outcome::PrimaryOnly => "primary_only",
        Outcome::Rejected => "rejected",
        Outcome::Failed => "failed",
        Outcome::Unknown => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;

    use tokio::sync::oneshot;

    use super::*;
    use leasehold_core::lock::{FoundLock, LockOutcome};

    const TIMEOUT: Duration = Duration::from_millis(20);

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(test);
    }

    #[test]
    fn i7_a_call_that_outlasts_the_time_out_is_unknown_and_its_outcome_comes_late() {
        run(async {
            let mut calls = InFlight::new(TIMEOUT);
            let (send, receive) = oneshot::channel();
            let server = Some("a:1".to_owned());
            let answer_later = async { receive.await.expect("an answer") };
            calls.perform(CallId(1), "join", server, answer_later);
            let unknown = calls.next().await;
            assert_eq!(unknown.outcome, LockOutcome::Unknown);
            let answered = unknown.answered.expect("no panic");
            assert!(!answered.late);
            assert_eq!(
                answered.failure.expect("a reason").to_string(),
                format!(
                    "no answer within operation_timeout ({}) from a:1: {UNANSWERED}",
                    shown(TIMEOUT)
                )
            );
            let applied = LockOutcome::Applied(FoundLock::Missing);
            send.send(Answer::of(applied.clone()))
                .expect("the call was not dropped");
            assert_eq!(calls.in_flight(), 1, "the call keeps running");
            let late = calls.next().await;
            assert_eq!((late.call, late.outcome), (CallId(1), applied));
            assert!(late.answered.expect("no panic").late);
            assert_eq!(calls.in_flight(), 0);
        });
    }

    #[test]
    fn a_call_beyond_the_bound_fails_unsent() {
        run(async {
            let mut calls = InFlight::<FoundLock>::new(TIMEOUT);
            for id in 0..CALLS_MAX as u64 {
                calls.perform(CallId(id), "read", None, std::future::pending());
            }
            let beyond = CallId(CALLS_MAX as u64);
            let sent = async { panic!("it was sent") };
            calls.perform(beyond, "leave", None, sent);
            let refused = calls.next().await;
            assert_eq!(refused.call, beyond);
            assert_eq!(refused.outcome, LockOutcome::Failed);
        });
    }

    #[test]
    fn a_panic_of_the_driver_leaves_the_outcome_unknown() {
        run(async {
            let mut calls = InFlight::<FoundLock>::new(Duration::from_secs(60));
            let panics = async { panic!("planted") };
            calls.perform(CallId(7), "renew", None, panics);
            let reply = calls.next().await;
            assert_eq!(
                (reply.call, reply.outcome),
                (CallId(7), LockOutcome::Unknown)
            );
            assert_eq!(reply.answered, None);
        });
    }
}
