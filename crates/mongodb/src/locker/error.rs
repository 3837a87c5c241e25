//! Reasons why a program does not hold a lock.

use std::io;
use std::time::Duration;

use crate::store::Failure;
use leasehold_core::lock::{Ahead, End, Loss};

/// Reason why a lock is not held, or was lost.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Others held the lock during the whole wait, or filled its queue.
    #[error("lock not acquired: held by others during the whole wait")]
    TimedOut,
    /// The wait ended because of the store: it did not answer, refused the writes, or did not
    /// acknowledge them.
    #[error("lock not acquired: {}", .failure.as_ref().map_or("MongoDB did not answer".into(), Failure::to_string))]
    Unreachable {
        /// The reason, if known.
        failure: Option<Failure>,
    },
    /// The store refuses the calls until its configuration, or this program's, changes: the
    /// credentials, a missing right, another deployment.
    #[error("lock not acquired: {failure}")]
    Refused {
        /// The reason.
        failure: Failure,
    },
    /// [`Lock::once_per`](super::Lock::once_per) on a shared lock or a lock with slots: several
    /// holders could begin before the first succeeds.
    #[error("lock not acquired: once_per requires an exclusive lock")]
    NotExclusive,
    /// The lock cannot be acquired without waiting.
    #[error("lock not acquired: held by others")]
    Busy {
        /// The holders and waiters ahead.
        ahead: Vec<Ahead>,
    },
    /// The lock is in use with another number of slots; 0 means exclusive and shared.
    #[error("lock not acquired: in use {}", with_slots(*.has))]
    WrongSlots {
        /// The number of slots in use.
        has: u32,
    },
    /// The document of this name is not a lock of this schema.
    #[error("lock not acquired: {why}")]
    Foreign {
        /// The reason, for humans.
        why: String,
    },
    /// The work succeeded recently: see [`Lock::once_per`](super::Lock::once_per).
    #[error("lock not acquired: the work succeeded {} s ago", .ago.as_secs())]
    Skipped {
        /// Time since the success, by the clock of the store.
        ago: Duration,
    },
    /// The document's token has reached its maximum.
    #[error("lock not acquired: its token has reached the maximum")]
    TokensExhausted,
    /// The lock was held and lost.
    #[error("lock lost: {}", .0.as_str())]
    Lost(Loss),
    /// The store did not confirm the release. The entry expires by itself; a success may not be
    /// recorded.
    #[error("MongoDB did not confirm the release of the lock")]
    Unconfirmed,
    /// The contender failed.
    #[error("the contender for the lock failed")]
    Fault(#[source] io::Error),
}

impl LockError {
    /// Returns the reason why a contender that has ended did not acquire the lock.
    pub(super) fn of(end: End) -> Self {
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
