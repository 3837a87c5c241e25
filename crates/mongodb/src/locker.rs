//! A contender for a lock, which reports all its observations. Most programs need only [`Lock`].

mod guard;
mod host;
mod store_health;

use std::io;
use std::time::Duration;

use tokio::sync::watch;

pub use self::guard::{Lock, LockGuard};
pub use self::store_health::{StoreHealth, waits_for_others};

use self::host::LockHost;
use crate::calls::AnsweredCall;
use crate::event_loop::{EventLoop, LoopHandle};
use crate::store::mongo::lock::{ClaimHint, LockClient, MongoLockStore};
use crate::store::mongo::{CommandResult, StoreOptions};
use crate::store::{Failure, StoreEvent, StoreInfo, foreign_document};
use leasehold_clock::duration::shown;
use leasehold_core::election::{
    Authority, BootTime, ForeignDocument, ResourceName, Timings, Token,
};
use leasehold_core::lock::{
    Ahead, End, LockContender, LockInput, LockMode, LockNotice, LockStatus, Loss, MinHold,
    Observations, OncePer, Options, Standing, WentBack,
};
use leasehold_core::trace::Kind;

/// Options of a lock contender. Create options with [`LockerOptions::new`], then assign fields.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LockerOptions {
    /// The collection, the identity and the timings.
    pub store: StoreOptions,
    /// The lock's name.
    pub name: ResourceName,
    /// The requested mode; exclusive by default.
    pub mode: LockMode,
    /// Minimum time to hold the lock, even if the work ends or the process exits.
    pub min_hold: MinHold,
    /// For exclusive locks: skips work that succeeded recently ([`End::Skipped`]), and records
    /// success.
    pub once_per: Option<OncePer>,
    /// True to end as [`End::Busy`] instead of waiting.
    pub non_blocking: bool,
    /// State that earlier contenders on this machine saved in this boot.
    pub remembered: Remembered,
}

/// State that contenders for a lock save for later contenders on their machine, in the same boot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Remembered {
    /// The highest token.
    pub token: Token,
    /// The last loss of acknowledged writes, unless later writes have made up for it.
    pub went_back: Option<WentBack>,
    /// The entries of other contenders.
    pub observations: Observations,
}

impl Remembered {
    /// Adds what a contender has seen that started with `before`. Others may have saved more since
    /// then.
    #[must_use]
    pub fn merged(&self, finished: &Finished, before: &Observations) -> Self {
        Self {
            token: self.token.max(finished.token_highest),
            // If another contender has seen a higher token since, it also knows more of the loss.
            went_back: match finished.token_highest < self.token {
                true => self.went_back,
                false => finished.went_back,
            },
            observations: finished.observations.merged(before, &self.observations),
        }
    }
}

impl LockerOptions {
    /// The default options for an exclusive lock, with no state from an earlier contender.
    pub fn new(store: StoreOptions, name: ResourceName) -> Self {
        Self {
            store,
            name,
            mode: LockMode::Exclusive,
            min_hold: MinHold::NONE,
            once_per: None,
            non_blocking: false,
            remembered: Remembered::default(),
        }
    }
}

/// Callbacks for events that the status does not contain. Each does nothing by default.
pub trait LockSurfaces: Send + 'static {
    /// The lock was acquired. Arguments: the token and slot, the deadline, and the time waited.
    fn acquired(&mut self, _: (Token, Option<u32>), _: BootTime, _: Duration) {}
    /// The lock is no longer held; the work under it must end.
    fn lost(&mut self, _: Loss, _: &StoreHealth) {}
    /// An event that humans may want to see.
    fn notice(&mut self, _: &LockNotice) {}
    /// A store call was answered. The health does not reflect the answer yet.
    fn answered(&mut self, _: &AnsweredCall, _: &StoreHealth) {}
    /// The store reported an event. The contender has not handled the event yet.
    fn store_event(&mut self, _: &StoreEvent<ClaimHint>) {}
    /// The contender has finished.
    fn finished(&mut self, _: &Finished) {}
}

