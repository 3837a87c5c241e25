//! A contender for a lock as a value: for the commands, and for programs that
//! embed one.
//!
//! [`Locker`] is a running contender, with all that it has to tell; [`Lock`] and
//! its [`LockGuard`] are what most programs want.

mod guard;
mod runner;

use std::io;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

pub use self::guard::{Lock, LockError, LockGuard};

use self::runner::Runner;
use crate::calls::Answered;
use crate::runner::KernelRandomness;
use crate::store::mongo::StoreOptions;
use crate::store::mongo::lock::MongoLockStore;
use crate::store::{Failure, StoreInfo};
use leasehold_core::election::{Authority, BootTime, LeaseName, Token};
use leasehold_core::lock::{
    End, Input, LockContender, Loss, Notice, Options, Sightings, Status, Want,
};

/// Signals and ends of the work that wait for the event loop: a person and one
/// work do not send more in one turn of it.
const INPUTS_MAX: usize = 16;
/// Events of the store that wait for the event loop: a burst of changes of one
/// document, told by one stream.
const NEWS_MAX: usize = 64;

/// How to contend for a lock. [`LockerOptions::new`] sets the defaults; the
/// fields are there to be changed.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LockerOptions {
    /// The collection, the identity and the timings.
    pub store: StoreOptions,
    /// The lock's name.
    pub name: LeaseName,
    /// What is wanted of it; exclusive by default.
    pub want: Want,
    /// True to end as [`End::Busy`] instead of waiting.
    pub at_once: bool,
    /// The highest token of the lock that this machine remembers.
    pub token_remembered: Token,
    /// What earlier contenders of this machine observed of the others.
    pub sightings: Sightings,
}

impl LockerOptions {
    /// A contender for exclusive use of the lock that remembers nothing.
    pub fn new(store: StoreOptions, name: LeaseName) -> Self {
        Self {
            store,
            name,
            want: Want::Exclusive,
            at_once: false,
            token_remembered: Token::ZERO,
            sightings: Sightings::default(),
        }
    }
}

/// What the outside of a contender is told, beside its status.
pub trait LockSurfaces: Send {
    /// The lock is held.
    fn acquired(&mut self, token: Token, valid_until: BootTime, waited: std::time::Duration);
    /// The lock is not held any more: what runs under it has to end.
    fn lost(&mut self, loss: Loss);
    /// People should hear of this.
    fn notice(&mut self, notice: &Notice);
    /// A store call was answered.
    fn answered(&mut self, answered: &Answered);
    /// The change stream opened (`None`) or failed.
    fn watching(&mut self, failure: Option<&Failure>);
    /// The contender has ended.
    fn finished(&mut self, _: &Finished) {}
}

/// No surfaces: for programs that ask the handle.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoLockSurfaces;

impl LockSurfaces for NoLockSurfaces {
    fn acquired(&mut self, _: Token, _: BootTime, _: std::time::Duration) {}
    fn lost(&mut self, _: Loss) {}
    fn notice(&mut self, _: &Notice) {}
    fn answered(&mut self, _: &Answered) {}
    fn watching(&mut self, _: Option<&Failure>) {}
}

/// How a contender ended, and what the next one of this machine may remember.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// How it ended.
    pub end: End,
    /// The highest token of the lock that it saw.
    pub token_highest: Token,
    /// What it saw of others, and since when.
    pub sightings: Sightings,
}

/// A running contender for one lock.
///
/// It waits, holds and renews until it is told that the work is over. Whether
/// it holds is a question about an instant: ask [`Locker::authority`] right
/// before each effect on the outside.
///
/// Dropped, it gives up or gives back by itself, as far as its runtime turns.
pub struct Locker {
    status: watch::Receiver<Status>,
    store: MongoLockStore,
    store_info: watch::Receiver<Option<StoreInfo>>,
    inputs: mpsc::Sender<Input>,
    /// Taken when it has ended.
    runner: Option<JoinHandle<io::Result<Finished>>>,
}

impl Locker {
    /// Begins to contend. To be called inside a tokio runtime.
    pub fn start(options: LockerOptions, surfaces: impl LockSurfaces + 'static) -> Self {
        let LockerOptions {
            store,
            name,
            want,
            at_once,
            token_remembered,
            sightings,
        } = options;
        let timings = store.timings;
        let contender = Options {
            identity: store.identity.clone(),
            want,
            timings,
            at_once,
            watch_first: false,
            token_remembered,
            sightings,
        };
        let (news_sender, news) = mpsc::channel(NEWS_MAX);
        let (store, store_info) = MongoLockStore::new(store, name, news_sender);
        let contender = LockContender::new(
            contender,
            leasehold_clock::boot_now(),
            &mut KernelRandomness,
        );
        let (status_sender, status) = watch::channel(contender.status());
        let (inputs, inputs_receiver) = mpsc::channel(INPUTS_MAX);
        let runner = Runner::new(
            contender,
            store.clone(),
            surfaces,
            status_sender,
            inputs_receiver,
            news,
            timings.operation_timeout(),
        );
        Self {
            status,
            store,
            store_info,
            inputs,
            runner: Some(tokio::spawn(runner.run())),
        }
    }

    /// How it stands. Ask [`Status::at`] of what it holds.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    /// Which deployment keeps the lock, once that is known.
    pub fn store_info(&self) -> watch::Receiver<Option<StoreInfo>> {
        self.store_info.clone()
    }

    /// Why no server can be used, as far as that is known: for a wait that ends
    /// before the first call has failed.
    pub fn store_trouble(&self) -> Option<Failure> {
        self.store.trouble()
    }

    /// The slots with which the lock was last used, if nobody held it and this
    /// contender has changed them; 0: exclusive and shared.
    pub fn slots_before(&self) -> Option<u32> {
        self.store.slots_before()
    }

    /// The authority at this instant; `None` if the lock is not held.
    pub fn authority(&self) -> Option<Authority> {
        self.status
            .borrow()
            .authority_at(leasehold_clock::boot_now())
    }

    /// The wait is over. A lock that is held is given back: nothing may run
    /// under it any more.
    pub async fn give_up(&self) {
        // A runner that has ended has given up.
        let _ = self.inputs.send(Input::GiveUp).await;
    }

    /// The work under the lock, or under a lock that was lost, is over and
    /// confirmed gone.
    pub async fn release(&self) {
        let _ = self.inputs.send(Input::Release).await;
    }

    /// Ends without giving the lock back: for work that may go on although the
    /// lock is lost, or is not waited for. The entry stays until it expires.
    pub fn abandon(mut self) {
        if let Some(runner) = self.runner.take() {
            runner.abort();
        }
    }

    /// Waits until the contender has ended; may be given up and called again
    /// until it has answered once.
    ///
    /// # Errors
    /// When it ended by a fault: the kernel gave no timer, or a task panicked.
    pub async fn wait(&mut self) -> io::Result<Finished> {
        let Some(runner) = &mut self.runner else {
            return Err(io::Error::other("its end was told before"));
        };
        let ended = runner.await;
        self.runner = None;
        ended.map_err(io::Error::other)?
    }
}
