//! A lock contender as a value, for the commands and for programs that embed one.
//!
//! [`Locker`] is a running contender that reports everything it observes. Most programs want
//! [`Lock`] and its [`LockGuard`].

mod error;
mod guard;
mod host;
mod store_health;

use std::fmt;
use std::io;

use tokio::sync::watch;

pub use self::error::LockError;
pub use self::guard::{Lock, LockGuard};
pub use self::store_health::{StoreHealth, waits_for_others};

use self::host::LockHost;
use crate::calls::AnsweredCall;
use crate::event_loop::{LoopHandle, PreparedLoop};
use crate::store::mongo::StoreOptions;
use crate::store::mongo::lock::{LockClient, MongoLockStore};
use crate::store::{Failure, StoreInfo};
use leasehold_core::election::{Authority, BootTime, ResourceName, Token};
use leasehold_core::lock::{
    End, LockContender, LockInput, LockMode, LockNotice, LockStatus, Loss, MinHold, Observations,
    OncePer, Options,
};
use leasehold_core::trace::Kind;

/// Options of a lock contender: [`LockerOptions::new`] and assignments to the fields.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LockerOptions {
    /// The collection, the identity and the timings.
    pub store: StoreOptions,
    /// The lock's name.
    pub name: ResourceName,
    /// The wanted mode; exclusive by default.
    pub mode: LockMode,
    /// Minimum hold of the place, even if the work ends or the process dies.
    pub min_hold: MinHold,
    /// End as [`End::Skipped`] if the work succeeded recently, and record its success. For
    /// exclusive locks only.
    pub once_per: Option<OncePer>,
    /// True to end as [`End::Busy`] instead of waiting.
    pub non_blocking: bool,
    /// The highest token of the lock that this machine remembers.
    pub token_remembered: Token,
    /// Observations of the other entries by earlier contenders on this machine.
    pub observations: Observations,
}

impl LockerOptions {
    /// A contender for exclusive use of the lock that remembers nothing.
    pub fn new(store: StoreOptions, name: ResourceName) -> Self {
        Self {
            store,
            name,
            mode: LockMode::Exclusive,
            min_hold: MinHold::NONE,
            once_per: None,
            non_blocking: false,
            token_remembered: Token::ZERO,
            observations: Observations::default(),
        }
    }
}

/// Callbacks for the events of a contender that its status does not contain. Each does nothing by
/// default.
pub trait LockSurfaces: Send {
    /// The lock was acquired with this token and slot, until this deadline, after this wait.
    fn acquired(&mut self, _: (Token, Option<u32>), _: BootTime, _: std::time::Duration) {}
    /// The lock is no longer held; the work under it must end.
    fn lost(&mut self, _: Loss) {}
    /// An event worth reporting to humans.
    fn notice(&mut self, _: &LockNotice) {}
    /// A store call was answered.
    fn answered(&mut self, _: &AnsweredCall) {}
    /// The change stream opened (`None`) or failed.
    fn watching(&mut self, _: Option<&Failure>) {}
    /// The server is not MongoDB but this product, which implements MongoDB's protocol.
    fn lookalike(&mut self, _: &str) {}
    /// The contender has finished.
    fn finished(&mut self, _: &Finished) {}
}

/// Ignores all events; for programs that query the handle.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoLockSurfaces;

impl LockSurfaces for NoLockSurfaces {}

/// The end of a contender, and the state to remember for the next one on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// The reason for the end.
    pub end: End,
    /// The highest token of the lock that the contender saw.
    pub token_highest: Token,
    /// The contender's observations of other entries.
    pub observations: Observations,
}

/// A running contender for one lock.
///
/// The contender waits, holds and renews until it is notified that the work is over. Authority can
/// end at any instant, so call [`Locker::authority`] right before each external effect.
///
/// Dropping the handle leaves the queue or releases the lock, provided that the runtime still runs.
#[must_use = "dropping it leaves the queue or releases the lock"]
pub struct Locker {
    contender: LoopHandle<LockContender, Finished>,
    store: MongoLockStore,
    store_info: watch::Receiver<Option<StoreInfo>>,
}

impl fmt::Debug for Locker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locker")
            .field("status", &*self.contender.status.borrow())
            .finish_non_exhaustive()
    }
}

