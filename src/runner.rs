//! The one place that turns the election's effects into IO.
//!
//! It decides nothing. It brings inputs one at a time, publishes the status
//! before it carries out the effects of a turn (so nothing is released while
//! a surface still shows the authority that went with it), and never drops a
//! store call: after `operation_timeout` it reports "unknown" and lets the
//! call go on, and its true outcome is brought when it comes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use crate::clock::{self, BootTimer};
use crate::election::{
    CallId, Claim, Effect, Election, Input, Notice, Operation, Order, Outcome, Randomness, Status,
    Token, Transition, Watch,
};
use crate::store::{Answer, Failure, News, Store};

/// Calls inside the driver at a time, those included that nobody waits for any
/// more. Each attempt waits for at least `operation_timeout` before the next;
/// at the defaults a connection that hangs for a minute holds fifteen. Beyond
/// that a call is refused unsent.
const CALLS_MAX: usize = 16;

/// Inputs of one turn of the loop before the timer is looked at again.
const NEWS_QUEUE_MAX: usize = 64;

/// What the outside of a candidate is told by its runner.
pub trait Surfaces: Send {
    /// A new status was published: files may be rewritten.
    fn published(&mut self, status: &Status);
    /// Answers `true` when every file shows the newest status, `false` when
    /// one that names a deadline can be neither rewritten nor removed.
    fn flush(&mut self) -> oneshot::Receiver<bool>;
    /// What the supervised workload is to do; never asked of a candidate that
    /// supervises none.
    fn workload(&mut self, order: Order);
    /// Keep this for the next process on this machine.
    fn remember(&mut self, claim: Option<Claim>, token: Token, lease_longest: Duration);
    /// The role changed.
    fn transition(&mut self, transition: &Transition);
    /// People should hear of this.
    fn notice(&mut self, notice: &Notice);
    /// A store call was answered.
    fn answered(&mut self, answered: &Answered);
    /// The change stream opened (`None`) or failed.
    fn watching(&mut self, failure: Option<&Failure>);
    /// A request in the document cannot be understood, and why.
    fn request_ignored(&mut self, why: &str);
}

/// A store call and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    /// As in [`Operation::as_str`].
    pub operation: &'static str,
    /// As in [`Outcome::as_str`].
    pub outcome: &'static str,
    /// From the hand-over to the driver to the answer.
    pub elapsed: Duration,
    /// Why it failed.
    pub failure: Option<Failure>,
    /// It had been reported as unknown before.
    pub late: bool,
}

/// No surfaces: for programs that embed an elector and ask its handle.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSurfaces;

impl Surfaces for NoSurfaces {
    fn published(&mut self, _: &Status) {}

    fn flush(&mut self) -> oneshot::Receiver<bool> {
        let (answer, receiver) = oneshot::channel();
        // The receiver is in our hands.
        let _ = answer.send(true);
        receiver
    }

    fn workload(&mut self, _: Order) {}
    fn remember(&mut self, _: Option<Claim>, _: Token, _: Duration) {}
    fn transition(&mut self, _: &Transition) {}
    fn notice(&mut self, _: &Notice) {}
    fn answered(&mut self, _: &Answered) {}
    fn watching(&mut self, _: Option<&Failure>) {}
    fn request_ignored(&mut self, _: &str) {}
}

/// Random ids from the kernel.
#[derive(Debug, Clone, Copy, Default)]
pub struct KernelRandomness;

impl Randomness for KernelRandomness {
    fn bits(&mut self) -> u128 {
        let mut bytes = [0; 16];
        // Linux fails here only before the pool is first filled, at boot, or
        // where the system call is forbidden: no id is better than one that repeats.
        getrandom::fill(&mut bytes).expect("the kernel gives random bytes");
        u128::from_be_bytes(bytes)
    }
}

/// Brings inputs to an election and carries out its effects.
pub struct Runner<S, F> {
    election: Election,
    store: Arc<S>,
    surfaces: F,
    status: watch::Sender<Status>,
    inputs: mpsc::Receiver<Input>,
    news: mpsc::Receiver<News>,
    operation_timeout: Duration,
    calls: JoinSet<Returned>,
    demoting: Option<oneshot::Receiver<bool>>,
    random: KernelRandomness,
}

/// A call that came back, or that was waited for long enough.
enum Returned {
    InTime(CallId, Answered, Outcome),
    TimedOut(CallId, Answered, Pending),
    Late(CallId, Answered, Outcome),
    /// The driver panicked in a call.
    Broken(CallId),
}

/// A call that goes on although its time is up.
struct Pending {
    call: tokio::task::JoinHandle<Answer>,
    started: crate::election::BootTime,
}

/// The queue for [`News`], sized for a runner.
pub fn news_channel() -> (mpsc::Sender<News>, mpsc::Receiver<News>) {
    mpsc::channel(NEWS_QUEUE_MAX)
}

impl<S: Store, F: Surfaces> Runner<S, F> {
    /// A runner for `election`. `inputs` are those of the machine (signals,
    /// the workload); `news` those of the store.
    pub fn new(
        election: Election,
        store: Arc<S>,
        surfaces: F,
        status: watch::Sender<Status>,
        inputs: mpsc::Receiver<Input>,
        news: mpsc::Receiver<News>,
        operation_timeout: Duration,
    ) -> Self {
        Self {
            election,
            store,
            surfaces,
            status,
            inputs,
            news,
            operation_timeout,
            calls: JoinSet::new(),
            demoting: None,
            random: KernelRandomness,
        }
    }

