use std::fmt;
use std::time::Duration;

use super::{
    BootTime, Claim, Declared, ForeignDocument, Identity, Reason, Reservation, Revision, Role,
    Session, Token, WallMillis,
};
use crate::claim::Outbox;
pub use crate::deadline_policy::Terms;

/// Identifies a call, so that even a late reply can be matched to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct CallId(pub u64);

/// An action for the event loop. Effects must be carried out in order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Effect {
    /// Send this operation. Answer with [`Input::Reply`](super::Input::Reply) within
    /// `operation_timeout`. After a timeout, a second reply may follow.
    Call {
        /// Id to return with the reply.
        id: CallId,
        /// The operation to send.
        operation: Operation,
    },
    /// Replace the change stream, which may be stale. Answer with a [`Watch`](super::Watch) that
    /// reports the new stream open, or with [`Watch::Lost`](super::Watch::Lost).
    ReopenStream,
    /// Make every status file and the pod's label show the newest status. Answer with
    /// [`Input::Demoted`](super::Input::Demoted).
    Demote,
    /// Change the workload. Answer with [`Input::WorkloadGone`](super::Input::WorkloadGone).
    Workload(Order),
    /// Record these values in the status directory, for the next process. Needs no answer.
    Remember {
        /// The newest claim that was sent.
        claim: Option<Claim>,
        /// The highest token seen.
        token: Token,
        /// The longest lease duration seen; the next process waits this long after a rollback.
        lease_longest: Duration,
    },
    /// The role changed; log and count the change. Needs no answer.
    Transition(Transition),
    /// An event to report to humans. Needs no answer.
    Notice(Notice),
    /// The candidate has finished; exit. Needs no answer.
    Exit,
}

/// A change of the [`DesiredState`](crate::deadline_policy::DesiredState) of the workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Order {
    /// Token of the claim that the workload runs under.
    pub token: Token,
    /// The change.
    pub kind: OrderKind,
}

/// The kinds of [`Order`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum OrderKind {
    /// Start the workload with these deadlines.
    Start(Terms),
    /// Continue to run, or to stop, with these new deadlines.
    Extend(Terms),
    /// Leadership is given up. The workload stops in its configured time; renewals continue.
    Stop,
    /// Leadership is lost. The workload must stop immediately.
    Lost {
        /// Latest instant at which the workload may run.
        kill_at: BootTime,
    },
}

/// A store operation. A filter matches only a lease of this schema with this name, and only under
/// the conditions of its variant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Operation {
    /// Insert a free lease with this token if the document is absent.
    Create {
        /// The first revision.
        revision: Revision,
        /// The highest token seen, so that tokens keep growing after the document was deleted.
        token: Token,
    },
    /// Acquire the free lease. Matches only the revision `expected`, a token lower than the new
    /// token, and a lease that has no holder and is not paused.
    Acquire(Acquisition),
    /// Take over from `holder`. Matches only the revision `expected`, a token lower than the new
    /// token, the claim `holder`, and a lease that is not paused.
    TakeOver {
        /// Fields of the new claim.
        acquisition: Acquisition,
        /// The claim of the current holder.
        holder: Claim,
        /// History entry of the current holder.
        ended: HistoryEntry,
    },
    /// Renew the lease. The filter matches `claim` and a revision of this claim that may be stored.
    Renew {
        /// The claim to renew.
        claim: Claim,
        /// The new revision.
        revision: Revision,
        /// The last acknowledged revision, and the revisions of later writes whose outcome is
        /// unknown.
        chain: Vec<Revision>,
    },
    /// Free the lease. Like a renewal, a release matches only `claim` with a revision in `chain`,
    /// so it does not end a claim that a forked VM has renewed.
    Release {
        /// The ended claim.
        claim: Claim,
        /// The new revision.
        revision: Revision,
        /// Every revision of this claim that may be stored.
        chain: Vec<Revision>,
        /// History entry of the ended claim.
        ended: HistoryEntry,
        /// The candidate that the free lease is reserved for, if any.
        reserved_for: Option<Reservation>,
    },
    /// Register this candidate as the standby. The filter matches `holder` and the standby to
    /// replace. Revision and token do not change.
    Register {
        /// The claim of the current holder.
        holder: Claim,
        /// Session of this candidate.
        session: Session,
        /// Priority of this candidate.
        priority: u32,
        /// The standby to replace; `None` requires that no standby is registered.
        replaces: Option<Session>,
    },
    /// Withdraw the registration of this session as the standby, and change nothing else.
    Withdraw {
        /// Session of the standby.
        session: Session,
    },
    /// Read the document from the primary.
    Read {
        /// True for a linearizable read instead of a majority read.
        confirm: bool,
    },
}

