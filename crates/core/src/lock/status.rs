//! What a contender publishes: how it stands, with a deadline.

use super::document::Mode;
use crate::election::{Authority, BootTime, Claim, Identity, Session, Token, WallMillis};

/// Entries ahead that a status names, of holders and of those who wait: as
/// many as a person reads.
pub const AHEAD_SHOWN_MAX: usize = 16;

/// Why a lock that was held is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Loss {
    /// No renewal was acknowledged in time.
    Deadline,
    /// The entry is not in the document any more: it was swept or broken.
    Rejected,
    /// The document lost what was acknowledged.
    StoreWentBack,
}

impl Loss {
    /// The word in logs and answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deadline => "deadline",
            Self::Rejected => "rejected",
            Self::StoreWentBack => "store_went_back",
        }
    }
}

/// How a contender ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// It held the lock and gave it back.
    Released,
    /// It held the lock and lost it.
    Lost(Loss),
    /// It was told to give up before it held the lock.
    GaveUp,
    /// It would have had to wait for these.
    Busy {
        /// How many hold or were granted.
        holding: usize,
        /// How many wait.
        waiting: usize,
        /// Who holds, then who waits, the first [`AHEAD_SHOWN_MAX`] of each.
        ahead: Vec<Ahead>,
    },
    /// The lock is taken with another number of slots; 0: exclusive and shared.
    WrongSlots {
        /// How many it has.
        has: u32,
    },
    /// The document of this name is no lock of this schema (I11).
    Foreign {
        /// Why, for people.
        why: String,
    },
    /// The document's token cannot grow any more.
    TokensExhausted,
}

/// Somebody ahead of this contender.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ahead {
    /// Its name.
    pub identity: Identity,
    /// How it holds or wants to hold.
    pub mode: Mode,
    /// Its token, if it holds.
    pub token: Option<Token>,
    /// Whether it is among the holders: it holds or was granted.
    pub holds: bool,
    /// When it joined, by its own wall clock; for people.
    pub since: WallMillis,
}

/// How a contender stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It is not known to be in the document.
    Joining,
    /// It waits, or was granted and confirms that.
    Waiting {
        /// How many in the queue come before it, as the last reply showed.
        position: usize,
        /// How many hold or were granted.
        holding: usize,
        /// Who holds, then who waits before it, the first [`AHEAD_SHOWN_MAX`] of each.
        ahead: Vec<Ahead>,
    },
    /// It holds the lock until the deadline.
    Held(Authority),
    /// It held the lock; what ran under it has to end.
    Lost(Loss),
    /// Its entry is being taken out.
    Leaving,
    /// All is done.
    Ended(End),
}

/// What to publish. Ask [`Status::at`] before you show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// How it stands.
    pub standing: Standing,
    /// When it came to stand so.
    pub since: BootTime,
    /// Its claim; new after each join at the tail.
    pub claim: Claim,
    /// This start, for people.
    pub session: Session,
    /// The highest token of this lock that it has seen.
    pub token_highest: Token,
    /// Whether the store has answered since the start.
    pub store_reached: bool,
}

impl Status {
    /// The truth at `now`: a holder past its deadline has lost the lock.
    pub fn at(&self, now: BootTime) -> Self {
        let mut status = self.clone();
        if let Standing::Held(authority) = self.standing
            && authority.valid_until <= now
        {
            status.standing = Standing::Lost(Loss::Deadline);
            status.since = authority.valid_until;
        }
        status
    }

    /// What it may do at `now`; `None`: nothing.
    pub fn authority_at(&self, now: BootTime) -> Option<Authority> {
        match self.standing {
            Standing::Held(authority) => Some(authority).filter(|a| a.valid_until > now),
            Standing::Joining
            | Standing::Waiting { .. }
            | Standing::Lost(_)
            | Standing::Leaving
            | Standing::Ended(_) => None,
        }
    }
}
