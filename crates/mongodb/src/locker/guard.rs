//! A lock for programs: acquire, work, release.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mongodb::Collection;
use mongodb::bson::Document;
use mongodb::options::UpdateModifications;
use tokio::sync::watch;

use super::error::LockError;
use super::store_health::StoreHealth;
use super::{Finished, LockSurfaces, Locker, LockerOptions};
use crate::calls::AnsweredCall;
use crate::fenced::{self, Fence, FencedError};
use crate::store::Failure;
use crate::store::mongo::StoreOptions;
use crate::store::mongo::lock::LockClient;
use leasehold_core::election::{Authority, ResourceName, Token};
use leasehold_core::lock::{
    End, LockMode, LockNotice, LockStatus, Loss, MinHold, Observations, OncePer, Slots, Standing,
    WorkKey,
};

/// A lock, exclusive by default, that this program can acquire.
///
/// A guard does not prove that the lock is held. Authority has a deadline and ends when it cannot
/// be renewed: call [`LockGuard::authority`] right before each external effect, and send the token
/// along if the receiver can compare it.
///
/// ```no_run
/// use std::time::Duration;
///
/// use leasehold_mongodb::election::{Identity, ResourceName};
/// use leasehold_mongodb::locker::Lock;
/// use leasehold_mongodb::store::mongo::StoreOptions;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let uri = "mongodb://localhost/?replicaSet=rs0";
/// let store = StoreOptions::new(uri, Identity::new("host-1")?);
/// let lock = Lock::new(store, ResourceName::new("nightly-report")?);
/// let guard = lock.acquire_within(Duration::from_secs(60)).await?;
/// for page in 0..3 {
///     let Some(authority) = guard.authority() else {
///         break; // It was lost: another may work on it by now.
///     };
///     println!("page {page} with token {}", authority.token);
/// }
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
///
/// A value and its clones remember their observations of other holders. This lets them evict a
/// holder that was killed although each acquisition is short: keep the value instead of creating a
/// new one each time. They also share one client. It connects at the first acquisition, and is shut
/// down once all clones and their guards are dropped. An acquisition on another runtime creates
/// another client. [`StoreOptions::with_client`] shares one client among several locks.
///
/// Each waiter holds a connection, on which its change stream awaits the grant. Let the tasks of one
/// process queue in the process first if they are many.
#[derive(Debug, Clone)]
pub struct Lock {
    options: LockerOptions,
    client: LockClient,
    cache: Arc<Mutex<SharedObservations>>,
    /// Number of the contenders that run.
    contenders: watch::Sender<usize>,
}

/// Counts a contender for as long as it runs.
struct RunningContender(watch::Sender<usize>);

impl RunningContender {
    fn of(contenders: &watch::Sender<usize>) -> Self {
        contenders.send_modify(|number| *number += 1);
        Self(contenders.clone())
    }
}

impl Drop for RunningContender {
    fn drop(&mut self) {
        self.0.send_modify(|number| *number -= 1);
    }
}

/// Observations of this program's contenders, for the next one.
#[derive(Debug, Default)]
struct SharedObservations {
    token_highest: Token,
    observations: Observations,
}

/// Saves the observations of a contender when it finishes.
struct SaveObservations {
    cache: Arc<Mutex<SharedObservations>>,
    /// The observations when the contender started.
    before: Observations,
    health: watch::Sender<StoreHealth>,
    _running: RunningContender,
}

impl LockSurfaces for SaveObservations {
    fn answered(&mut self, answered: &AnsweredCall) {
        let now = leasehold_clock::boot_now();
        self.health
            .send_modify(|health| health.answered(answered, now));
    }

    fn notice(&mut self, notice: &LockNotice) {
        let now = leasehold_clock::boot_now();
        self.health.send_modify(|health| health.notice(notice, now));
    }

    fn finished(&mut self, finished: &Finished) {
        // A poisoned value is consistent, because it is only replaced as a whole.
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        // Another contender of this lock may have saved more meanwhile.
        *cache = SharedObservations {
            token_highest: cache.token_highest.max(finished.token_highest),
            observations: finished
                .observations
                .merged(&self.before, &cache.observations),
        };
    }
}