impl Operation {
    /// Returns the name used in metrics and logs.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Create { .. } => "create",
            Self::Acquire(_) => "acquire",
            Self::TakeOver { .. } => "take_over",
            Self::Renew { .. } => "renew",
            Self::Release { .. } => "release",
            Self::Register { .. } => "register",
            Self::Withdraw { .. } => "withdraw",
            Self::Read { .. } => "read",
        }
    }
}

/// The fields of an acquisition or a takeover.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Acquisition {
    /// The new claim.
    pub claim: Claim,
    /// The new revision.
    pub revision: Revision,
    /// The new token.
    pub token: Token,
    /// The revision that the document must still have.
    pub expected: Revision,
    /// Session of this candidate.
    pub session: Session,
    /// The declared lease duration. Other candidates wait this long.
    pub lease_duration: Declared,
    /// The declared interval of renewals; `None` if the candidate publishes no hints.
    pub renew_interval: Option<Duration>,
}

/// One entry of the document's history, written by the candidate that ends a claim.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct HistoryEntry {
    /// Token of the ended claim.
    pub token: Token,
    /// Identity of the ended claim's candidate.
    pub identity: Identity,
    /// Time of the acquisition, by the wall clock of that candidate.
    pub acquired_at: WallMillis,
    /// Reason for the end of the claim.
    pub reason: Reason,
}

/// A change of role.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Transition {
    /// The previous role.
    pub from: Role,
    /// The new role.
    pub to: Role,
    /// Reason for the change, if any.
    pub reason: Option<Reason>,
    /// Token of the leadership that begins, is ending or has ended, if any.
    pub token: Option<Token>,
    /// Duration of the previous role.
    pub lasted: Duration,
}

/// Events to report to humans. Exhaustive, because a host must decide how to report each of them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Notice {
    /// Took over from a holder that had not renewed for its lease duration.
    Overtook {
        /// The expired holder.
        identity: Identity,
        /// Token of the expired holder.
        token: Token,
        /// Time since this candidate first saw the holder's last revision.
        silent: Duration,
    },
    /// Took over immediately, because the previous process that used this status directory has
    /// provably exited.
    Succeeded {
        /// Token of the exited process.
        token: Token,
    },
    /// The document is missing, or older than when it was last seen.
    StoreRolledBack {
        /// The token that was seen before.
        seen: Token,
        /// The token that is stored now; `None` if the document is missing.
        found: Option<Token>,
        /// Time that this candidate waits before it contends again.
        wait: Duration,
    },
    /// Another process renewed this process's claim.
    Duplicate {
        /// The session of both processes.
        session: Session,
    },
    /// The document with the lease's name is foreign, and this candidate must not change it.
    Foreign {
        /// The reason.
        why: ForeignDocument,
    },
    /// A holder declares a duration outside the valid range.
    InvalidLeaseDuration {
        /// The holder.
        identity: Identity,
        /// The declared duration in milliseconds.
        millis: i64,
    },
    /// Leadership ended at a deadline twice in ten minutes, so this candidate lets others go first.
    BackingOff {
        /// Duration of the wait, which ends early if another candidate leads.
        wait: Duration,
    },
    /// A status file could not be rewritten or removed in time.
    NotDemoted {
        /// Time until the deadline in the old file. The release is delayed at least until then.
        wait: Duration,
    },
    /// Exiting without a release, because a status file still names a deadline in the future.
    LeftToExpire,
    /// The killed workload was not confirmed gone in time; the lease must expire.
    WorkloadStuck {
        /// Token of the claim that the workload runs under.
        token: Token,
        /// Time until the lease expires for other candidates; zero if it has expired.
        wait: Duration,
    },
    /// A request in the document has no effect, because its token is not this leader's token.
    RequestForAnotherToken {
        /// The token that the request names.
        requested: Token,
        /// The leader's token.
        leading: Token,
    },
    /// The token has reached its maximum, so no candidate can lead.
    TokensExhausted,
    /// Handing over to the standby, because its priority is higher.
    GivingWay {
        /// The standby.
        identity: Identity,
        /// Its priority.
        priority: u32,
    },
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Outbox<Effect> {
    pub(super) fn send(&mut self, operation: Operation) -> CallId {
        self.call(|id| Effect::Call { id, operation })
    }

    pub(super) fn notice(&mut self, notice: Notice) {
        self.push(Effect::Notice(notice));
    }
}
