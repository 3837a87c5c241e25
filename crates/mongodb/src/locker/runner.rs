//! Carries out the effects of a lock contender; the only module that turns them into IO.
//!
//! The runner makes no decisions: it passes on inputs one at a time, and publishes the status
//! before it carries out the effects of a turn.

use std::io;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::{Finished, LockSurfaces};
use crate::calls::{Calls, Reply};
use crate::runner::KernelRandomness;
use crate::store::mongo::lock::{MongoLockStore, Told};
use crate::store::{News, Store};
use leasehold_clock::BootTimer;
use leasehold_core::election::{CallId, Claim};
use leasehold_core::lock::{Effect, End, Hint, Input, LockContender, Operation, Outcome, Status};

/// Passes inputs to a contender and carries out its effects.
pub(super) struct Runner<F> {
    contender: LockContender,
    store: MongoLockStore,
    surfaces: F,
    status: watch::Sender<Status>,
    inputs: mpsc::Receiver<Input>,
    /// True after the handle was dropped.
    abandoned: bool,
    news: mpsc::Receiver<News<Told>>,
    calls: Calls<CallId, Outcome>,
    /// The followed claim and the task that follows it; the task holds no call.
    watching: Option<(Claim, JoinHandle<()>)>,
    random: KernelRandomness,
}

impl<F: LockSurfaces> Runner<F> {
    pub(super) fn new(
        contender: LockContender,
        store: MongoLockStore,
        surfaces: F,
        status: watch::Sender<Status>,
        inputs: mpsc::Receiver<Input>,
        news: mpsc::Receiver<News<Told>>,
        operation_timeout: Duration,
    ) -> Self {
        Self {
            contender,
            store,
            surfaces,
            status,
            inputs,
            abandoned: false,
            news,
            calls: Calls::new(operation_timeout),
            watching: None,
            random: KernelRandomness,
        }
    }

    /// Runs until the contender asks to exit, then closes its connections.
    pub(super) async fn run(mut self) -> io::Result<Finished> {
        let ended = self.turn_until_the_end().await;
        self.watch(None);
        let finished = ended.map(|end| Finished {
            end,
            token_highest: self.contender.token_highest(),
            sightings: self.contender.sightings().clone(),
        });
        if let Ok(finished) = &finished {
            self.surfaces.finished(finished);
        }
        self.store.shut_down().await;
        finished
    }

    async fn turn_until_the_end(&mut self) -> io::Result<End> {
        let mut timer = BootTimer::new()?;
        let mut input = Input::Tick;
        loop {
            self.contender
                .handle(leasehold_clock::boot_now(), input, &mut self.random);
            self.publish();
            while let Some(effect) = self.contender.next_effect() {
                if let Some(end) = self.carry_out(effect) {
                    return Ok(end);
                }
            }
            timer.arm(self.contender.next_wakeup())?;
            input = self.next_input(&mut timer).await?;
        }
    }

    fn publish(&self) {
        let status = self.contender.status();
        self.status.send_if_modified(|published| {
            let changed = *published != status;
            if changed {
                *published = status;
            }
            changed
        });
    }

    fn carry_out(&mut self, effect: Effect) -> Option<End> {
        match effect {
            Effect::Call { id, operation } => self.call(id, operation),
            Effect::Watch(claim) => self.watch(claim),
            Effect::Acquired {
                token,
                valid_until,
                waited,
            } => self.surfaces.acquired(token, valid_until, waited),
            Effect::Lost(loss) => self.surfaces.lost(loss),
            Effect::Notice(notice) => self.surfaces.notice(&notice),
            Effect::Exit(end) => return Some(end),
        }
        None
    }

    fn call(&mut self, id: CallId, operation: Operation) {
        let (store, name) = (self.store.clone(), operation.as_str());
        self.calls
            .begin(id, name, async move { store.perform(operation).await });
    }

    /// Follows only this claim from now on.
    fn watch(&mut self, claim: Option<Claim>) {
        if let Some((_, task)) = self.watching.take() {
            task.abort();
        }
        let store = self.store.clone();
        self.watching = claim.map(|claim| (claim, tokio::spawn(store.watch(claim))));
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
            tokio::select! {
                biased;
                fired = timer.fired() => {
                    fired?;
                    return Ok(Input::Tick);
                }
                input = self.inputs.recv(), if !self.abandoned => {
                    self.abandoned = input.is_none();
                    return Ok(input.unwrap_or(Input::GiveUp));
                }
                Some(reply) = self.calls.next() => return Ok(self.returned(reply)),
                Some(news) = self.news.recv() => match news {
                    News::PrimaryChanged => return Ok(Input::PrimaryChanged),
                    News::Watch(Told { claim, hint }) => {
                        // Late events of a stream that was given up are ignored.
                        let watched = self.watching.as_ref().map(|(claim, _)| *claim);
                        if watched != Some(claim) {
                            continue;
                        }
                        if hint == Hint::Opened {
                            self.surfaces.watching(None);
                        }
                        return Ok(Input::Hint(hint));
                    }
                    News::WatchFailed(failure) => self.surfaces.watching(Some(&failure)),
                    News::RequestIgnored(_) | News::Lookalike(_) => {}
                },
            }
        }
    }
}

impl<F> Drop for Runner<F> {
    fn drop(&mut self) {
        if let Some((_, task)) = &self.watching {
            task.abort();
        }
    }
}