/// Ignores all events. For programs that only query the [`Locker`].
impl LockSurfaces for () {}

/// The result of a contender, and the state to pass to the next contender on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// The reason for the end.
    pub end: End,
    /// The highest token of the lock that the contender saw.
    pub token_highest: Token,
    /// The loss of acknowledged writes that later contenders should remember, if any.
    pub went_back: Option<WentBack>,
    /// The entries of other contenders, as this contender observed them.
    pub observations: Observations,
}

/// The result of a wait for a lock.
#[derive(Debug, PartialEq, Eq)]
pub enum LockDecision {
    /// The lock is held.
    Held(Authority),
    /// The lock was acquired, and lost before this check.
    Lost(Loss),
    /// MongoDB refuses the contender's calls and the contender has no entry, so waiting is useless.
    Refused(Failure),
    /// The contender has finished.
    Ended(End),
}

impl LockDecision {
    /// Returns the decision of an unfinished contender; `None` while the contender must wait.
    fn of(status: &LockStatus, health: &StoreHealth, now: BootTime) -> Option<Self> {
        match status.at(now).standing {
            Standing::Held(authority) => Some(Self::Held(authority)),
            Standing::Lost(loss) => Some(Self::Lost(loss)),
            _ => health.refusal(status).cloned().map(Self::Refused),
        }
    }
}

/// Reason why a lock is not held, or was lost.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Other holders kept the lock during the whole wait, or the queue stayed full.
    #[error("lock not acquired: held by others during the whole wait")]
    TimedOut,
    /// The wait ended, and MongoDB did not answer, refused the writes, or did not acknowledge them.
    #[error("lock not acquired: {}", .failure.as_ref().map_or("MongoDB did not answer".into(), Failure::to_string))]
    Unreachable {
        /// The reason, if known.
        failure: Option<Failure>,
    },
    /// MongoDB refuses the calls until the credentials, the rights or the deployment change.
    #[error("lock not acquired: {failure}")]
    Refused {
        /// The reason.
        failure: Failure,
    },
    /// [`Lock::once_per`] was used with a lock that is not exclusive. Several holders could begin
    /// the work before one succeeds.
    #[error("lock not acquired: once_per requires an exclusive lock")]
    NotExclusive,
    /// The lock cannot be acquired without waiting.
    #[error("lock not acquired: held by others")]
    Busy {
        /// The holders and waiters ahead.
        ahead: Vec<Ahead>,
    },
    /// Others use the lock with a different number of slots; 0 means exclusive and shared modes.
    #[error("lock not acquired: in use {}", with_slots(*.has))]
    WrongSlots {
        /// The number of slots that the others specify.
        has: u32,
    },
    /// The document with this name is not a lock of this schema version.
    #[error("lock not acquired: {}", foreign_document(.why, "lock"))]
    Foreign {
        /// The reason.
        why: ForeignDocument,
    },
    /// The work succeeded recently: see [`Lock::once_per`].
    #[error("lock not acquired: the work succeeded {} ago", shown(Duration::from_secs(.ago.as_secs())))]
    Skipped {
        /// Time since the success, by the server's clock.
        ago: Duration,
    },
    /// The document's token has reached its maximum.
    #[error("lock not acquired: its token has reached the maximum")]
    TokensExhausted,
    /// The lock was held and lost.
    #[error("lock lost: {}", .0.as_str())]
    Lost(Loss),
    /// MongoDB did not confirm the release or the recorded success. The entry expires by itself.
    #[error("MongoDB did not confirm the release of the lock")]
    Unconfirmed,
    /// The contender failed.
    #[error("the contender for the lock failed")]
    Fault(#[source] io::Error),
}

