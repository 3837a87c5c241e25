//! What is sent to a lock's document, and what can become of it.

use super::document::{Found, Mode};
use crate::election::{Claim, Declared, Revision, Session, Token};

/// What a join appends. The store adds the name and the dates.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Joining {
    /// The claim, new for each place in the queue.
    pub claim: Claim,
    /// The owner's start.
    pub session: Session,
    /// How it wants to hold.
    pub mode: Mode,
    /// Fresh for each attempt.
    pub revision: Revision,
    /// How many may hold; 0: exclusive and shared.
    pub slots: u32,
    /// What others are told to wait.
    pub lease_duration: Declared,
}

/// Who writes, where the write may grant the writer itself: its own write is
/// its confirmation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Writer {
    /// Its claim.
    pub claim: Claim,
    /// A fresh revision, written if the writer is granted by this very write.
    pub revision: Revision,
}

/// An entry as somebody saw it: it is swept only while it is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Seen {
    /// The entry.
    pub claim: Claim,
    /// Its revision.
    pub revision: Revision,
}

/// Why an entry ended, in the lock's history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ending {
    /// Its owner gave it up.
    Released,
    /// It was unchanged for its lease duration, as a waiter observed.
    Expired,
    /// An operator broke the lock.
    Broken,
}

impl Ending {
    /// The word in the history.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::Expired => "expired",
            Self::Broken => "broken",
        }
    }
}

/// One write or read. Each write that changes membership also grants, in the
/// same update; the filters are those of `docs/locks.md`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Insert the document if absent, empty, with this token.
    Create {
        /// The highest token seen.
        seen: Token,
    },
    /// Append me to the queue, and grant.
    Join {
        /// What is appended.
        entry: Joining,
        /// The highest token seen.
        seen: Token,
        /// Only where that grants me at once: an empty queue and a place free.
        at_once: bool,
    },
    /// Prolong an entry, or confirm a grant.
    Renew {
        /// My claim.
        claim: Claim,
        /// The new revision.
        revision: Revision,
        /// Every revision that this claim has sent so far and that may be
        /// stored; at most 128.
        mine: Vec<Revision>,
        /// The highest token seen.
        seen: Token,
    },
    /// Take me out, and grant.
    Leave {
        /// My claim.
        claim: Claim,
        /// The highest token seen.
        seen: Token,
    },
    /// Take out every entry that still matches, and grant.
    Sweep {
        /// The entries, each unchanged for long enough.
        entries: Vec<Seen>,
        /// The sweeping waiter; `None`: an operator.
        me: Option<Writer>,
        /// What the history says.
        ending: Ending,
        /// The highest token seen.
        seen: Token,
    },
    /// Take out these claims whatever their revision, and grant: voids the exclusion.
    Break {
        /// The claims that the operator was shown.
        claims: Vec<Claim>,
        /// The highest token seen.
        seen: Token,
    },
    /// Read the document from the primary.
    Read {
        /// Linearizable instead of majority.
        confirm: bool,
    },
}

impl Operation {
    /// The word used in logs.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Create { .. } => "create",
            Self::Join { at_once: false, .. } => "join",
            Self::Join { at_once: true, .. } => "try",
            Self::Renew { .. } => "renew",
            Self::Leave { .. } => "leave",
            Self::Sweep { .. } => "sweep",
            Self::Break { .. } => "break",
            Self::Read { .. } => "read",
        }
    }
}

/// What became of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Acknowledged by a majority, with the document after it (for a read: as read).
    Applied(Found),
    /// The filter did not match (for a create: the document exists).
    Rejected,
    /// Provably never sent.
    Failed,
    /// Everything else: it may have been applied, or may land later (I7).
    Unknown,
}

/// News of a lock's change stream. Hints: they never grant authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Hint {
    /// It is open: what concerns the watched claim will be told. A read must follow.
    Opened,
    /// It answered without news.
    Alive,
    /// The watched claim was granted: confirm at once.
    Granted,
    /// The watched claim is at the head of the queue.
    Next,
    /// Something else changed that only a read can tell.
    Changed,
    /// It is closed, or was never to be had: poll.
    Lost,
}