impl Lock {
    /// The exclusive lock of this name.
    pub fn new(store: StoreOptions, name: ResourceName) -> Self {
        Self {
            client: LockClient::new(store.clone()),
            options: LockerOptions::new(store, name),
            cache: Arc::default(),
            contenders: watch::channel(0).0,
        }
    }

    /// Makes the lock shared, so that other readers can hold it concurrently.
    #[must_use]
    pub fn shared(mut self) -> Self {
        self.options.mode = LockMode::Shared;
        self
    }

    /// Lets up to `slots` contenders hold the lock; all of its users must pass the same number.
    #[must_use]
    pub fn slots(mut self, slots: Slots) -> Self {
        self.options.mode = LockMode::Slot(slots);
        self
    }

    /// Keeps the place taken for at least this long from each acquisition on, even if the work ends
    /// or the process dies: for work that must not run again too soon.
    #[must_use]
    pub fn min_hold(mut self, min_hold: MinHold) -> Self {
        self.options.min_hold = min_hold;
        self
    }

    /// Skips the work of this key if it succeeded less than `period` ago: acquiring then fails with
    /// [`LockError::Skipped`]. [`LockGuard::succeed`] records a success. For exclusive locks only:
    /// acquiring any other one fails with [`LockError::NotExclusive`].
    #[must_use]
    pub fn once_per(mut self, period: Duration, key: WorkKey) -> Self {
        self.options.once_per = Some(OncePer { period, key });
        self
    }

    /// Waits until the lock is granted, without a limit. Dropping the future leaves the queue in the
    /// background; [`Lock::idle`] waits for that.
    ///
    /// # Errors
    /// If waiting would not help, for example because the store refuses the credentials.
    pub async fn acquire(&self) -> Result<LockGuard, LockError> {
        let mut waiting = self.start(false)?;
        let held = waiting.held().await;
        waiting.concluded(held).await
    }

    /// Waits until the lock is granted, for at most `wait`. If the lock is not granted in time, the
    /// future leaves the queue, and returns when the leave is acknowledged, or after two
    /// `operation_timeout`s.
    ///
    /// # Errors
    /// [`LockError::TimedOut`] or [`LockError::Unreachable`], or if waiting would not help.
    pub async fn acquire_within(&self, wait: Duration) -> Result<LockGuard, LockError> {
        self.within(wait, false).await
    }

    /// Acquires the lock if it is available without waiting for others. A store that does not
    /// answer is retried for up to the lease duration.
    ///
    /// # Errors
    /// [`LockError::Busy`], or same as [`Lock::acquire_within`].
    pub async fn try_acquire(&self) -> Result<LockGuard, LockError> {
        let patience = self.options.store.timings.lease_duration();
        self.within(patience, true).await
    }

    /// Waits until all contenders of this lock and of its clones have ended: until each guard and
    /// each acquisition that was dropped has left the lock, or its entry is left to expire.
    pub async fn idle(&self) {
        let mut contenders = self.contenders.subscribe();
        // The sender is in `self`.
        let _ = contenders.wait_for(|contenders| *contenders == 0).await;
    }

    async fn within(&self, wait: Duration, non_blocking: bool) -> Result<LockGuard, LockError> {
        let mut waiting = self.start(non_blocking)?;
        let held = match tokio::time::timeout(wait, waiting.held()).await {
            Ok(held) => held,
            // The lock may have been granted at this very moment.
            Err(_) if waiting.authority().is_some() => Ok(()),
            Err(_) if waiting.is_kept_by_others() => Err(LockError::TimedOut),
            Err(_) => Err(LockError::Unreachable {
                failure: waiting.failure(),
            }),
        };
        waiting.concluded(held).await
    }

    fn start(&self, non_blocking: bool) -> Result<LockGuard, LockError> {
        let mut options = self.options.clone();
        options.non_blocking = non_blocking;
        {
            let cache = self.cache.lock();
            let cache = cache.unwrap_or_else(PoisonError::into_inner);
            options.token_remembered = cache.token_highest;
            options.observations = cache.observations.clone();
        }
        let mode = options.mode;
        let surfaces = SaveObservations {
            cache: Arc::clone(&self.cache),
            before: options.observations.clone(),
            health: watch::channel(StoreHealth::default()).0,
            _running: RunningContender::of(&self.contenders),
        };
        let health = surfaces.health.subscribe();
        let renew_deadline = options.store.timings.renew_deadline();
        let withdrawal_max = 2 * options.store.timings.operation_timeout();
        let locker = Locker::start_with(options, Some(&self.client), surfaces)?;
        let status = locker.status();
        Ok(LockGuard {
            locker,
            status,
            health,
            mode,
            renew_deadline,
            withdrawal_max,
            name: self.options.name.clone(),
            may_have_begun: false,
        })
    }
}

