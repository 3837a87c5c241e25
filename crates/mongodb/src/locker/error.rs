//! Reasons why a program does not hold a lock.

use std::fmt;
use std::io;
use std::time::Duration;

use crate::store::Failure;
use leasehold_core::lock::{Ahead, Loss};

/// Reason why a lock is not held, or was lost.
#[derive(Debug)]
#[non_exhaustive]
pub enum LockError {
    /// Others held the lock during the whole wait, or filled its queue.
    TimedOut,
    /// The wait ended because of the store: it did not answer, refused the writes, or did not
    /// acknowledge them.
    Unreachable {
        /// The reason, if known.
        failure: Option<Failure>,
    },
    /// The store refuses the calls until its configuration, or this program's, changes: the
    /// credentials, a missing right, another deployment.
    Refused {
        /// The reason.
        failure: Failure,
    },
    /// [`Lock::once_per`](super::Lock::once_per) on a shared lock or a lock with slots: several
    /// holders could begin before the first succeeds.
    NotExclusive,
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
    /// The work succeeded recently: see [`Lock::once_per`](super::Lock::once_per).
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
            Self::Unreachable { failure: None } => {
                f.write_str("lock not acquired: MongoDB did not answer")
            }
            Self::Unreachable {
                failure: Some(failure),
            }
            | Self::Refused { failure } => write!(f, "lock not acquired: {failure}"),
            Self::NotExclusive => {
                f.write_str("lock not acquired: once_per requires an exclusive lock")
            }
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
            | Self::Unreachable { .. }
            | Self::Refused { .. }
            | Self::NotExclusive
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
