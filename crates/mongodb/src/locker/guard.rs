use std::sync::{Arc, Mutex};
use std::time::Duration;

use mongodb::Collection;
use mongodb::bson::Document;
use mongodb::options::UpdateModifications;
use tokio::sync::watch;

use super::{Finished, LockDecision, LockError, LockSurfaces, Locker, LockerOptions, Remembered};
use crate::fenced::{self, Fence, FencedError};
use crate::store::mongo::lock::LockClient;
use crate::store::mongo::{StoreOptions, lock};
use leasehold_core::election::{Authority, ResourceName};
use leasehold_core::lock::{
    End, LockInput, LockMode, LockStatus, Loss, MinHold, Observations, OncePer, Slots, Standing,
    WorkKey,
};

/// A lock, exclusive by default, that this program can acquire.
///
/// A guard does not prove that the lock is held, because authority ends unless it is renewed in
/// time. Call [`LockGuard::authority`] right before each external effect, and send the token along
/// if the receiver can compare it.
///
/// ```no_run
/// use leasehold_mongodb::election::{Identity, ResourceName};
/// use leasehold_mongodb::locker::Lock;
/// use leasehold_mongodb::store::mongo::StoreOptions;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let uri = "mongodb://localhost/?replicaSet=rs0";
/// let store = StoreOptions::new(uri, Identity::new("host-1")?);
/// let lock = Lock::new(store, ResourceName::new("nightly-report")?);
/// let guard = lock.acquire().await?;
/// for page in 0..3 {
///     let Some(authority) = guard.authority() else {
///         break; // The lock was lost; another holder may be at work.
///     };
///     println!("page {page} with token {}", authority.token);
/// }
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
///
/// Keep and clone a `Lock` instead of creating a new `Lock` for each acquisition. A `Lock` and its
/// clones remember the observed entries of other contenders, so that even short attempts evict a
/// killed holder. They also share one client per runtime. The client connects at the first
/// acquisition, and shuts down once the last clone and the last guard are dropped.
/// [`StoreOptions::with_client`] shares one client among several locks.
///
/// The change stream of each waiter occupies a connection. Many tasks of one process should queue
/// inside the process first.
#[derive(Debug, Clone)]
pub struct Lock {
    options: LockerOptions,
    client: LockClient,
    cache: Arc<Mutex<Remembered>>,
    /// Counts the running contenders, because each contender owns a receiver.
    contenders: watch::Sender<()>,
}

struct SaveObservations {
    cache: Arc<Mutex<Remembered>>,
    before: Observations,
    _running: watch::Receiver<()>,
}

impl LockSurfaces for SaveObservations {
    fn finished(&mut self, finished: &Finished) {
        let mut cache = lock(&self.cache);
        // Another contender for this lock may have saved its observations in the meantime.
        *cache = cache.merged(finished, &self.before);
    }
}

impl Lock {
    /// Creates the exclusive lock of this name.
    pub fn new(store: StoreOptions, name: ResourceName) -> Self {
        Self {
            client: LockClient::default(),
            options: LockerOptions::new(store, name),
            cache: Arc::default(),
            contenders: watch::Sender::default(),
        }
    }

    /// Makes the lock shared, so that other readers can hold it concurrently.
    #[must_use]
    pub fn shared(mut self) -> Self {
        self.options.mode = LockMode::Shared;
        self
    }

    /// Lets up to `slots` contenders hold the lock. All users must pass the same number.
    #[must_use]
    pub fn slots(mut self, slots: Slots) -> Self {
        self.options.mode = LockMode::Slot(slots);
        self
    }

    /// Keeps the lock at least this long after each acquisition, even if the work or process ends.
    #[must_use]
    pub fn min_hold(mut self, min_hold: MinHold) -> Self {
        self.options.min_hold = min_hold;
        self
    }

    /// Makes an acquisition fail with [`LockError::Skipped`] if the work of this key succeeded less
    /// than `period` ago, as recorded by [`LockGuard::succeed`]. Only for exclusive locks.
    #[must_use]
    pub fn once_per(mut self, period: Duration, key: WorkKey) -> Self {
        self.options.once_per = Some(OncePer { period, key });
        self
    }

    /// Waits for the lock, without a time limit. Fails if waiting would not help. Dropping the
    /// future leaves the queue in the background; [`Lock::idle`] waits until that is done.
    pub async fn acquire(&self) -> Result<LockGuard, LockError> {
        self.within(Duration::MAX, false).await
    }

    /// Waits at most `wait` for the lock. If the lock is not granted by then, leaves the queue and
    /// fails. Leaving takes up to two `operation_timeout`s.
    pub async fn acquire_within(&self, wait: Duration) -> Result<LockGuard, LockError> {
        self.within(wait, false).await
    }

    /// Acquires the lock, or fails with [`LockError::Busy`] if others hold it. Retries for up to
    /// the lease duration if MongoDB is unresponsive.
    pub async fn try_acquire(&self) -> Result<LockGuard, LockError> {
        let patience = self.options.store.timings.lease_duration();
        self.within(patience, true).await
    }

