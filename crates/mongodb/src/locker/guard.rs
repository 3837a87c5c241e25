//! A lock for programs: acquire, work, release.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mongodb::Collection;
use mongodb::bson::Document;
use mongodb::options::UpdateModifications;
use tokio::sync::watch;

use super::{Finished, LockSurfaces, Locker, LockerOptions};
use crate::fenced::{self, FencedError};
use crate::store::mongo::StoreOptions;
use leasehold_core::election::{Authority, LeaseName, Token};
use leasehold_core::lock::{
    Ahead, AtLeast, End, Loss, Observations, OncePer, Slots, Standing, Status, Want, WorkKey,
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
/// use leasehold_mongodb::election::{Identity, LeaseName};
/// use leasehold_mongodb::locker::Lock;
/// use leasehold_mongodb::store::mongo::StoreOptions;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let uri = "mongodb://localhost/?replicaSet=rs0";
/// let store = StoreOptions::new(uri, Identity::new("host-1")?);
/// let lock = Lock::new(store, LeaseName::new("nightly-report")?);
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
/// new one each time.
#[derive(Clone)]
pub struct Lock {
    options: LockerOptions,
    cache: Arc<Mutex<ObservationCache>>,
}

/// Observations of this program's contenders, for the next one.
#[derive(Debug, Default)]
struct ObservationCache {
    token_highest: Token,
    observations: Observations,
}

/// Saves the observations of a contender when it finishes.
struct SaveObservations {
    cache: Arc<Mutex<ObservationCache>>,
    /// The observations with which the contender started.
    before: Observations,
}

impl LockSurfaces for SaveObservations {
    fn finished(&mut self, finished: &Finished) {
        // A poisoned value is consistent, because it is only replaced as a whole.
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        // Another contender of this lock may have saved more meanwhile.
        *cache = ObservationCache {
            token_highest: cache.token_highest.max(finished.token_highest),
            observations: finished
                .observations
                .merged(&self.before, &cache.observations),
        };
    }
}

/// Reason why a lock is not held, or was lost.
#[derive(Debug)]
#[non_exhaustive]
pub enum LockError {
    /// Others held the lock during the whole wait.
    TimedOut,
    /// The store did not answer during the whole wait.
    Unreachable,
    /// The lock cannot be acquired without waiting.
    Busy {
        /// The holders and waiters ahead.
        ahead: Vec<Ahead>,
    },
    /// The lock is in use with another number of slots; 0 means exclusive and shared.
    WrongSlots {
        /// The number of slots in use.
        has: u32,
    },
    /// The document of this name is not a lock of this schema.
    Foreign {
        /// The reason, for humans.
        why: String,
    },
    /// The work succeeded recently: see [`Lock::once_per`].
    Skipped {
        /// Time since the success, by the clock of the store.
        ago: Duration,
    },
    /// The document's token has reached its maximum.
    TokensExhausted,
    /// The lock was held and lost.
    Lost(Loss),
    /// The store did not confirm the release. The entry expires by itself; a success may not be
    /// recorded.
    Unconfirmed,
    /// The contender failed.
    Fault(io::Error),
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut => {
                f.write_str("lock not acquired: held by others during the whole wait")
            }
            Self::Unreachable => f.write_str("lock not acquired: MongoDB did not answer"),
            Self::Busy { .. } => f.write_str("lock not acquired: held by others"),
            Self::WrongSlots { has: 0 } => f.write_str("lock not acquired: in use without slots"),
            Self::WrongSlots { has } => write!(f, "lock not acquired: in use with {has} slots"),
            Self::Foreign { why } => write!(f, "lock not acquired: {why}"),
            Self::Skipped { ago } => write!(
                f,
                "lock not acquired: the work succeeded {} s ago",
                ago.as_secs()
            ),
            Self::TokensExhausted => {
                f.write_str("lock not acquired: its token has reached the maximum")
            }
            Self::Lost(loss) => write!(f, "lock lost: {}", loss.as_str()),
            Self::Unconfirmed => f.write_str("MongoDB did not confirm the release of the lock"),
            Self::Fault(_) => f.write_str("the contender for the lock failed"),
        }
    }
}

impl std::error::Error for LockError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Fault(error) => Some(error),
            Self::TimedOut
            | Self::Unreachable
            | Self::Busy { .. }
            | Self::WrongSlots { .. }
            | Self::Foreign { .. }
            | Self::Skipped { .. }
            | Self::TokensExhausted
            | Self::Lost(_)
            | Self::Unconfirmed => None,
        }
    }
}

impl Lock {
    /// The exclusive lock of this name.
    pub fn new(store: StoreOptions, name: LeaseName) -> Self {
        Self {
            options: LockerOptions::new(store, name),
            cache: Arc::default(),
        }
    }

    /// Makes the lock shared, so that other readers can hold it concurrently.
    #[must_use]
    pub fn shared(mut self) -> Self {
        self.options.want = Want::Shared;
        self
    }

