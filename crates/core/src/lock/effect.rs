//! Effects that a contender can request.

use std::time::Duration;

use super::observations::EntryState;
use super::operation::LockOperation;
use super::status::{End, Loss};
use crate::claim::{Outbox, Turn};
use crate::election::{BootTime, CallId, Claim, Identity, Session, Token};

/// An effect that the event loop must carry out, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum LockEffect {
    /// Send this operation to the store. Answer with [`LockInput::Reply`](super::LockInput::Reply) within
    /// `operation_timeout`, and once more if the true outcome becomes known later.
    Call {
        /// Id to use in the reply.
        id: CallId,
        /// Operation to send.
        operation: LockOperation,
    },
    /// Follow this claim, and no other one, with a change stream; `None` to follow none. Answer
    /// with [`LockInput::Hint`](super::LockInput::Hint), or with [`Hint::Lost`](super::Hint::Lost) if
    /// change streams are not available.
    Watch(Option<Claim>),
    /// The lock is held, so the work may begin. Check
    /// [`LockContender::authority_at`](super::LockContender::authority_at) before each effect of
    /// the work.
    Acquired {
        /// Fencing token of the acquisition.
        token: Token,
        /// Number of the held slot, from 0, if the lock has slots.
        slot: Option<u32>,
        /// End of authority, unless it is renewed.
        valid_until: BootTime,
        /// Time that the acquisition took.
        waited: Duration,
    },
    /// The lock is no longer held. End the work, then pass
    /// [`LockInput::Release`](super::LockInput::Release).
    Lost(Loss),
    /// Report this notice to operators. Not answered.
    Notice(LockNotice),
    /// Everything is done, so end. Not answered.
    Exit(End),
}

/// An event to report to operators. Exhaustive: a host must decide how to report each of them.
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
        /// How long the entry was seen unchanged.
        silent: Duration,
    },
    /// This contender's waiting or granted entry was evicted, so it joins again at the tail.
    PlaceLost,
    /// The queue is full. This contender keeps retrying.
    QueueFull,
    /// An entry declares a lease duration outside the valid range, which is treated as the longest
    /// valid one.
    InvalidLeaseDuration {
        /// Owner of the entry.
        identity: Identity,
        /// Declared duration in milliseconds.
        millis: i64,
    },
    /// This contender's entry has a revision that the contender never sent. Either a forked machine
    /// renews it too, or the document was edited.
    Duplicate {
        /// Session that ended because of it.
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

/// Context of one input of a contender.
pub(super) type LockTurn<'a> = Turn<'a, LockEffect>;

impl Outbox<LockEffect> {
    pub(super) fn send(&mut self, operation: LockOperation) -> CallId {
        self.call(|id| LockEffect::Call { id, operation })
    }

    pub(super) fn notice(&mut self, notice: LockNotice) {
        self.push(LockEffect::Notice(notice));
    }
}
