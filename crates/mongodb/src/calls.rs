//! Store calls: bounded in number, awaited up to a timeout, never dropped.
//!
//! This module makes no decisions. After the timeout a call is reported as unknown and continues;
//! its true outcome is reported when it arrives.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::store::{Answer, CallOutcome, Failure, RetryPolicy, Store, UNANSWERED};
use leasehold_core::election::CallId;

/// Maximum number of calls in the driver, including those already reported as unknown. Attempts are
/// at least one `operation_timeout` apart, so at the defaults a connection that hangs for a minute
/// holds fifteen calls. A call beyond the bound is refused unsent.
pub(crate) const CALLS_MAX: usize = 16;

/// Name of the outcome of a write that matched no document.
const REJECTED: &str = "rejected";

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
        self.failure.is_none() && self.outcome == REJECTED
    }
}

/// A call that was answered or has timed out.
pub(crate) struct CallReply<O> {
    pub(crate) call: CallId,
    pub(crate) outcome: O,
    /// Details for humans; `None` if the driver panicked.
    pub(crate) answered: Option<AnsweredCall>,
}

/// The calls in flight.
pub(crate) struct InFlight<O> {
    timeout: Duration,
    /// A call keeps its place until the loop has taken its last reply, so the queue of replies has at
    /// most two for each place, and one for each call that was refused in a turn.
    places: Arc<Semaphore>,
    sender: mpsc::UnboundedSender<(CallReply<O>, Option<OwnedSemaphorePermit>)>,
    replies: mpsc::UnboundedReceiver<(CallReply<O>, Option<OwnedSemaphorePermit>)>,
}

impl<O: CallOutcome> InFlight<O> {
    /// Creates an empty set of calls, each of which is awaited up to `timeout`.
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
        id: CallId,
        name: &'static str,
        store: impl Store<P, O>,
        operation: P,
    ) {
        let server = store.server();
        let call = async move { store.perform(operation).await };
        self.begin((id, name), server, call);
    }

    fn begin(
        &mut self,
        call: (CallId, &'static str),
        server: Option<String>,
        answer: impl Future<Output = Answer<O>> + Send + 'static,
    ) {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            let failure = Failure::new(
                "too many calls hang in the driver",
                "none of them was ever answered",
            );
            let reply = reply(call, failed(O::FAILED, failure), Duration::ZERO, false);
            // `self` has a receiver.
            let _ = self.sender.send((reply, None));
            return;
        };
        let (timeout, sender) = (self.timeout, self.sender.clone());
        let started = leasehold_clock::boot_now();
        let mut answer = tokio::spawn(answer);
        tokio::spawn(async move {
            let elapsed = || leasehold_clock::boot_now().since(started);
            let (answer, late) = match tokio::time::timeout(timeout, &mut answer).await {
                Ok(answer) => (answer, false),
                Err(_) => {
                    let from = server.map(|server| format!(" from {server}"));
                    let after = format!("({} ms)", timeout.as_millis());
                    let failure = Failure::new("no answer within operation_timeout", UNANSWERED)
                        .of(after + &from.unwrap_or_default());
                    let unknown = reply(call, failed(O::UNKNOWN, failure), elapsed(), false);
                    // Without a receiver, the loop has ended.
                    let _ = sender.send((unknown, None));
                    (answer.await, true)
                }
            };
            let last = match answer {
                Ok(answer) => reply(call, answer, elapsed(), late),
                // The driver panicked.
                Err(_) => CallReply {
                    call: call.0,
                    outcome: O::UNKNOWN,
                    answered: None,
                },
            };
            let _ = sender.send((last, Some(place)));
        });
    }

    /// Returns the number of calls in flight.
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

fn failed<O>(outcome: O, failure: Failure) -> Answer<O> {
    Answer {
        outcome,
        failure: Some(failure.with_retry(RetryPolicy::WaitForServer)),
    }
}

fn reply<O: CallOutcome>(
    (call, operation): (CallId, &'static str),
    Answer { outcome, failure }: Answer<O>,
    elapsed: Duration,
    late: bool,
) -> CallReply<O> {
    let answered = AnsweredCall {
        operation,
        outcome: outcome.as_str(),
        elapsed,
        failure,
        late,
    };
    CallReply {
        call,
        outcome,
        answered: Some(answered),
    }
}

#[cfg(test)]
mod tests {
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
            let call = (CallId(1), "join");
            calls.begin(call, Some("a:1".to_owned()), async {
                receive.await.expect("an answer")
            });
            let unknown = calls.next().await;
            assert_eq!(unknown.outcome, LockOutcome::Unknown);
            let answered = unknown.answered.expect("no panic");
            assert!(!answered.late);
            assert_eq!(
                answered.failure.expect("a reason").to_string(),
                format!(
                    "no answer within operation_timeout ({} ms) from a:1: {UNANSWERED}",
                    TIMEOUT.as_millis()
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
                calls.begin((CallId(id), "read"), None, std::future::pending());
            }
            let beyond = CallId(CALLS_MAX as u64);
            calls.begin((beyond, "leave"), None, async { panic!("it was sent") });
            let refused = calls.next().await;
            assert_eq!(refused.call, beyond);
            assert_eq!(refused.outcome, LockOutcome::Failed);
        });
    }

    #[test]
    fn a_panic_of_the_driver_leaves_the_outcome_unknown() {
        run(async {
            let mut calls = InFlight::<LockOutcome>::new(Duration::from_secs(60));
            calls.begin((CallId(7), "renew"), None, async { panic!("planted") });
            let reply = calls.next().await;
            assert_eq!(
                (reply.call, reply.outcome),
                (CallId(7), LockOutcome::Unknown)
            );
            assert_eq!(reply.answered, None);
        });
    }
}
