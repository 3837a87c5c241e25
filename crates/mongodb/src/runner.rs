//! Carries out the effects of the election; the only module that turns them into IO.
//!
//! The runner makes no decisions: it passes on inputs one at a time and publishes the status before
//! it carries out the effects of a turn, so nothing is released while a surface still shows the
//! authority that went with it. Store calls are left to [`calls`](crate::calls), which never drops
//! one.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

pub use crate::calls::Answered;

use crate::calls::{Calls, Reply};
use crate::store::{Failure, News, Store};
use leasehold_clock::BootTimer;
use leasehold_core::election::{
    CallId, Claim, Effect, Election, Input, Notice, Operation, Order, Outcome, Randomness, Status,
    Token, Transition, Watch,
};

/// Capacity of the queue of store events.
const NEWS_QUEUE_MAX: usize = 64;

/// Callbacks by which a candidate's runner reports to the rest of the program.
pub trait Surfaces: Send {
    /// A new status was published; files may be rewritten.
    fn published(&mut self, status: &Status);
    /// Returns a receiver of `true` once every file shows the newest status, or of `false` if a
    /// file that names a deadline can be neither rewritten nor removed.
    fn flush(&mut self) -> oneshot::Receiver<bool>;
    /// Sets the desired state of the supervised workload; never called for a candidate that
    /// supervises none.
    fn workload(&mut self, order: Order);
    /// Stores the values for the next process on this machine.
    fn remember(&mut self, claim: Option<Claim>, token: Token, lease_longest: Duration);
    /// The role changed.
    fn transition(&mut self, transition: &Transition);
    /// An event worth reporting to humans.
    fn notice(&mut self, notice: &Notice);
    /// A store call was answered.
    fn answered(&mut self, answered: &Answered);
    /// The change stream opened (`None`) or failed.
    fn watching(&mut self, failure: Option<&Failure>);
    /// The request in the document is not valid, for the given reason.
    fn request_ignored(&mut self, why: &str);
    /// The server is this product, which only implements MongoDB's protocol.
    fn lookalike(&mut self, product: &str);
}

/// Ignores all events; for programs that embed an elector and query its handle.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSurfaces;

impl Surfaces for NoSurfaces {
    fn published(&mut self, _: &Status) {}

    fn flush(&mut self) -> oneshot::Receiver<bool> {
        let (answer, receiver) = oneshot::channel();
        // This function owns the receiver, so the send cannot fail.
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
    fn lookalike(&mut self, _: &str) {}
}

/// Random ids from the kernel.
#[derive(Debug, Clone, Copy, Default)]
pub struct KernelRandomness;

impl Randomness for KernelRandomness {
    fn bits(&mut self) -> u128 {
        let mut bytes = [0; 16];
        // Linux fails here only before the pool is first filled, at boot, or if the system call is
        // forbidden. A panic is better than an id that repeats.
        getrandom::fill(&mut bytes).expect("the kernel gives random bytes");
        u128::from_be_bytes(bytes)
    }
}

/// Passes inputs to an election and carries out its effects.
pub struct Runner<S, F> {
    election: Election,
    store: Arc<S>,
    surfaces: F,
    status: watch::Sender<Status>,
    inputs: mpsc::Receiver<Input>,
    news: mpsc::Receiver<News>,
    calls: Calls<CallId, Outcome>,
    demoting: Option<oneshot::Receiver<bool>>,
    random: KernelRandomness,
}

/// Creates the queue for [`News`], with the runner's capacity.
pub fn news_channel() -> (mpsc::Sender<News>, mpsc::Receiver<News>) {
    mpsc::channel(NEWS_QUEUE_MAX)
}

impl<S: Store, F: Surfaces> Runner<S, F> {
    /// Creates a runner for `election`. `inputs` are those of the machine (signals, the workload);
    /// `news` those of the store.
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
            calls: Calls::new(operation_timeout),
            demoting: None,
            random: KernelRandomness,
        }
    }

    /// Runs until the election asks to exit.
    ///
    /// # Errors
    /// If the kernel provides no timer.
    pub async fn run(mut self) -> io::Result<()> {
        let mut timer = BootTimer::new()?;
        let mut input = Input::Tick;
        loop {
            self.election
                .handle(leasehold_clock::boot_now(), input, &mut self.random);
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
            Effect::ReopenStream => self.store.reopen_stream(),
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

    /// Hands a call to the driver.
    fn call(&mut self, id: CallId, operation: Operation) {
        let (store, name) = (Arc::clone(&self.store), operation.as_str());
        self.calls
            .begin(id, name, async move { store.perform(operation).await });
    }

    fn returned(&mut self, reply: Reply<CallId, Outcome>) -> Input {
        let Reply {
            call,
            outcome,
            answered,
        } = reply;
        if let Some(answered) = answered {
            self.surfaces.answered(&answered);
        }
        Input::Reply { call, outcome }
    }

    /// Waits for the next event. The timer has priority, so that deadlines are kept even under a
    /// flood of store events.
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
                Some(reply) = self.calls.next() => return Ok(self.returned(reply)),
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
                    News::Lookalike(product) => self.surfaces.lookalike(product),
                },
            }
        }
    }
}
