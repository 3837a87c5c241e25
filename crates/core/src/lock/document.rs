//! The lock document as the protocol sees it: entries, in order.
//!
//! No BSON, and no dates that decide anything.

use crate::election::{Claim, Declared, Identity, Revision, Session, Token, WallMillis};

/// Entries that hold or were granted, at most: beyond it readers queue. A
/// document of this many entries has about 60 kB.
pub const HOLDERS_MAX: usize = 256;
/// Entries that wait, at most: a join beyond it is rejected.
pub const QUEUE_MAX: usize = 512;
/// The most slots that a semaphore can have.
pub const SLOTS_MAX: u32 = 256;

/// How an entry wants to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    /// Alone.
    Exclusive,
    /// Beside other readers, never beside an exclusive holder.
    Shared,
    /// One of the lock's N slots.
    Slot,
}

impl Mode {
    /// The word in the document and in answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
            Self::Slot => "slot",
        }
    }
}

/// One claim on a lock, waiting, granted or holding.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Random, new for each join; what is compared.
    pub claim: Claim,
    /// Its owner's name, for people.
    pub identity: Identity,
    /// Its owner's start, for people.
    pub session: Session,
    /// How it wants to hold.
    pub mode: Mode,
    /// Changed by its owner only, in each of its writes.
    pub revision: Revision,
    /// How long others wait before they call it dead.
    pub lease_duration: Declared,
    /// Among the holders: present once the owner's own write was the grant or
    /// confirmed it; absent: granted, without authority.
    pub token: Option<Token>,
    /// When it joined, by its own wall clock; for people.
    pub acquired_at: WallMillis,
    /// When it last renewed, by its own wall clock; for people.
    pub renewed_at: WallMillis,
}

/// A lock of this schema.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct LockDocument {
    /// The newest token.
    pub token: Token,
    /// How many may hold; 0: exclusive and shared.
    pub slots: u32,
    /// Who holds or was granted.
    pub holders: Vec<Entry>,
    /// Who waits, in order.
    pub queue: Vec<Entry>,
}

/// What is stored under a lock's name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Found {
    /// A lock.
    Lock(LockDocument),
    /// Nothing.
    Missing,
    /// A document that is not ours to touch (I11); the text says why, for people.
    Foreign(String),
}
