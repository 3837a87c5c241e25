use std::time::Duration;

use super::document::EntryMode;
use super::{EntryState, LockOperation};
use crate::claim::{Outbox, Turn};
use crate::election::{
    Authority, BootTime, CallId, Claim, ForeignDocument, Identity, Session, Token, WallMillis,
};
use crate::named::named;

/// Maximum number of holders, and of waiters ahead, in a status for humans.
pub const AHEAD_SHOWN_MAX: usize = 16;

named! {
    /// Reason why a held lock was lost.
    #[non_exhaustive]
    pub enum Loss {
        /// No renewal was acknowledged in time.
        Deadline = "deadline",
        /// The entry is no longer a holder, usually because it was evicted or broken.
        Rejected = "rejected",
        /// The document lost acknowledged writes.
        StoreRolledBack = "store_went_back",
    }
}

/// Final result of a contender. Exhaustive, because a host must map each end to an exit code.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum End {
    /// The lock was held and released.
    Released,
    /// The lock was held. Either no reply confirmed its release before the entry expired, or an
    /// earlier release may have been applied. The success may be lost.
    Unconfirmed,
    /// The lock was held and lost.
    Lost(Loss),
    /// The work was skipped because it succeeded this long ago, by the store's clock.
    Skipped {
        /// Time since the success.
        ago: Duration,
    },
    /// The contender was asked to give up before it held the lock.
    GaveUp,
    /// A non-blocking contender found these entries ahead.
    Busy {
        /// Number of entries that hold the lock or were granted it.
        holding: usize,
        /// Number of waiting entries.
        waiting: usize,
        /// Holders, then waiters; the first [`AHEAD_SHOWN_MAX`] of each.
        ahead: Vec<Ahead>,
    },
    /// The lock is in use with a different number of slots. Exclusive and shared modes count as 0
    /// slots.
    WrongSlots {
        /// Number of slots of the lock.
        has: u32,
    },
    /// The document of this name is not a lock of this schema (I11).
    Foreign {
        /// The reason.
        why: ForeignDocument,
    },
    /// The document's token has reached its maximum.
    TokensExhausted,
}

/// An entry ahead of this contender.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Ahead {
    /// Name of the entry's owner.
    pub identity: Identity,
    /// Mode in which the entry holds the lock or waits.
    pub mode: EntryMode,
    /// Token, if the entry holds the lock.
    pub token: Option<Token>,
    /// True if the entry holds the lock or was granted it.
    pub holds: bool,
    /// True if the work is done and the entry stays for its minimum hold.
    #[cfg_attr(feature = "serde", serde(rename = "is_over"))]
    pub work_done: bool,
    /// True if the last renewal is older than the entry's lease duration. Informational, because
    /// this compares the owner's wall clock with the store's clock.
    #[cfg_attr(feature = "serde", serde(default))]
    pub silent: bool,
    /// For a holder, time of the grant by the store's clock; for a waiter, time of the join by the
    /// waiter's wall clock. Informational.
    pub since: WallMillis,
}

/// State of a contender. Exhaustive, because each state determines whether work may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// The claim is not known to be in the document.
    Joining,
    /// The claim waits, or was granted but has no authority.
    Waiting {
        /// Number of entries ahead of this contender in the queue, as of the last reply.
        position: usize,
        /// Number of entries that hold the lock or were granted it.
        holding: usize,
        /// Holders, then the waiters ahead; the first [`AHEAD_SHOWN_MAX`] of each.
        ahead: Vec<Ahead>,
    },
    /// The lock is held until the deadline.
    Held(Authority),
    /// The lock was lost, and the work under it must end.
    Lost(Loss),
    /// The entry is being removed.
    Leaving,
    /// Nothing is left to do.
    Ended(End),
}

