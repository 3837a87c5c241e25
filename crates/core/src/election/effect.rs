//! Everything that an election can ask for.

use std::fmt;
use std::time::Duration;

use super::lease::{Claim, Declared, Identity, Reservation, Revision, Session, Token, WallMillis};
use super::status::{Reason, Role};
use super::time::BootTime;

/// Names one call, so that its reply finds back, also late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(pub u64);

/// What the runner is asked to do, in this order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Send this to the store; answer with [`Input::Reply`](super::Input::Reply) within
    /// `operation_timeout`, and once more if the true outcome comes later.
    Call {
        /// Goes into the reply.
        id: CallId,
        /// What to send.
        operation: Operation,
    },
    /// Close the change stream and open another one: the one that is open may
    /// be stale although it answers. [`Watch::Opened`](super::Watch::Opened) or
    /// [`Watch::Lost`](super::Watch::Lost) follows, as at the start.
    ReopenStream,
    /// Make every file show the newest status; answer with
    /// [`Input::Demoted`](super::Input::Demoted).
    Demote,
    /// Start, bound or end the supervised workload; asked for only of
    /// candidates that supervise one. Answered by [`Input::WorkloadGone`](super::Input::WorkloadGone).
    Workload(Order),
    /// Record this in the status directory, for the next process. No answer.
    Remember {
        /// The newest claim that was sent.
        claim: Option<Claim>,
        /// The highest token seen.
        token: Token,
        /// The longest lease duration seen: how long the next process waits
        /// if it finds that the store went back behind this token.
        lease_longest: Duration,
    },
    /// The role changed: log it, count it. No answer.
    Transition(Transition),
    /// Something that people should hear of. No answer.
    Notice(Notice),
    /// All is done: end. No answer.
    Exit,
}

/// What the supervised workload is to do. The newest order counts; each is for
/// the claim with this token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Order {
    /// The claim that the workload runs under.
    pub token: Token,
    /// What to do.
    pub kind: OrderKind,
}

/// The kinds of [`Order`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OrderKind {
    /// Start it, with these deadlines.
    Start(Terms),
    /// It goes on, or goes on ending, with these deadlines.
    Extend(Terms),
    /// Leadership is given up: it has the time that it was configured to have,
    /// while renewals go on.
    Stop,
    /// Leadership is lost: stop it at once, and kill it by this instant.
    Lost {
        /// The latest instant at which it may run.
        kill_at: BootTime,
    },
}

/// Until when a workload may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Terms {
    /// The end of authority: it is told to stop.
    pub valid_until: BootTime,
    /// It is gone by then (I5): `valid_until + loss_grace`.
    pub kill_at: BootTime,
}

/// A store operation. Each filter, besides what is listed, matches only a
/// lease of this schema under this name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Insert the document if absent, free, with this token.
    Create {
        /// The first revision.
        revision: Revision,
        /// The highest token seen, so that a document that was deleted continues its tokens.
        token: Token,
    },
    /// Take the free lease: filter `revision` as expected, a lower token, no
    /// holder, not paused.
    Acquire(Acquisition),
    /// Take the lease from its holder: filter `revision` as expected, a lower
    /// token, this holder, not paused.
    TakeOver {
        /// What is taken.
        acquisition: Acquisition,
        /// The claim that holds it.
        holder: Claim,
        /// Who held it, for the history.
        ended: HistoryEntry,
    },
    /// Prolong: filter `claim`, and a revision of mine that may be stored.
    Renew {
        /// My claim.
        claim: Claim,
        /// The new revision.
        revision: Revision,
        /// The last acknowledged revision and those sent since and unresolved.
        chain: Vec<Revision>,
    },
    /// Free the lease: filter as for a renewal, so that a forked machine's
    /// twin is not dethroned.
    Release {
        /// My ended claim.
        claim: Claim,
        /// The new revision.
        revision: Revision,
        /// Every revision of mine that may be stored.
        chain: Vec<Revision>,
        /// My entry in the history.
        ended: HistoryEntry,
        /// For whom the free lease is kept.
        reserved_for: Option<Reservation>,
    },
    /// Read the document from the primary.
    Read {
        /// Linearizable instead of majority: proof against a deposed primary.
        confirm: bool,
    },
}

impl Operation {
    /// The word used in metrics and logs.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Create { .. } => "create",
            Self::Acquire(_) => "acquire",
            Self::TakeOver { .. } => "take_over",
            Self::Renew { .. } => "renew",
            Self::Release { .. } => "release",
            Self::Read { .. } => "read",
        }
    }
}

/// The fields of an acquire or a take-over.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Acquisition {
    /// The new claim.
    pub claim: Claim,
    /// The new revision.
    pub revision: Revision,
    /// The new token.
    pub token: Token,
    /// The revision that must still be stored.
    pub expected: Revision,
    /// This start of this candidate.
    pub session: Session,
    /// What others are told to wait.
    pub lease_duration: Declared,
}

/// One line of the document's history, written by who ends a claim.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HistoryEntry {
    /// The token of the claim that ended.
    pub token: Token,
    /// Who led.
    pub identity: Identity,
    /// When it had acquired, by its own wall clock.
    pub acquired_at: WallMillis,
    /// Why it ended.
    pub reason: Reason,
}

/// A change of role.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Transition {
    /// The role before.
    pub from: Role,
    /// The role now.
    pub to: Role,
    /// Why.
    pub reason: Option<Reason>,
    /// The token of the leadership that began, ends or ended.
    pub token: Option<Token>,
    /// How long the role before had lasted.
    pub lasted: Duration,
}

/// Things that people should hear of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Notice {
    /// Took over from a holder that had been silent for its lease duration.
    Overtook {
        /// Who was overtaken.
        identity: Identity,
        /// Its token.
        token: Token,
        /// Since this candidate first saw its last revision.
        silent: Duration,
    },
    /// Took over at once from a process on this status directory that is proven dead.
    Succeeded {
        /// The token of the dead process.
        token: Token,
    },
    /// The document is gone, or older than what was seen before.
    StoreWentBack {
        /// The token that was seen before.
        seen: Token,
        /// The token that is stored now; `None`: no document.
        found: Option<Token>,
        /// How long this candidate will not contend.
        wait: Duration,
    },
    /// Another process renewed with this one's claim.
    Duplicate {
        /// The session that both had.
        session: Session,
    },
    /// The document under the lease's name is not ours to touch.
    Foreign {
        /// Why.
        why: String,
    },
    /// A holder declares a duration that no valid holder declares.
    AbsurdDuration {
        /// Who.
        identity: Identity,
        /// What it declares, in milliseconds.
        millis: i64,
    },
    /// Lost by deadline twice in ten minutes: others go first.
    BackingOff {
        /// For this long, unless another leads before.
        wait: Duration,
    },
    /// A file could be neither rewritten nor removed in time.
    NotDemoted {
        /// How long the release is held back for readers of the old file.
        wait: Duration,
    },
    /// Exiting without a release, since a file still names a deadline ahead:
    /// the lease expires by itself.
    LeftToExpire,
    /// A request in the document names another token than this leader's: it
    /// has no effect.
    RequestForAnotherToken {
        /// The token that it names.
        requested: Token,
        /// The leader's.
        leading: Token,
    },
    /// The token cannot grow any more: nobody can lead.
    TokensExhausted,
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