impl From<End> for LockError {
    fn from(end: End) -> Self {
        match end {
            End::Busy { ahead, .. } => Self::Busy { ahead },
            End::WrongSlots { has } => Self::WrongSlots { has },
            End::Foreign { why } => Self::Foreign { why },
            End::Skipped { ago } => Self::Skipped { ago },
            End::TokensExhausted => Self::TokensExhausted,
            End::Lost(loss) => Self::Lost(loss),
            End::Unconfirmed => Self::Unconfirmed,
            End::Released | End::GaveUp => Self::TimedOut,
        }
    }
}

fn with_slots(has: u32) -> String {
    match has {
        0 => "without slots".to_owned(),
        has => format!("with {has} slots"),
    }
}

/// A running contender for one lock. Dropping the handle leaves the queue or releases the lock, if
/// the runtime is still running.
///
/// Authority can end at any instant, so call [`Locker::authority`] before each external effect.
#[derive(Debug)]
#[must_use = "dropping it leaves the queue or releases the lock"]
pub struct Locker {
    contender: LoopHandle<LockContender, Finished>,
    store: MongoLockStore,
    store_info: watch::Receiver<Option<StoreInfo>>,
    health: watch::Receiver<StoreHealth>,
    name: ResourceName,
    mode: LockMode,
    timings: Timings,
}

impl Locker {
    /// Starts contending, inside a tokio runtime. Fails with [`LockError::NotExclusive`].
    pub fn start(options: LockerOptions, surfaces: impl LockSurfaces) -> Result<Self, LockError> {
        Self::start_with(options, None, surfaces)
    }

    fn start_with(
        options: LockerOptions,
        client: Option<&LockClient>,
        surfaces: impl LockSurfaces,
    ) -> Result<Self, LockError> {
        if options.once_per.is_some() && options.mode != LockMode::Exclusive {
            return Err(LockError::NotExclusive);
        }
        let contender = Options {
            identity: options.store.identity.clone(),
            mode: options.mode,
            min_hold: options.min_hold,
            once_per: options.once_per,
            timings: options.store.timings,
            non_blocking: options.non_blocking,
            watch_first: false,
            token_remembered: options.remembered.token,
            went_back: options.remembered.went_back,
            observations: options.remembered.observations,
        };
        let (store, name) = (options.store, options.name);
        let (mode, timings) = (contender.mode, contender.timings);
        let traced = (Kind::Lock, name.as_str());
        let (contender, inputs, events) =
            EventLoop::new(&store, traced, &contender, LockContender::new);
        let (store, store_info) = match client {
            Some(client) => client.store(store, name.clone(), events),
            None => MongoLockStore::new(store, name.clone(), events),
        };
        let (sender, health) = watch::channel(StoreHealth::default());
        let host = LockHost {
            store: store.clone(),
            surfaces,
            health: sender,
            watching: None,
        };
        Ok(Self {
            contender: contender.start(inputs, host),
            store,
            store_info,
            health,
            name,
            mode,
            timings,
        })
    }

    /// Returns a receiver of the contender's status. Use [`LockStatus::at`] to check its authority.
    pub fn status(&self) -> watch::Receiver<LockStatus> {
        self.contender.status.clone()
    }

    /// Returns a receiver of the deployment that stores the lock; `None` until it is known.
    pub fn store_info(&self) -> watch::Receiver<Option<StoreInfo>> {
        self.store_info.clone()
    }

    /// Returns a receiver of MongoDB's health, as this contender sees it.
    pub fn health(&self) -> watch::Receiver<StoreHealth> {
        self.health.clone()
    }

    /// Returns why MongoDB keeps this contender from acquiring the lock, if known.
    pub fn failure(&self) -> Option<Failure> {
        let health = self.health.borrow();
        let failure = health.failure().cloned();
        let doubt = || health.doubt(leasehold_clock::boot_now());
        failure.or_else(doubt).or_else(|| self.store.trouble())
    }

    /// True if a contender with this status lacks the lock because of other contenders, not because
    /// of MongoDB.
    pub fn is_kept_by_others(&self, status: &LockStatus) -> bool {
        let (now, health) = (leasehold_clock::boot_now(), self.health.borrow());
        health.is_kept_by_others(status, now, self.timings.renew_deadline())
    }

