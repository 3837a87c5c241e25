//! Store calls: bounded in number, awaited up to a timeout, never dropped.
//!
//! After the timeout a call is reported as unknown and continues; its true outcome is reported when
//! it arrives.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::store::{Answer, CallOutcome, Failure, RetryPolicy, Store, UNANSWERED};
use leasehold_clock::duration::shown;
use leasehold_core::election::CallId;

/// Maximum number of calls in the driver, including calls already reported as unknown. A connection
/// that hangs for a minute holds fifteen calls at the defaults. Further calls are refused unsent.
pub(crate) const CALLS_MAX: usize = 16;

/// A store call and its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnsweredCall {
    /// The operation's name.
    pub operation: &'static str,
    /// The outcome's name.
    pub outcome: &'static str,
    /// Time from handing the call to the driver until the answer.
    pub elapsed: Duration,
    /// Reason for the failure, if any.
    pub failure: Option<Failure>,
    /// True if the call was reported as unknown before.
    pub late: bool,
}

impl AnsweredCall {
    /// Returns true if the server answered a write that matched no document.
    pub fn is_rejected(&self) -> bool {
        self.failure.is_none() && self.outcome == "rejected"
    }
}

/// A call that was answered or has timed out.
pub(crate) struct CallReply<O> {
    pub(crate) call: CallId,
    pub(crate) outcome: O,
    /// Details for humans; `None` if the driver panicked.
    pub(crate) answered: Option<AnsweredCall>,
}

pub(crate) struct InFlight<O> {
    timeout: Duration,
    /// A call keeps its permit until the loop has taken its last reply. This bounds the queue of
    /// replies to two for each permit, and one for each call that a turn refused.
    places: Arc<Semaphore>,
    sender: mpsc::UnboundedSender<(CallReply<O>, Option<OwnedSemaphorePermit>)>,
    replies: mpsc::UnboundedReceiver<(CallReply<O>, Option<OwnedSemaphorePermit>)>,
}

impl<O: CallOutcome> InFlight<O> {
    pub(crate) fn new(timeout: Duration) -> Self {
        let (sender, replies) = mpsc::unbounded_channel();
        Self {
            timeout,
            places: Arc::new(Semaphore::new(CALLS_MAX)),
            sender,
            replies,
        }
    }

    /// Hands an operation to the driver. Must be called inside a tokio runtime.
    pub(crate) fn perform<P: Send + 'static>(
        &mut self,
        call: CallId,
        name: &'static str,
        store: impl Store<P, O>,
        operation: P,
    ) {
        let reply = move |answer: Answer<O>, elapsed, late| CallReply {
            call,
            answered: Some(AnsweredCall {
                operation: name,
                outcome: answer.outcome.as_str(),
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
                "none of them was ever answered",
            );
            let reply = reply(failed(O::FAILED, failure), Duration::ZERO, false);
            // `self` has a receiver.
            let _ = self.sender.send((reply, None));
            return;
        };
        let (timeout, sender, server) = (self.timeout, self.sender.clone(), store.server());
        let started = leasehold_clock::boot_now();
        let mut answer = tokio::spawn(async move { store.perform(operation).await });
        tokio::spawn(async move {
            let elapsed = || leasehold_clock::boot_now().since(started);
            let (answer, late) = match tokio::time::timeout(timeout, &mut answer).await {
                Ok(answer) => (answer, false),
                Err(_) => {
                    let from = server.map(|server| format!(" from {server}"));
                    let after = format!("({})", shown(timeout));
                    let failure = Failure::new("no answer within operation_timeout", UNANSWERED)
                        .of(after + &from.unwrap_or_default());
                    let unknown = reply(failed(O::UNKNOWN, failure), elapsed(), false);
                    // Fails only after the loop has ended.
                    let _ = sender.send((unknown, None));
                    (answer.await, true)
                }
            };
            let last = match answer {
                Ok(answer) => reply(answer, elapsed(), late),
                // The driver panicked.
                Err(_) => CallReply {
                    call,
                    outcome: O::UNKNOWN,
                    answered: None,
                },
            };
            let _ = sender.send((last, Some(place)));
        });
    }

    pub(crate) fn in_flight(&self) -> usize {
        CALLS_MAX - self.places.available_permits()
    }

    /// Waits for the next reply; indefinitely if no call is in flight. Cancel-safe.
    pub(crate) async fn next(&mut self) -> CallReply<O> {
        match self.replies.recv().await {
            Some((reply, _place)) => reply,
            // `self` has a sender.
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;

    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;
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

    /// A store whose operations are the futures of their answers.
    struct Prepared(Option<String>);

    type PreparedAnswer = BoxFuture<'static, Answer<LockOutcome>>;

    impl Store<PreparedAnswer, LockOutcome> for Prepared {
        async fn perform(&self, answer: PreparedAnswer) -> Answer<LockOutcome> {
            answer.await
        }

        fn server(&self) -> Option<String> {
            self.0.clone()
        }
    }

    fn answer(outcome: LockOutcome) -> Answer<LockOutcome> {
        Answer {
            outcome,
            failure: None,
        }
    }

    #[test]
    fn i7_a_call_that_outlasts_the_time_out_is_unknown_and_its_outcome_comes_late() {
        run(async {
            let mut calls = InFlight::new(TIMEOUT);
            let (send, receive) = oneshot::channel();
            let store = Prepared(Some("a:1".to_owned()));
            let answer_later = async { receive.await.expect("an answer") };
            calls.perform(CallId(1), "join", store, answer_later.boxed());
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
            send.send(answer(applied.clone()))
                .expect("the call was not dropped");
            assert_eq!(calls.in_flight(), 1, "it goes on");
            let late = calls.next().await;
            assert_eq!((late.call, late.outcome), (CallId(1), applied));
            assert!(late.answered.expect("no panic").late);
            assert_eq!(calls.in_flight(), 0);
        });
    }

    #[test]
    fn a_call_beyond_the_bound_fails_unsent() {
        run(async {
            let mut calls = InFlight::<LockOutcome>::new(TIMEOUT);
            for id in 0..CALLS_MAX as u64 {
                let never = std::future::pending().boxed();
                calls.perform(CallId(id), "read", Prepared(None), never);
            }
            let beyond = CallId(CALLS_MAX as u64);
            let sent = async { panic!("it was sent") };
            calls.perform(beyond, "leave", Prepared(None), sent.boxed());
            let refused = calls.next().await;
            assert_eq!(refused.call, beyond);
            assert_eq!(refused.outcome, LockOutcome::Failed);
        });
    }

    #[test]
    fn a_panic_of_the_driver_leaves_the_outcome_unknown() {
        run(async {
            let mut calls = InFlight::<LockOutcome>::new(Duration::from_secs(60));
            let panics = async { panic!("planted") };
            calls.perform(CallId(7), "renew", Prepared(None), panics.boxed());
            let reply = calls.next().await;
            assert_eq!(
                (reply.call, reply.outcome),
                (CallId(7), LockOutcome::Unknown)
            );
            assert_eq!(reply.answered, None);
        });
    }
}
