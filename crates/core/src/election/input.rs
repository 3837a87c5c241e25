//! Everything that can happen to an election.

use super::effect::CallId;
use super::lease::{Lease, Token};
use super::timings::Timings;
use std::time::Duration;

/// What the runner tells [`Election::handle`](super::Election::handle).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Input {
    /// The instant of [`Election::next_wakeup`](super::Election::next_wakeup) has come.
    Tick,
    /// A call's outcome. After a time-out it is [`Outcome::Unknown`]; the true
    /// outcome may follow later with the same id, as often as once.
    Reply {
        /// The call that is answered.
        call: CallId,
        /// What became of it.
        outcome: Outcome,
    },
    /// News of the change stream. A hint: it never grants authority.
    Watch(Watch),
    /// The driver discovered a new primary: a renewal that hangs on the old
    /// one is joined by another.
    PrimaryChanged,
    /// Answers [`Effect::Demote`](super::Effect::Demote): whether the files say "not leader" now.
    Demoted {
        /// `false` if a file that names a deadline could be neither rewritten nor removed.
        shown: bool,
    },
    /// The workload confirmed that it stopped what it did under this token.
    WorkloadDone {
        /// The token that it confirms.
        token: Token,
    },
    /// The supervised workload exited by itself. What it left behind is being
    /// ended; [`Input::WorkloadGone`] follows.
    WorkloadEnded {
        /// The token under which it ran.
        token: Token,
    },
    /// Nothing of the supervised workload runs any more, or it never began:
    /// now its claim may be released (I6), and a new one may lead.
    WorkloadGone {
        /// The token under which it ran.
        token: Token,
    },
    /// Whether the workload can do its work. Until it is told otherwise the
    /// election takes it for healthy; one that is not steps down and does not contend.
    Health {
        /// `false`: another replica should lead.
        healthy: bool,
    },
    /// Somebody on this machine asked this candidate to step down (SIGUSR1).
    StepDown,
    /// Step down if leading, release, then [`Effect::Exit`](super::Effect::Exit).
    Shutdown,
    /// New settings; durations count from the next claim on.
    Reconfigure(Tunables),
}

/// Settings that may change while the candidate runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tunables {
    /// The durations of the next claim.
    pub timings: Timings,
    /// How long a workload that confirms nothing has to notice that leadership ended.
    pub handoff_delay: Duration,
    /// The workload as a rule has ended when a shutdown is asked for: it then has
    /// a second to notice, if `handoff_delay` is longer.
    pub workload_ends_first: bool,
}

/// News of the change stream.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Watch {
    /// It is open: what changes from now on will be told. A read must follow.
    Opened,
    /// It answered without news: the store can be reached.
    Alive,
    /// The lease changed to this, as far as the stream's order tells.
    Changed(Lease),
    /// Something happened that only a read can tell.
    Unclear,
    /// It is closed, or was never to be had: poll.
    Lost,
}

/// What became of a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Acknowledged by a majority, with the document after it (for a read: as read).
    Applied(Found),
    /// The filter no longer matched (for a create: the document exists).
    Rejected,
    /// Provably never sent.
    Failed,
    /// Everything else, time-outs and write concern errors included: it may
    /// have been applied, or may land later. It never grants or extends (I7).
    Unknown,
}

impl Outcome {
    /// The word used in metrics.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Applied(_) => "applied",
            Self::Rejected => "rejected",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }
}

/// What is stored under the lease's name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Found {
    /// A lease of this schema.
    Lease(Lease),
    /// Nothing.
    Missing,
    /// A document that is not ours to touch (I11); the text says why, for people.
    Foreign(String),
}