    /// Runs until the election asks to exit.
    ///
    /// # Errors
    /// When the kernel gives no timer.
    pub async fn run(mut self) -> io::Result<()> {
        let mut timer = BootTimer::new()?;
        let mut input = Input::Tick;
        loop {
            self.election
                .handle(clock::boot_now(), input, &mut self.random);
            self.publish();
            while let Some(effect) = self.election.next_effect() {
                if effect == Effect::Exit {
                    return Ok(());
                }
                self.carry_out(effect);
            }
            timer.arm(self.election.next_wakeup())?;
            input = self.next_input(&mut timer).await?;
        }
    }

    fn publish(&mut self) {
        let status = self.election.status();
        let changed = self.status.send_if_modified(|published| {
            let changed = published != status;
            if changed {
                published.clone_from(status);
            }
            changed
        });
        if changed {
            self.surfaces.published(status);
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Call { id, operation } => self.call(id, operation),
            Effect::Demote => self.demoting = Some(self.surfaces.flush()),
            Effect::Workload(order) => self.surfaces.workload(order),
            Effect::Remember {
                claim,
                token,
                lease_longest,
            } => self.surfaces.remember(claim, token, lease_longest),
            Effect::Transition(transition) => self.surfaces.transition(&transition),
            Effect::Notice(notice) => self.surfaces.notice(&notice),
            Effect::Exit => {}
        }
    }

    /// Hands a call to the driver and waits for it, up to the time-out.
    fn call(&mut self, id: CallId, operation: Operation) {
        let name = operation.as_str();
        if self.calls.len() >= CALLS_MAX {
            let failure = Failure {
                kind: "too many calls hang in the driver",
                code: None,
                detail: "none of them was ever answered".to_owned(),
            };
            let answer = Answer {
                outcome: Outcome::Failed,
                failure: Some(failure),
            };
            let (answered, outcome) = answered(name, answer, Duration::ZERO, false);
            self.calls
                .spawn(async move { Returned::InTime(id, answered, outcome) });
            return;
        }
        let store = Arc::clone(&self.store);
        let timeout = self.operation_timeout;
        let started = clock::boot_now();
        let mut call = tokio::spawn(async move { store.perform(operation).await });
        self.calls.spawn(async move {
            match tokio::time::timeout(timeout, &mut call).await {
                Ok(Ok(answer)) => {
                    let elapsed = clock::boot_now().since(started);
                    let (answered, outcome) = answered(name, answer, elapsed, false);
                    Returned::InTime(id, answered, outcome)
                }
                Ok(Err(_)) => Returned::Broken(id),
                Err(_) => {
                    let answered = Answered {
                        operation: name,
                        outcome: Outcome::Unknown.as_str(),
                        elapsed: clock::boot_now().since(started),
                        failure: Some(Failure {
                            kind: "no answer within operation_timeout",
                            code: None,
                            detail: String::new(),
                        }),
                        late: false,
                    };
                    Returned::TimedOut(id, answered, Pending { call, started })
                }
            }
        });
    }

    fn returned(&mut self, returned: Returned) -> Input {
        match returned {
            Returned::InTime(call, answered, outcome) | Returned::Late(call, answered, outcome) => {
                self.surfaces.answered(&answered);
                Input::Reply { call, outcome }
            }
            Returned::TimedOut(call, answered, pending) => {
                self.surfaces.answered(&answered);
                let name = answered.operation;
                self.calls.spawn(async move {
                    let Pending {
                        call: handle,
                        started,
                    } = pending;
                    match handle.await {
                        Ok(answer) => {
                            let elapsed = clock::boot_now().since(started);
                            let (answered, outcome) = self::answered(name, answer, elapsed, true);
                            Returned::Late(call, answered, outcome)
                        }
                        Err(_) => Returned::Broken(call),
                    }
                });
                Input::Reply {
                    call,
                    outcome: Outcome::Unknown,
                }
            }
            Returned::Broken(call) => Input::Reply {
                call,
                outcome: Outcome::Unknown,
            },
        }
    }

    /// Waits for whatever happens first. The timer goes before everything
    /// else: deadlines are kept also under a flood of news.
    async fn next_input(&mut self, timer: &mut BootTimer) -> io::Result<Input> {
        loop {
            let demoted = async {
                match &mut self.demoting {
                    Some(receiver) => receiver.await.unwrap_or(false),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                fired = timer.fired() => {
                    fired?;
                    return Ok(Input::Tick);
                }
                shown = demoted => {
                    self.demoting = None;
                    return Ok(Input::Demoted { shown });
                }
                Some(input) = self.inputs.recv() => return Ok(input),
                Some(joined) = self.calls.join_next() => {
                    // A call's own task holds only the wait; it cannot panic
                    // and is never aborted.
                    if let Ok(returned) = joined {
                        return Ok(self.returned(returned));
                    }
                }
                Some(news) = self.news.recv() => match news {
                    News::PrimaryChanged => return Ok(Input::PrimaryChanged),
                    News::Watch(watch) => {
                        if watch == Watch::Opened {
                            self.surfaces.watching(None);
                        }
                        return Ok(Input::Watch(watch));
                    }
                    News::WatchFailed(failure) => self.surfaces.watching(Some(&failure)),
                    News::RequestIgnored(why) => self.surfaces.request_ignored(why),
                },
            }
        }
    }
}

fn answered(
    operation: &'static str,
    answer: Answer,
    elapsed: Duration,
    late: bool,
) -> (Answered, Outcome) {
    let Answer { outcome, failure } = answer;
    let answered = Answered {
        operation,
        outcome: outcome.as_str(),
        elapsed,
        failure,
        late,
    };
    (answered, outcome)
}