/// An acquired lock. Dropping it releases the lock in the background, provided that the runtime
/// still runs; prefer [`LockGuard::release`].
#[must_use = "dropping it releases the lock"]
pub struct LockGuard {
    locker: Locker,
    status: watch::Receiver<LockStatus>,
    health: watch::Receiver<StoreHealth>,
    renew_deadline: Duration,
    /// Maximum time to wait for the withdrawal of an acquisition that failed.
    withdrawal_max: Duration,
    name: ResourceName,
    mode: LockMode,
    /// True once the program has the guard, so that work may have begun under it.
    may_have_begun: bool,
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("name", &self.name)
            .field("status", &*self.status.borrow())
            .finish_non_exhaustive()
    }
}

impl Drop for LockGuard {
    /// Withdraws an acquisition that was dropped before it returned the guard: its place is not
    /// kept, even if the lock was granted meanwhile.
    fn drop(&mut self) {
        if !self.may_have_begun {
            self.locker.request_to_give_up();
        }
    }
}

impl LockGuard {
    /// Returns the guard of an acquisition, or waits for the withdrawal if it failed.
    async fn concluded(mut self, held: Result<(), LockError>) -> Result<Self, LockError> {
        let Err(error) = held else {
            self.may_have_begun = true;
            return Ok(self);
        };
        let withdrawn = async {
            self.locker.give_up().await;
            self.locker.wait().await
        };
        let _ = tokio::time::timeout(self.withdrawal_max, withdrawn).await;
        Err(error)
    }

    /// Returns true if other contenders, and not the store, keep the lock from this one.
    fn is_kept_by_others(&self) -> bool {
        let now = leasehold_clock::boot_now();
        let status = self.status.borrow();
        let health = self.health.borrow();
        health.is_kept_by_others(&status, now, self.renew_deadline)
    }

    /// Returns the reason why the store keeps the lock from this contender, as far as known.
    fn failure(&self) -> Option<Failure> {
        let health = self.health.borrow();
        if let Some(failure) = health.failure() {
            return Some(failure.clone());
        }
        let doubt = health.doubt(leasehold_clock::boot_now());
        let doubt = doubt.map(|left| {
            let left = format!(
                "holders that it does not show may exist for {} s",
                left.as_secs()
            );
            Failure::new(
                "lock document is older than before (restored or rolled back)",
                left,
            )
        });
        doubt.or_else(|| self.locker.last_failure())
    }

    /// Returns the authority at this instant; `None` if the lock was lost.
    pub fn authority(&self) -> Option<Authority> {
        self.locker.authority()
    }

    /// Returns the number of the held slot, from 0; `None` if the lock has no slots, or was lost.
    /// No two holders share a slot at any instant.
    pub fn slot(&self) -> Option<u32> {
        let status = self.status.borrow().at(leasehold_clock::boot_now());
        match status.standing {
            Standing::Held(_) => status.slot,
            _ => None,
        }
    }

    /// Returns a receiver of the status, which contains the deadline.
    pub fn status(&self) -> watch::Receiver<LockStatus> {
        self.locker.status()
    }

    /// Waits until the lock is lost. Cancel-safe, so it can run next to the work in a `select!`.
    pub async fn lost(&self) -> Loss {
        let mut status = self.status.clone();
        let lost = |status: &LockStatus| match status.standing {
            Standing::Lost(loss) | Standing::Ended(End::Lost(loss)) => Some(loss),
            _ => None,
        };
        let found = status.wait_for(|status| lost(status).is_some()).await;
        // A contender that failed has no authority after its deadline.
        found
            .ok()
            .and_then(|status| lost(&status))
            .unwrap_or(Loss::Deadline)
    }