    /// Returns the previous number of slots if this contender changed it; 0 if the lock was
    /// exclusive or shared before.
    pub fn slots_before(&self) -> Option<u32> {
        self.store.slots_before()
    }

    /// Returns the authority at this instant; `None` if the lock is not held.
    pub fn authority(&self) -> Option<Authority> {
        let status = self.contender.status.borrow();
        status.authority_at(leasehold_clock::boot_now())
    }

    /// Ends the wait. If the lock is already held, releases it, so call this only if no work runs
    /// under the lock.
    pub async fn give_up(&self) {
        self.contender.send(LockInput::GiveUp).await;
    }

    /// Calls [`Locker::give_up`], and waits at most `patience` for the contender to end.
    pub async fn withdraw(&mut self, patience: Duration) {
        let withdrawn = async {
            self.give_up().await;
            self.wait().await
        };
        let _ = tokio::time::timeout(patience, withdrawn).await;
    }

    /// Releases the lock, or ends a lost claim. By calling this function, the caller confirms that
    /// no work runs under the lock.
    pub async fn release(&self) {
        self.contender.send(LockInput::Release).await;
    }

    /// Releases the lock. If the options request it, also records that the work succeeded.
    pub async fn succeed(&self) {
        self.contender.send(LockInput::Succeeded).await;
    }

    /// Sets the result that the release records in the history. Call this before the release.
    pub fn set_result(&self, result: CommandResult) {
        self.store.set_result(result);
    }

    /// Stops renewing without a release, because the work may continue. The entry expires.
    pub fn abandon(mut self) {
        if let Some(event_loop) = self.contender.task.take() {
            event_loop.abort();
        }
    }

    /// Waits until the lock is held, waiting is useless, or [`Locker::wait`] fails. Cancel safe.
    pub async fn decided(&mut self) -> io::Result<LockDecision> {
        let (mut status, mut health) = (self.status(), self.health());
        loop {
            let now = leasehold_clock::boot_now();
            let decided = LockDecision::of(
                &status.borrow_and_update(),
                &health.borrow_and_update(),
                now,
            );
            if let Some(decided) = decided {
                return Ok(decided);
            }
            tokio::select! {
                Ok(()) = status.changed() => {}
                Ok(()) = health.changed() => {}
                finished = self.wait() => return Ok(LockDecision::Ended(finished?.end)),
            }
        }
    }

    /// Waits until the contender has finished. Cancel safe. Later calls return the same result.
    /// Fails if the kernel could not create a timer or if a task panicked.
    pub async fn wait(&mut self) -> io::Result<Finished> {
        self.contender.wait().await
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::election::{Claim, Session};

    use super::*;

    #[test]
    fn a_lock_that_is_lost_before_it_is_seen_to_be_held_is_lost() {
        let now = leasehold_clock::boot_now();
        let authority = |valid_until| Authority {
            token: Token::ZERO,
            valid_until,
        };
        let later = authority(now + Duration::from_secs(1));
        for (standing, expected) in [
            (Standing::Joining, None),
            (Standing::Held(later), Some(LockDecision::Held(later))),
            (
                Standing::Held(authority(now)),
                Some(LockDecision::Lost(Loss::Deadline)),
            ),
            (
                Standing::Lost(Loss::Rejected),
                Some(LockDecision::Lost(Loss::Rejected)),
            ),
        ] {
            let status = LockStatus {
                standing,
                since: BootTime::default(),
                claim: Claim::from_bytes([0; 16]),
                session: Session::from_bytes([0; 16]),
                provisional: false,
                slot: None,
                token_highest: Token::ZERO,
                store_reached: true,
            };
            let decided = LockDecision::of(&status, &StoreHealth::default(), now);
            assert_eq!(decided, expected, "{status:?}");
        }
    }
}
