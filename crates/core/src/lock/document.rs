//! The lock document as the protocol sees it: ordered entries.
//!
//! There is no BSON here, and no date decides who may hold the lock.

use std::time::Duration;

use super::success::Success;
use crate::election::{Claim, Declared, Identity, Revision, Session, Token, WallMillis};
use crate::named::named;

/// Maximum number of entries that hold or were granted. Further readers are queued. A document with
/// this many entries has about 60 kB.
pub const HOLDERS_MAX: usize = 256;
/// Maximum number of waiting entries. A join beyond it is rejected.
pub const QUEUE_MAX: usize = 512;
/// Maximum number of slots of a semaphore.
pub const SLOTS_MAX: u32 = 256;
/// Upper limit of a minimum hold.
pub const MIN_HOLD_MAX: Duration = Duration::from_secs(24 * 3600);

named! {
    /// Mode in which an entry wants to hold the lock.
    pub enum EntryMode {
        /// Not together with any other holder.
        Exclusive = "exclusive",
        /// Together with other readers, never with an exclusive holder.
        Shared = "shared",
        /// One of the lock's N slots.
        Slot = "slot",
    }
}

/// One claim on a lock: waiting, granted or holding.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Entry {
    /// Random id, new for each place in the queue; identifies the entry.
    pub claim: Claim,
    /// The owner, as it describes itself.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub owner: EntryOwner,
    /// Requested mode.
    pub mode: EntryMode,
    /// Id of the owner's last write. Only the owner changes it, in each of its writes.
    pub revision: Revision,
    /// How long others must see the entry unchanged before they consider it expired.
    pub lease_duration: Declared,
    /// Fencing token of an entry among the holders. Older versions grant without a token; the entry
    /// then has no authority until its owner confirms it.
    pub token: Option<Token>,
    /// Revision that the grant found, if another contender granted the entry. While it equals
    /// `revision`, the grant is unconfirmed.
    pub granted_revision: Option<Revision>,
    /// Number of the slot that the entry holds, from 0, if the lock has slots. Older versions grant
    /// without one; the owner's confirmation then takes one.
    pub slot: Option<u32>,
    /// Rest of the minimum hold as of the owner's last write; zero without a minimum hold, and
    /// until the owner knows that it may hold. Others count it from the reply that first showed
    /// that write.
    #[cfg_attr(feature = "serde", serde(rename = "at_least"))]
    pub min_hold: Duration,
    /// True if the work has ended. The owner has no authority, and the place stays taken for
    /// `min_hold`.
    #[cfg_attr(feature = "serde", serde(rename = "is_over"))]
    pub work_done: bool,
}

/// Owner of an entry; informational.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct EntryOwner {
    /// Its name.
    pub identity: Identity,
    /// Its session.
    pub session: Session,
    /// Time of the join by its wall clock.
    pub acquired_at: WallMillis,
    /// Time of the last renewal by its wall clock.
    pub renewed_at: WallMillis,
}

/// A lock document of this schema.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LockDocument {
    /// The newest token.
    pub token: Token,
    /// Number of slots; 0 for a lock with exclusive and shared modes.
    pub slots: u32,
    /// Name of the newest owner of each slot, by its number. An owner that comes back gets its slot
    /// again if it is free.
    pub slot_owners: Vec<Option<Identity>>,
    /// Entries that hold the lock or were granted it.
    pub holders: Vec<Entry>,
    /// Waiting entries, in order.
    pub queue: Vec<Entry>,
    /// Last success of each key, oldest first.
    pub successes: Vec<Success>,
    /// Time of this reply by the clock of the store, for comparison with successes; zero if it is
    /// unknown. Not stored.
    pub store_now: WallMillis,
}

impl LockDocument {
    /// Returns true if a contender of this mode may hold together with the holders.
    pub(super) fn has_room(&self, mode: EntryMode, slots: u32) -> bool {
        let holders = self.holders.len();
        match mode {
            EntryMode::Exclusive => holders == 0,
            EntryMode::Shared => {
                holders < HOLDERS_MAX && self.holders.iter().all(|e| e.mode == EntryMode::Shared)
            }
            EntryMode::Slot => u32::try_from(holders).is_ok_and(|holders| holders < slots),
        }
    }
}

/// Document stored under a lock's name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum FoundLock {
    /// A lock.
    Lock(LockDocument),
    /// No document.
    Missing,
    /// A document that must not be modified (I11), with an explanation for humans.
    Foreign(String),
}