impl Locker {
    /// Starts contending. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// [`LockError::NotExclusive`] if [`LockerOptions::once_per`] is set for a shared lock or a
    /// lock with slots: several holders could begin before the first succeeds.
    pub fn start(
        options: LockerOptions,
        surfaces: impl LockSurfaces + 'static,
    ) -> Result<Self, LockError> {
        Self::start_with(options, None, surfaces)
    }

    /// Starts contending, with a client shared by other contenders if there is one.
    fn start_with(
        options: LockerOptions,
        client: Option<&LockClient>,
        surfaces: impl LockSurfaces + 'static,
    ) -> Result<Self, LockError> {
        if options.once_per.is_some() && options.mode != LockMode::Exclusive {
            return Err(LockError::NotExclusive);
        }
        let LockerOptions {
            store,
            name,
            mode,
            min_hold,
            once_per,
            non_blocking,
            token_remembered,
            observations,
        } = options;
        let timings = store.timings;
        let contender = Options {
            identity: store.identity.clone(),
            mode,
            min_hold,
            once_per,
            timings,
            non_blocking,
            watch_first: false,
            token_remembered,
            observations,
        };
        let traced = (Kind::Lock, store.document(name.as_str()));
        let (contender, events) =
            PreparedLoop::new(store.trace.clone(), traced, &contender, LockContender::new);
        let (store, store_info) = match client {
            Some(client) => client.store(name, events),
            None => MongoLockStore::new(store, name, events),
        };
        let host = LockHost::new(store.clone(), surfaces);
        Ok(Self {
            contender: contender.start(host, timings.operation_timeout()),
            store,
            store_info,
        })
    }

    /// Returns a receiver of the contender's status. Use [`LockStatus::at`] to check its authority.
    pub fn status(&self) -> watch::Receiver<LockStatus> {
        self.contender.status.clone()
    }

    /// Returns a receiver of the deployment that keeps the lock; `None` until it is known.
    pub fn store_info(&self) -> watch::Receiver<Option<StoreInfo>> {
        self.store_info.clone()
    }

    /// Returns why the servers are unusable, if known; for a wait that ends before the first call
    /// has failed.
    pub fn last_failure(&self) -> Option<Failure> {
        self.store.trouble()
    }

    /// Returns the number of slots that the unused lock had before this contender changed it. 0
    /// means exclusive and shared.
    pub fn slots_before(&self) -> Option<u32> {
        self.store.slots_before()
    }

    /// Returns the authority at this instant; `None` if the lock is not held.
    pub fn authority(&self) -> Option<Authority> {
        self.contender
            .status
            .borrow()
            .authority_at(leasehold_clock::boot_now())
    }

    /// Ends the wait. A lock that is already held is released, so nothing may run under it any
    /// longer.
    pub async fn give_up(&self) {
        self.contender.send(LockInput::GiveUp).await;
    }

    /// Requests [`Locker::give_up`] without waiting for its turn. Only for a contender that has had no
    /// other request, so that its queue has room.
    fn request_to_give_up(&self) {
        let _ = self.contender.inputs.try_send(LockInput::GiveUp);
    }

    /// Reports that the work under the lock is over and confirmed gone, and releases the lock.
    /// After a loss it confirms that nothing runs under the lost claim.
    pub async fn release(&self) {
        self.contender.send(LockInput::Release).await;
    }

    /// Releases the lock after work that succeeded, and records the success if the options request
    /// it.
    pub async fn succeed(&self) {
        self.contender.send(LockInput::Succeeded).await;
    }

    /// Ends without releasing the lock, for work that may continue although the lock is lost, or
    /// that is not awaited. The entry stays until it expires.
    pub fn abandon(mut self) {
        if let Some(event_loop) = self.contender.task.take() {
            event_loop.abort();
        }
    }

    /// Waits until the contender has finished. Cancel-safe; may be called again, and then returns
    /// the same end.
    ///
    /// # Errors
    /// If the contender failed: the kernel provided no timer, or a task panicked.
    pub async fn wait(&mut self) -> io::Result<Finished> {
        let finished = self.contender.wait().await?;
        finished.ok_or_else(|| io::Error::other("the contender has failed before"))
    }
}
