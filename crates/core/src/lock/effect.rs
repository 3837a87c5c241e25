//! Everything that a contender can ask for.

use std::time::Duration;

use super::operation::Operation;
use super::sightings::EntryState;
use super::status::{End, Loss};
use crate::election::{BootTime, CallId, Claim, Identity, Session, Token};

/// What the runner is asked to do, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Send this to the store; answer with [`Input::Reply`](super::Input::Reply) within
    /// `operation_timeout`, and once more if the true outcome comes later.
    Call {
        /// Goes into the reply.
        id: CallId,
        /// What to send.
        operation: Operation,
    },
    /// Follow this claim by a change stream, and no other any more; `None`:
    /// there is nothing to follow. Answered by [`Input::Hint`](super::Input::Hint);
    /// where there are no streams by [`Hint::Lost`](super::Hint::Lost).
    Watch(Option<Claim>),
    /// The lock is held: the work may begin. Ask
    /// [`LockContender::authority_at`](super::LockContender::authority_at) before each effect of it.
    Acquired {
        /// The fencing token.
        token: Token,
        /// The end of authority, unless it is renewed.
        valid_until: BootTime,
        /// How long it took.
        waited: Duration,
    },
    /// The lock is not held any more: end the work, then bring
    /// [`Input::Release`](super::Input::Release).
    Lost(Loss),
    /// Something that people should hear of. No answer.
    Notice(Notice),
    /// All is done: end. No answer.
    Exit(End),
}

/// Something that people should hear of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// This contender took an entry out that was silent for too long.
    Swept {
        /// Its owner.
        identity: Identity,
        /// Its token, if it held.
        token: Option<Token>,
        /// What it was.
        state: EntryState,
        /// For how long it was seen unchanged.
        silent: Duration,
    },
    /// This contender's place was swept, or its grant was: it joins again at the tail.
    PlaceLost,
    /// As many wait as there may; this one asks again.
    QueueFull,
    /// An entry declares a duration that no valid contender declares; it
    /// counts as the longest one.
    AbsurdDuration {
        /// Its owner.
        identity: Identity,
        /// What it declares, in milliseconds.
        millis: i64,
    },
    /// This contender's entry has a revision that it never sent: a forked
    /// machine renews it too, or somebody edited the document.
    Duplicate {
        /// The session that ended with it.
        session: Session,
    },
    /// The document lost what was acknowledged: contending goes on after `wait`.
    StoreWentBack {
        /// The token that it had.
        seen: Token,
        /// The token that it has; `None`: the document is gone.
        found: Option<Token>,
        /// The longest lease duration that was seen.
        wait: Duration,
    },
    /// The document's token cannot grow any more: nobody can acquire.
    TokensExhausted,
}