/// Status to publish. Use [`LockStatus::at`] before showing it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockStatus {
    /// Current state.
    pub standing: Standing,
    /// Start of the current state.
    pub since: BootTime,
    /// Current claim. Each join at the tail has a new claim.
    pub claim: Claim,
    /// Session of this process; informational.
    pub session: Session,
    /// True while authority rests on the grant alone. Such authority ends without a grace period.
    pub provisional: bool,
    /// Number of the held slot, from 0, if the lock has slots.
    pub slot: Option<u32>,
    /// Highest token of this lock seen so far.
    pub token_highest: Token,
    /// True if the store has answered since the start.
    pub store_reached: bool,
}

impl LockStatus {
    /// Returns the status at `now`. A holder past its deadline has lost the lock.
    pub fn at(&self, now: BootTime) -> Self {
        let mut status = self.clone();
        if let Standing::Held(Authority { valid_until, .. }) = self.standing
            && valid_until <= now
        {
            status.standing = Standing::Lost(Loss::Deadline);
            status.since = valid_until;
        }
        status
    }

    /// Returns the authority at `now`, if any.
    pub fn authority_at(&self, now: BootTime) -> Option<Authority> {
        let Standing::Held(authority) = self.standing else {
            return None;
        };
        Some(authority).filter(|a| a.valid_until > now)
    }
}

/// An effect that the event loop must carry out, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum LockEffect {
    /// Send this operation. Answer with [`LockInput::Reply`](super::LockInput::Reply) within
    /// `operation_timeout`. After a timeout, a second answer may follow.
    Call {
        /// Id to use in the reply.
        id: CallId,
        /// Operation to send.
        operation: LockOperation,
    },
    /// Follow this claim with a change stream, instead of any earlier claim; `None` closes the
    /// stream. Answer with [`LockInput::Hint`](super::LockInput::Hint).
    Watch(Option<Claim>),
    /// The lock is held, and the work may begin.
    Acquired {
        /// Fencing token of the acquisition.
        token: Token,
        /// Number of the held slot, from 0, if the lock has slots.
        slot: Option<u32>,
        /// End of authority, unless a renewal extends it.
        valid_until: BootTime,
        /// Time from the start of contention to the acquisition.
        waited: Duration,
    },
    /// The lock is lost. End the work, then pass [`LockInput::Release`](super::LockInput::Release).
    Lost(Loss),
    /// Report this notice to operators. Not answered.
    Notice(LockNotice),
    /// Everything is done, so the event loop ends. Not answered.
    Exit(End),
}

/// An event to report to operators. Exhaustive, because a host must decide how to report each
/// event.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum LockNotice {
    /// This contender evicted an expired entry.
    #[cfg_attr(feature = "serde", serde(rename = "Swept"))]
    Evicted {
        /// Owner of the entry.
        identity: Identity,
        /// Token of the entry, if it held the lock.
        token: Option<Token>,
        /// State of the entry.
        state: EntryState,
        /// Observed time without a change of the entry.
        silent: Duration,
    },
    /// This contender's waiting or granted entry was evicted, so it joins again at the tail.
    PlaceLost,
    /// The queue is full. This contender keeps retrying.
    QueueFull,
    /// An entry declares an invalid lease duration, which is treated as the longest valid duration.
    InvalidLeaseDuration {
        /// Owner of the entry.
        identity: Identity,
        /// Declared duration in milliseconds.
        millis: i64,
    },
    /// A forked VM also renews this contender's entry, or the document was edited.
    Duplicate {
        /// The previous session, which a new session replaces.
        session: Session,
    },
    /// The document lost acknowledged writes. Contention continues after `wait`.
    StoreRolledBack {
        /// Token that the document had.
        seen: Token,
        /// Token that the document has now; `None` if the document is gone.
        found: Option<Token>,
        /// Longest lease duration seen.
        wait: Duration,
    },
    /// The document's token has reached its maximum, so no contender can acquire the lock.
    TokensExhausted,
}

pub(super) type LockTurn<'a> = Turn<'a, LockEffect>;

impl Outbox<LockEffect> {
    pub(super) fn send(&mut self, operation: LockOperation) -> CallId {
        self.call(|id| LockEffect::Call { id, operation })
    }

    pub(super) fn notice(&mut self, notice: LockNotice) {
        self.push(LockEffect::Notice(notice));
    }
}
