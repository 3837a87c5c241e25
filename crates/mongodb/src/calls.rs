//! Store calls: bounded in number, awaited up to a timeout, never dropped.
//!
//! This module makes no decisions. After the timeout a call is reported as unknown and continues;
//! its true outcome is reported when it arrives.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use tokio::task::{JoinHandle, JoinSet};

use crate::store::{Answer, CallOutcome, Failure, RetryPolicy, Store, UNANSWERED};
use leasehold_core::election::BootTime;

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
#[derive(Debug)]
pub struct CallReply<I, O> {
    /// The id of the call.
    pub call: I,
    /// The outcome of the call.
    pub outcome: O,
    /// Details for humans; `None` if the driver panicked.
    pub answered: Option<AnsweredCall>,
}

/// The calls in flight, identified by `I`.
pub struct InFlight<I, O> {
    timeout: Duration,
    waits: JoinSet<Returned<I, O>>,
}

impl<I, O> fmt::Debug for InFlight<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calls")
            .field("in_flight", &self.waits.len())
            .finish_non_exhaustive()
    }
}

enum Returned<I, O> {
    Answered(CallReply<I, O>),
    TimedOut(I, &'static str, Pending<O>),
}

/// A call that continues after its timeout.
struct Pending<O> {
    call: JoinHandle<Answer<O>>,
    /// The server that it was most likely sent to, for messages.
    server: Option<String>,
    started: BootTime,
}

impl<I: Copy + Send + 'static, O: CallOutcome> InFlight<I, O> {
    /// Creates an empty set of calls, each of which is awaited up to `timeout`.
    pub fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            waits: JoinSet::new(),
        }
    }

    /// Hands a call to the driver, which sends it to `server`, as far as known. Must be called
    /// inside a tokio runtime.
    pub fn begin(
        &mut self,
        id: I,
        operation: &'static str,
        server: Option<String>,
        call: impl Future<Output = Answer<O>> + Send + 'static,
    ) {
        if self.waits.len() >= CALLS_MAX {
            let failure = Failure::new(
                "too many calls hang in the driver",
                "none of them was ever answered",
            )
            .with_retry(RetryPolicy::WaitForServer);
            let answer = Answer {
                outcome: O::FAILED,
                failure: Some(failure),
            };
            let reply = reply(id, operation, answer, Duration::ZERO, false);
            self.waits.spawn(async move { Returned::Answered(reply) });
            return;
        }
        let timeout = self.timeout;
        let started = leasehold_clock::boot_now();
        let mut call = tokio::spawn(call);
        self.waits.spawn(async move {
            match tokio::time::timeout(timeout, &mut call).await {
                Ok(Ok(answer)) => {
                    let elapsed = leasehold_clock::boot_now().since(started);
                    Returned::Answered(reply(id, operation, answer, elapsed, false))
                }
                Ok(Err(_)) => Returned::Answered(broken(id)),
                Err(_) => {
                    let pending = Pending {
                        call,
                        server,
                        started,
                    };
                    Returned::TimedOut(id, operation, pending)
                }
            }
        });
    }

    /// Hands an operation of this name to the driver of a store.
    pub(crate) fn perform<P>(
        &mut self,
        id: I,
        name: &'static str,
        store: impl Store<P, O>,
        operation: P,
    ) where
        P: Send + 'static,
    {
        let server = store.server();
        self.begin(
            id,
            name,
            server,
            async move { store.perform(operation).await },
        );
    }

    /// Returns the number of calls in flight.
    pub fn in_flight(&self) -> usize {
        self.waits.len()
    }

    /// Waits for the next reply; returns `None` if no call is in flight. Cancel-safe.
    pub async fn next(&mut self) -> Option<CallReply<I, O>> {
        loop {
            // The task only waits for the call; it cannot panic and is never aborted.
            if let Ok(returned) = self.waits.join_next().await? {
                return Some(self.returned(returned));
            }
        }
    }

    fn returned(&mut self, returned: Returned<I, O>) -> CallReply<I, O> {
        let (id, operation, pending) = match returned {
            Returned::Answered(reply) => return reply,
            Returned::TimedOut(id, operation, pending) => (id, operation, pending),
        };
        let Pending {
            call,
            server,
            started,
        } = pending;
        let from = server.map(|server| format!(" from {server}"));
        let after = format!("({} ms)", self.timeout.as_millis());
        let failure = Failure::new("no answer within operation_timeout", UNANSWERED)
            .of(after + &from.unwrap_or_default())
            .with_retry(RetryPolicy::WaitForServer);
        let answer = Answer {
            outcome: O::UNKNOWN,
            failure: Some(failure),
        };
        let elapsed = leasehold_clock::boot_now().since(started);
        self.waits.spawn(async move {
            Returned::Answered(match call.await {
                Ok(answer) => {
                    let elapsed = leasehold_clock::boot_now().since(started);
                    reply(id, operation, answer, elapsed, true)
                }
                Err(_) => broken(id),
            })
        });
        reply(id, operation, answer, elapsed, false)
    }
}

fn reply<I, O: CallOutcome>(
    call: I,
    operation: &'static str,
    answer: Answer<O>,
    elapsed: Duration,
    late: bool,
) -> CallReply<I, O> {
    let Answer { outcome, failure } = answer;
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

/// Returns the reply to a call in which the driver panicked.
fn broken<I, O: CallOutcome>(call: I) -> CallReply<I, O> {
    CallReply {
        call,
        outcome: O::UNKNOWN,
        answered: None,
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
            calls.begin(1, "join", Some("a:1".to_owned()), async {
                receive.await.expect("an answer")
            });
            let unknown = calls.next().await.expect("under way");
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
            let late = calls.next().await.expect("it goes on");
            assert_eq!((late.call, late.outcome), (1, applied));
            assert!(late.answered.expect("no panic").late);
            assert!(calls.next().await.is_none());
        });
    }

    #[test]
    fn a_call_beyond_the_bound_fails_unsent() {
        run(async {
            let mut calls = InFlight::<_, LockOutcome>::new(TIMEOUT);
            for id in 0..CALLS_MAX {
                calls.begin(id, "read", None, std::future::pending());
            }
            calls.begin(CALLS_MAX, "leave", None, async { panic!("it was sent") });
            let refused = calls.next().await.expect("under way");
            assert_eq!(refused.call, CALLS_MAX);
            assert_eq!(refused.outcome, LockOutcome::Failed);
        });
    }

    #[test]
    fn a_panic_of_the_driver_leaves_the_outcome_unknown() {
        run(async {
            let mut calls = InFlight::<_, LockOutcome>::new(Duration::from_secs(60));
            calls.begin(7, "renew", None, async { panic!("planted") });
            let reply = calls.next().await.expect("under way");
            assert_eq!((reply.call, reply.outcome), (7, LockOutcome::Unknown));
            assert_eq!(reply.answered, None);
        });
    }
}