    /// Updates one document of a collection of your own, unless a newer holder of this exclusive
    /// lock has written it: see [`fenced`].
    ///
    /// # Errors
    /// If the lock is not held at this instant, or the write was refused, matched nothing, or is
    /// not known to be applied.
    pub async fn update_one<T: Send + Sync>(
        &self,
        collection: &Collection<T>,
        matching: Document,
        change: impl Into<UpdateModifications>,
    ) -> Result<(), FencedError> {
        if self.mode != LockMode::Exclusive {
            return Err(FencedError::NotExclusive);
        }
        let authority = self.authority().ok_or(FencedError::NotHeld)?;
        let fence = Fence::new(self.name.clone(), authority.token);
        fenced::update_one(collection, matching, change, &fence).await
    }

    /// Releases the lock after the work under it is over. Returns when the release is acknowledged.
    ///
    /// # Errors
    /// [`LockError::Lost`] if the lock was lost before, [`LockError::Unconfirmed`] if the store did
    /// not confirm the release within the lease duration, or if the contender failed.
    pub async fn release(self) -> Result<(), LockError> {
        self.locker.release().await;
        self.released().await
    }

    /// Releases the lock like [`LockGuard::release`], and records that the work succeeded, for
    /// [`Lock::once_per`].
    ///
    /// # Errors
    /// [`LockError::Lost`] if the lock was lost before, [`LockError::Unconfirmed`] if the store did
    /// not confirm the release within the lease duration, or if the contender failed.
    pub async fn succeed(self) -> Result<(), LockError> {
        self.locker.succeed().await;
        self.released().await
    }

    async fn released(mut self) -> Result<(), LockError> {
        match self.finished().await?.end {
            End::Lost(loss) => Err(LockError::Lost(loss)),
            End::Unconfirmed => Err(LockError::Unconfirmed),
            _ => Ok(()),
        }
    }

    async fn finished(&mut self) -> Result<Finished, LockError> {
        self.locker.wait().await.map_err(LockError::Fault)
    }

    /// Waits until the lock is held.
    async fn held(&mut self) -> Result<(), LockError> {
        let refused = refused(self.health.clone(), self.locker.status());
        tokio::select! {
            biased;
            held = decided(&mut self.locker, &mut self.status) => held,
            failure = refused => Err(LockError::Refused { failure }),
        }
    }
}

/// Waits until the store refuses the calls of a contender without a place. One in the queue goes on,
/// because credentials may just be rotating.
async fn refused(
    mut health: watch::Receiver<StoreHealth>,
    status: watch::Receiver<LockStatus>,
) -> Failure {
    loop {
        let refusal = health
            .borrow_and_update()
            .refusal(&status.borrow())
            .cloned();
        if let Some(failure) = refusal {
            return failure;
        }
        if health.changed().await.is_err() {
            // The contender has ended, which its status shows.
            std::future::pending().await
        }
    }
}

/// Waits until a contender holds the lock or has ended.
async fn decided(
    locker: &mut Locker,
    status: &mut watch::Receiver<LockStatus>,
) -> Result<(), LockError> {
    let decided = status.wait_for(|status| match status.standing {
        Standing::Held(_) => status.authority_at(leasehold_clock::boot_now()).is_some(),
        Standing::Lost(_) | Standing::Ended(_) => true,
        Standing::Joining | Standing::Waiting { .. } | Standing::Leaving => false,
    });
    let end = match decided.await.map(|status| status.standing.clone()) {
        Ok(Standing::Held(_)) => return Ok(()),
        Ok(Standing::Lost(loss)) => return Err(LockError::Lost(loss)),
        Ok(Standing::Ended(end)) => end,
        // The contender failed, or ended in between; its task returns the result.
        Ok(_) | Err(_) => locker.wait().await.map_err(LockError::Fault)?.end,
    };
    Err(match end {
        End::Busy { ahead, .. } => LockError::Busy { ahead },
        End::WrongSlots { has } => LockError::WrongSlots { has },
        End::Foreign { why } => LockError::Foreign { why },
        End::Skipped { ago } => LockError::Skipped { ago },
        End::TokensExhausted => LockError::TokensExhausted,
        End::Lost(loss) => LockError::Lost(loss),
        End::Unconfirmed => LockError::Unconfirmed,
        End::Released | End::GaveUp => LockError::TimedOut,
    })
}