    /// Waits until all contenders of this lock and of its clones have ended. By then, the entry of
    /// each dropped guard or acquisition has been removed, or will expire by itself.
    pub async fn idle(&self) {
        self.contenders.closed().await;
    }

    async fn within(&self, wait: Duration, non_blocking: bool) -> Result<LockGuard, LockError> {
        let remembered = lock(&self.cache).clone();
        let surfaces = SaveObservations {
            cache: Arc::clone(&self.cache),
            before: remembered.observations.clone(),
            _running: self.contenders.subscribe(),
        };
        let options = LockerOptions {
            non_blocking,
            remembered,
            ..self.options.clone()
        };
        let mut guard = LockGuard {
            locker: Locker::start_with(options, Some(&self.client), surfaces)?,
            may_have_begun: false,
        };
        let locker = &mut guard.locker;
        let decided = tokio::time::timeout(wait, locker.decided()).await;
        // Also check after a timeout, because the lock may just have been granted.
        if locker.authority().is_some() {
            guard.may_have_begun = true;
            return Ok(guard);
        }
        let error = match decided {
            Ok(Ok(LockDecision::Held(_))) => LockError::Lost(Loss::Deadline),
            Ok(Ok(LockDecision::Lost(loss))) => LockError::Lost(loss),
            Ok(Ok(LockDecision::Refused(failure))) => LockError::Refused { failure },
            Ok(Ok(LockDecision::Ended(end))) => end.into(),
            Ok(Err(fault)) => LockError::Fault(fault),
            Err(_) if locker.is_kept_by_others(&locker.status().borrow()) => LockError::TimedOut,
            Err(_) => LockError::Unreachable {
                failure: locker.failure(),
            },
        };
        let withdrawal_max = 2 * locker.timings.operation_timeout();
        locker.withdraw(withdrawal_max).await;
        Err(error)
    }
}

/// An acquired lock. Prefer [`LockGuard::release`] to dropping the guard, because a drop releases
/// the lock in the background, and only if the runtime still runs.
#[derive(Debug)]
#[must_use = "dropping it releases the lock"]
pub struct LockGuard {
    locker: Locker,
    /// True once the program has received the guard, and may have begun work under it.
    may_have_begun: bool,
}

impl Drop for LockGuard {
    /// Withdraws an acquisition whose future was dropped, even if the lock was granted.
    fn drop(&mut self) {
        if !self.may_have_begun {
            // The queue has room, because the contender has not been sent any other request.
            let _ = self.locker.contender.inputs.try_send(LockInput::GiveUp);
        }
    }
}

impl LockGuard {
    /// Returns the authority at this instant; `None` if the lock was lost.
    pub fn authority(&self) -> Option<Authority> {
        self.locker.authority()
    }

    /// Returns this holder's slot, counted from 0; `None` without slots, or after a loss.
    pub fn slot(&self) -> Option<u32> {
        let now = leasehold_clock::boot_now();
        let status = self.locker.contender.status.borrow().at(now);
        match status.standing {
            Standing::Held(_) => status.slot,
            _ => None,
        }
    }

    /// Returns a receiver of the status, which contains the deadline.
    pub fn status(&self) -> watch::Receiver<LockStatus> {
        self.locker.status()
    }

    /// Waits until the lock is lost. Cancel safe, so it can run alongside the work in a `select!`.
    pub async fn lost(&self) -> Loss {
        let mut status = self.locker.status();
        let lost = |status: &LockStatus| match status.standing {
            Standing::Lost(loss) | Standing::Ended(End::Lost(loss)) => Some(loss),
            _ => None,
        };
        let found = status.wait_for(|status| lost(status).is_some()).await;
        // Without a recorded loss, a failed contender lost the lock at its deadline.
        let loss = found.ok().and_then(|status| lost(&status));
        loss.unwrap_or(Loss::Deadline)
    }

    /// Updates one of your documents with [`fenced::update_one`] if this exclusive lock is held.
    pub async fn update_one<T: Send + Sync>(
        &self,
        collection: &Collection<T>,
        matching: Document,
        change: impl Into<UpdateModifications>,
    ) -> Result<(), FencedError> {
        if self.locker.mode != LockMode::Exclusive {
            return Err(FencedError::NotExclusive);
        }
        let authority = self.authority().ok_or(FencedError::NotHeld)?;
        let fence = Fence::new(self.locker.name.clone(), authority.token);
        fenced::update_one(collection, matching, change, &fence).await
    }

    /// Releases the lock after its work has ended, and waits until MongoDB acknowledges the
    /// release. Fails if the lock was lost, or if no acknowledgement arrives for a lease duration.
    pub async fn release(self) -> Result<(), LockError> {
        self.locker.release().await;
        self.released().await
    }

    /// Like [`LockGuard::release`], but also records the success for [`Lock::once_per`].
    pub async fn succeed(self) -> Result<(), LockError> {
        self.locker.succeed().await;
        self.released().await
    }

    async fn released(mut self) -> Result<(), LockError> {
        match self.locker.wait().await.map_err(LockError::Fault)?.end {
            End::Lost(loss) => Err(LockError::Lost(loss)),
            End::Unconfirmed => Err(LockError::Unconfirmed),
            _ => Ok(()),
        }
    }
}
