use std::time::Duration;

use super::{EntryMode, FoundLock, Grant, WorkKey};
use crate::claim::Outcome;
use crate::election::{Claim, Declared, Revision, Session, Token};
use crate::named::named;

/// Entry that a join appends. The store adds the name and the dates.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct NewEntry {
    /// The claim. Each join at the tail has a new claim.
    pub claim: Claim,
    /// Session of the owner.
    pub session: Session,
    /// Requested mode.
    pub mode: EntryMode,
    /// Revision. Each attempt has a new revision.
    pub revision: Revision,
    /// Number of slots; 0 for exclusive and shared modes.
    pub slots: u32,
    /// Declared duration. Others wait this long before they consider the entry expired.
    pub lease_duration: Declared,
}

/// Sender of a write that may grant the lock to this sender. The grant then counts as confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Writer {
    /// Claim of the writer.
    pub claim: Claim,
    /// New revision, stored if this write grants the sender the lock.
    pub revision: Revision,
}

/// An entry as observed. It is evicted only if it is still unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct EntryVersion {
    /// Claim of the entry.
    pub claim: Claim,
    /// Revision of the entry.
    pub revision: Revision,
}

named! {
    /// Reason why an entry ended, for the lock's history.
    pub enum Ending {
        /// The owner released the entry.
        Released = "released",
        /// Another contender observed the entry unchanged for its lease duration.
        Expired = "expired",
        /// An operator broke the lock.
        Broken = "broken",
    }
}

/// One write or read. Each write that changes the holders or the queue also grants free capacity to
/// waiters, in the same update. `docs/locks.md` describes the filters.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum LockOperation {
    /// Insert an empty document with this token, unless the lock already has a document.
    Create {
        /// Highest token seen.
        seen: Token,
    },
    /// Append this contender to the queue, and grant free capacity to waiters.
    Join {
        /// Entry to append.
        entry: NewEntry,
        /// Highest token seen.
        seen: Token,
        /// Join only if the document's token is not lower. The document was restored otherwise, and
        /// this write would raise its token, which hides the loss.
        #[cfg_attr(feature = "serde", serde(default))]
        token_min: Token,
        /// Join only if the queue is empty and the lock has free capacity.
        non_blocking: bool,
    },
    /// Extend an entry, or confirm a grant.
    Renew {
        /// Claim of this contender.
        claim: Claim,
        /// New revision.
        revision: Revision,
        /// Every revision that this claim has sent and that may be stored; at most 128.
        mine: Vec<Revision>,
        /// Highest token seen while this claim did not hold the lock. An unconfirmed grant whose
        /// token is not higher gets a new token.
        seen: Token,
        /// Minimum hold, or the remaining part of it; `None` leaves the entry's value unchanged.
        #[cfg_attr(feature = "serde", serde(rename = "at_least"))]
        min_hold: Option<Duration>,
    },
    /// Mark the work as done. The entry stays among the holders for `min_hold`, without authority.
    Keep {
        /// Claim of this contender.
        claim: Claim,
        /// New revision.
        revision: Revision,
        /// Every revision that this claim has sent and that may be stored; at most 128.
        mine: Vec<Revision>,
        /// Remaining minimum hold.
        #[cfg_attr(feature = "serde", serde(rename = "at_least"))]
        min_hold: Duration,
        /// Key of the work, to record its success.
        success: Option<WorkKey>,
    },
    /// Remove this contender's entry, and grant free capacity to waiters.
    Leave {
        /// Claim of this contender.
        claim: Claim,
        /// Every revision that this claim has sent and that may be stored; at most 128.
        mine: Vec<Revision>,
        /// Highest token seen.
        seen: Token,
        /// Key of the work, to record its success.
        success: Option<WorkKey>,
        /// Number of slots that this contender requests; 0 if the lock has no slots.
        slots: u32,
    },
    /// Remove every entry that still matches, and grant free capacity to waiters. Without
    /// `entries`, the write only grants: to the sender if it waits, or to any waiter if the sender
    /// has no entry.
    Evict {
        /// Entries to remove, each unchanged for long enough.
        entries: Vec<EntryVersion>,
        /// The evicting waiter; `None` if the sender does not wait.
        me: Option<Writer>,
        /// Reason to record in the history.
        ending: Ending,
        /// Highest token seen.
        seen: Token,
    },
    /// Remove these claims regardless of revisions, and grant free capacity. Voids mutual
    /// exclusion.
    Break {
        /// Claims that were shown to the operator.
        claims: Vec<Claim>,
        /// Highest token seen.
        seen: Token,
    },
    /// Read the document from the primary.
    Read {
        /// True for a linearizable read instead of a majority read.
        confirm: bool,
    },
}

impl LockOperation {
    /// Returns the name used in logs.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Create { .. } => "create",
            Self::Join {
                non_blocking: false,
                ..
            } => "join",
            Self::Join {
                non_blocking: true, ..
            } => "try",
            Self::Renew { .. } => "renew",
            Self::Keep { .. } => "keep",
            Self::Leave { .. } => "leave",
            Self::Evict { .. } => "sweep",
            Self::Break { .. } => "break",
            Self::Read { .. } => "read",
        }
    }
}

/// Outcome of an operation on a lock.
pub type LockOutcome = Outcome<FoundLock>;

/// Majority-acknowledged event of a lock's change stream. Except for a grant, events are hints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Hint {
    /// The stream is open and reports events that concern the watched claim.
    Opened {
        /// True if the stream reports every event since the join; otherwise a read must follow.
        since_join: bool,
    },
    /// The stream answered without an event.
    Alive,
    /// The watched claim was granted. `None` (from an older version) requires a confirmation.
    Granted(Option<Grant>),
    /// The watched claim is at the head of the queue.
    Next,
    /// Another change, which only a read can show.
    Changed,
    /// The stream is closed or could not be opened, so the contender must poll.
    Lost,
}
