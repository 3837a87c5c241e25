//! Calls to a store: bounded in number, waited for up to a time-out, never
//! dropped.
//!
//! It decides nothing. After the time-out a call is reported as unknown and
//! goes on, and its true outcome is reported when it comes.

use std::future::Future;
use std::time::Duration;

use tokio::task::{JoinHandle, JoinSet};

use crate::store::{Answer, CallOutcome, Failure, Remedy};
use leasehold_core::election::BootTime;

/// Calls inside the driver at a time, those included that nobody waits for any
/// more. Each attempt waits for at least `operation_timeout` before the next;
/// at the defaults a connection that hangs for a minute holds fifteen. Beyond
/// that a call is refused unsent.
pub(crate) const CALLS_MAX: usize = 16;

/// A store call and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    /// The operation's word.
    pub operation: &'static str,
    /// The outcome's word.
    pub outcome: &'static str,
    /// From the hand-over to the driver to the answer.
    pub elapsed: Duration,
    /// Why it failed.
    pub failure: Option<Failure>,
    /// It had been reported as unknown before.
    pub late: bool,
}

/// A call that came back, or that was waited for long enough.
#[derive(Debug)]
pub struct Reply<I, O> {
    /// Which call.
    pub call: I,
    /// What became of it.
    pub outcome: O,
    /// For people; `None` when the driver panicked.
    pub answered: Option<Answered>,
}

/// The calls that are under way; `I` tells them apart.
pub struct Calls<I, O> {
    timeout: Duration,
    waits: JoinSet<Returned<I, O>>,
}

enum Returned<I, O> {
    Answered(Reply<I, O>),
    TimedOut(I, &'static str, Pending<O>),
}

/// A call that goes on although its time is up.
struct Pending<O> {
    call: JoinHandle<Answer<O>>,
    started: BootTime,
}

impl<I: Copy + Send + 'static, O: CallOutcome> Calls<I, O> {
    /// None yet; each will be waited for up to `timeout`.
    pub fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            waits: JoinSet::new(),
        }
    }

    /// Hands a call to the driver. To be called inside a tokio runtime.
    pub fn begin(
        &mut self,
        id: I,
        operation: &'static str,
        call: impl Future<Output = Answer<O>> + Send + 'static,
    ) {
        if self.waits.len() >= CALLS_MAX {
            let failure = Failure::new(
                "too many calls hang in the driver",
                "none of them was ever answered",
            )
            .until(Remedy::Reach);
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
                Err(_) => Returned::TimedOut(id, operation, Pending { call, started }),
            }
        });
    }

    /// Waits for the next reply; `None` while no call is under way. Nothing is
    /// lost if the wait is given up.
    pub async fn next(&mut self) -> Option<Reply<I, O>> {
        loop {
            // A call's own task holds only the wait; it cannot panic and is
            // never aborted.
            if let Ok(returned) = self.waits.join_next().await? {
                return Some(self.returned(returned));
            }
        }
    }

    fn returned(&mut self, returned: Returned<I, O>) -> Reply<I, O> {
        let (id, operation, Pending { call, started }) = match returned {
            Returned::Answered(reply) => return reply,
            Returned::TimedOut(id, operation, pending) => (id, operation, pending),
        };
        let failure = Failure::new("no answer within operation_timeout", "")
            .of(format!("({} ms)", self.timeout.as_millis()))
            .until(Remedy::Reach);
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
) -> Reply<I, O> {
    let Answer { outcome, failure } = answer;
    let answered = Answered {
        operation,
        outcome: outcome.as_str(),
        elapsed,
        failure,
        late,
    };
    Reply {
        call,
        outcome,
        answered: Some(answered),
    }
}

/// The driver panicked in a call.
fn broken<I, O: CallOutcome>(call: I) -> Reply<I, O> {
    Reply {
        call,
        outcome: O::UNKNOWN,
        answered: None,
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;
    use leasehold_core::lock::{Found, Outcome};

    const TIMEOUT: Duration = Duration::from_millis(20);

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(test);
    }

    fn answer(outcome: Outcome) -> Answer<Outcome> {
        Answer {
            outcome,
            failure: None,
        }
    }

    #[test]
    fn i7_a_call_that_outlasts_the_time_out_is_unknown_and_its_outcome_comes_late() {
        run(async {
            let mut calls = Calls::new(TIMEOUT);
            let (send, receive) = oneshot::channel();
            calls.begin(1, "join", async { receive.await.expect("an answer") });
            let unknown = calls.next().await.expect("under way");
            assert_eq!(unknown.outcome, Outcome::Unknown);
            assert!(!unknown.answered.expect("no panic").late);
            let applied = Outcome::Applied(Found::Missing);
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
            let mut calls = Calls::<_, Outcome>::new(TIMEOUT);
            for id in 0..CALLS_MAX {
                calls.begin(id, "read", std::future::pending());
            }
            calls.begin(CALLS_MAX, "leave", async { panic!("it was sent") });
            let refused = calls.next().await.expect("under way");
            assert_eq!(refused.call, CALLS_MAX);
            assert_eq!(refused.outcome, Outcome::Failed);
        });
    }

    #[test]
    fn a_panic_of_the_driver_leaves_the_outcome_unknown() {
        run(async {
            let mut calls = Calls::<_, Outcome>::new(Duration::from_secs(60));
            calls.begin(7, "renew", async { panic!("planted") });
            let reply = calls.next().await.expect("under way");
            assert_eq!((reply.call, reply.outcome), (7, Outcome::Unknown));
            assert_eq!(reply.answered, None);
        });
    }
}
