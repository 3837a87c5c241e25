//! The lock document. Its dates do not decide which entries may hold the lock.

use std::sync::Arc;
use std::time::Duration;

use crate::election::{
    Claim, Declared, ForeignDocument, Identity, NameError, Revision, Session, Token, WallMillis,
    checked, text,
};
use crate::named::named;

/// Maximum number of entries that hold the lock or were granted it. They take about 60 kB in total.
pub const HOLDERS_MAX: usize = 256;
/// Maximum number of waiting entries. A join to a full queue is rejected.
pub const QUEUE_MAX: usize = 512;
/// Maximum number of slots of a semaphore.
pub const SLOTS_MAX: u32 = 256;
/// Upper limit of a minimum hold.
pub const MIN_HOLD_MAX: Duration = Duration::from_secs(24 * 3600);

named! {
    /// Mode in which an entry wants to hold the lock.
    pub enum EntryMode {
        /// Excludes every other holder.
        Exclusive = "exclusive",
        /// Shared with other readers; excludes an exclusive holder.
        Shared = "shared",
        /// One of the lock's N slots.
        Slot = "slot",
    }
}

/// One claim on a lock: waiting, granted or holding.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Entry {
    /// Random id of the entry. Each join at the tail has a new id.
    pub claim: Claim,
    /// The owner of the entry.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub owner: EntryOwner,
    /// Requested mode.
    pub mode: EntryMode,
    /// Id of the owner's last write. Only the owner's writes change the revision.
    pub revision: Revision,
    /// Others consider the entry expired after this time without a change of the entry.
    pub lease_duration: Declared,
    /// Fencing token of a holder; `None` after a grant by an older version, until it is confirmed.
    pub token: Option<Token>,
    /// Revision at the grant. While it equals `revision`, the grant is unconfirmed.
    pub granted_revision: Option<Revision>,
    /// Number of the held slot, from 0; `None` after a grant by an older version.
    pub slot: Option<u32>,
    /// Remaining minimum hold as of the owner's last write; once the work is done, as of this
    /// reply. Zero until the owner may hold the lock.
    #[cfg_attr(feature = "serde", serde(rename = "at_least"))]
    pub min_hold: Duration,
    /// True if the work is done and the entry stays for `min_hold` without authority.
    #[cfg_attr(feature = "serde", serde(rename = "is_over"))]
    pub work_done: bool,
}

impl Entry {
    /// Returns true if the last renewal is older than the lease duration. Informational, because
    /// this compares the owner's wall clock with the store's clock.
    pub(super) fn is_silent(&self, store_now: WallMillis) -> bool {
        let renewed_at = self.owner.renewed_at;
        let age = u64::try_from(store_now.0.saturating_sub(renewed_at.0)).unwrap_or_default();
        let is_dated = ![store_now, renewed_at].contains(&WallMillis(0));
        is_dated && Duration::from_millis(age) > self.lease_duration.duration()
    }
}

/// Owner of an entry; informational.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct EntryOwner {
    /// Name of the owner.
    pub identity: Identity,
    /// Session of the owner.
    pub session: Session,
    /// Time of the join by the owner's wall clock. For a holder, time of the grant by the store's
    /// clock, unless an older version granted the lock.
    pub acquired_at: WallMillis,
    /// Time of the last renewal by the owner's wall clock.
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
    /// Name of each slot's newest owner. A returning owner gets its slot back if the slot is free.
    pub slot_owners: Vec<Option<Identity>>,
    /// Entries that hold the lock or were granted it.
    pub holders: Vec<Entry>,
    /// Waiting entries, in order.
    pub queue: Vec<Entry>,
    /// Last success of each key, oldest first.
    pub successes: Vec<Success>,
    /// Time of this reply by the store's clock; zero if unknown. Not stored.
    pub store_now: WallMillis,
}

impl LockDocument {
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
    /// A foreign document, which must not be changed (I11).
    Foreign(ForeignDocument),
}

/// Maximum number of keys whose last success is kept. Beyond it, the oldest success is dropped.
pub const SUCCESSES_MAX: usize = 128;
const KEY_LENGTH_MAX: usize = 128;

/// Name of one piece of work that is done under a lock.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "String", into = "String"))]
pub struct WorkKey(Arc<str>);

impl WorkKey {
    /// Checks a key: 1 to 128 bytes without control characters.
    pub fn new(key: impl Into<String>) -> Result<Self, NameError> {
        let key = key.into();
        let length = (1..=KEY_LENGTH_MAX).contains(&key.len());
        let legal = length && !key.chars().any(char::is_control);
        checked(key, legal, "1 to 128 bytes without control characters").map(Self)
    }
}

text! { WorkKey }

/// The key of a lock that does only one piece of work.
impl Default for WorkKey {
    fn default() -> Self {
        Self("default".into())
    }
}

/// The last success of a piece of work.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Success {
    /// Key of the work.
    pub key: WorkKey,
    /// Time at which the store recorded the success, by the store's clock.
    pub at: WallMillis,
}

/// Work that is skipped if it succeeded recently.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct OncePer {
    /// Period after a success in which the work is skipped.
    pub period: Duration,
    /// Key of the work.
    pub key: WorkKey,
}