    /// Lets up to `slots` contenders hold the lock; all of its users must pass the same number.
    #[must_use]
    pub fn slots(mut self, slots: Slots) -> Self {
        self.options.want = Want::Slot(slots);
        self
    }

    /// Keeps the place taken for at least this long from each acquisition on, even if the work ends
    /// or the process dies: for work that must not run again too soon.
    #[must_use]
    pub fn at_least(mut self, at_least: AtLeast) -> Self {
        self.options.at_least = at_least;
        self
    }

    /// Skips the work of this key if it succeeded less than `period` ago: acquiring then fails with
    /// [`LockError::Skipped`]. [`LockGuard::succeed`] records a success. Without effect on locks
    /// that are not exclusive.
    #[must_use]
    pub fn once_per(mut self, period: Duration, key: WorkKey) -> Self {
        self.options.once_per = Some(OncePer { period, key });
        self
    }

    /// Waits until the lock is granted, without a limit. Dropping the future leaves the queue.
    ///
    /// # Errors
    /// If waiting would not help.
    pub async fn acquire(&self) -> Result<LockGuard, LockError> {
        let mut waiting = self.start(false);
        waiting.held().await?;
        Ok(waiting.begun())
    }

    /// Waits until the lock is granted, for at most `wait`.
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

    async fn within(&self, wait: Duration, non_blocking: bool) -> Result<LockGuard, LockError> {
        let mut waiting = self.start(non_blocking);
        match tokio::time::timeout(wait, waiting.held()).await {
            Ok(held) => held.map(|()| waiting.begun()),
            // The lock may have been granted at this very moment.
            Err(_) if waiting.authority().is_some() => Ok(waiting.begun()),
            Err(_) if waiting.status.borrow().store_reached => Err(LockError::TimedOut),
            Err(_) => Err(LockError::Unreachable),
        }
    }

    fn start(&self, non_blocking: bool) -> LockGuard {
        let mut options = self.options.clone();
        options.non_blocking = non_blocking;
        {
            let cache = self.cache.lock();
            let cache = cache.unwrap_or_else(PoisonError::into_inner);
            options.token_remembered = cache.token_highest;
            options.observations = cache.observations.clone();
        }
        let want = options.want;
        let surfaces = SaveObservations {
            cache: Arc::clone(&self.cache),
            before: options.observations.clone(),
        };
        let locker = Locker::start(options, surfaces);
        let status = locker.status();
        LockGuard {
            locker,
            status,
            want,
            may_have_begun: false,
        }
    }
}

/// An acquired lock. Dropping it releases the lock in the background, provided that the runtime
/// still runs; prefer [`LockGuard::release`].
pub struct LockGuard {
    locker: Locker,
    status: watch::Receiver<Status>,
    want: Want,
    /// True once the program has the guard, so that work may have begun under it.
    may_have_begun: bool,
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
    fn begun(mut self) -> Self {
        self.may_have_begun = true;
        self
    }

    /// Returns the authority at this instant; `None` if the lock was lost.
    pub fn authority(&self) -> Option<Authority> {
        self.locker.authority()
    }

    /// Returns the number of the held slot, from 0; `None` if the lock has no slots, or was lost. No
    /// two holders have the same one at any instant.
    pub fn slot(&self) -> Option<u32> {
        let status = self.status.borrow().at(leasehold_clock::boot_now());
        match status.standing {
            Standing::Held(_) => status.slot,
            _ => None,
        }
    }

    /// Returns a receiver of the status, which contains the deadline.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.locker.status()
    }

    /// Waits until the lock is lost.
    pub async fn lost(&mut self) -> Loss {
        let lost = |status: &Status| match status.standing {
            Standing::Lost(loss) | Standing::Ended(End::Lost(loss)) => Some(loss),
            _ => None,
        };
        let found = self.status.wait_for(|status| lost(status).is_some()).await;
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
        if self.want != Want::Exclusive {
            return Err(FencedError::NotExclusive);
        }
        let authority = self.authority().ok_or(FencedError::NotHeld)?;
        fenced::update_one(collection, matching, change, authority.token).await
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
        let decided = self.status.wait_for(|status| match status.standing {
            Standing::Held(_) => status.authority_at(leasehold_clock::boot_now()).is_some(),
            Standing::Lost(_) | Standing::Ended(_) => true,
            Standing::Joining | Standing::Waiting { .. } | Standing::Leaving => false,
        });
        let end = match decided.await.map(|status| status.standing.clone()) {
            Ok(Standing::Held(_)) => return Ok(()),
            Ok(Standing::Lost(loss)) => return Err(LockError::Lost(loss)),
            Ok(Standing::Ended(end)) => end,
            // The contender failed, or ended in between; its task returns the result.
            Ok(_) | Err(_) => self.finished().await?.end,
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
}
