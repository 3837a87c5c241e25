use super::{CallId, Claim, Identity, Lease, Revision, Timings, Token};
use std::time::Duration;

pub use crate::claim::Outcome;
pub use crate::foreign::ForeignDocument;

/// An input of [`Election::handle`](super::Election::handle).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Input {
    /// The instant of [`Election::next_wakeup`](super::Election::next_wakeup) has come.
    Tick,
    /// The outcome of a call. The true outcome may follow once after [`Outcome::Unknown`].
    Reply {
        /// The answered call.
        call: CallId,
        /// Outcome of the call.
        outcome: Outcome,
    },
    /// An event of the change stream. The event is a hint and never grants authority.
    Watch(Watch),
    /// The driver discovered a new primary. A leader renews at once, despite an unanswered renewal.
    PrimaryChanged,
    /// The status files' answer to [`Effect::Demote`](super::Effect::Demote).
    Demoted {
        /// True if all files say "not leader"; false if a file could not be changed.
        shown: bool,
        /// True if [`Input::LabelDemoted`] follows; the release waits for it up to a time limit.
        #[cfg_attr(feature = "serde", serde(default))]
        label_pending: bool,
    },
    /// The pod's label no longer says leader, or the time limit for the label has passed.
    LabelDemoted,
    /// The workload confirmed that it stopped all work under this token.
    WorkloadDone {
        /// The confirmed token.
        token: Token,
    },
    /// The supervised workload exited on its own. [`Input::WorkloadGone`] follows.
    WorkloadEnded {
        /// Token of the claim that the workload ran under.
        token: Token,
    },
    /// All processes of the supervised workload have exited, or no process was started. The
    /// workload's claim may be released (I6), and another claim may lead.
    WorkloadGone {
        /// Token of the claim that the workload ran under.
        token: Token,
    },
    /// The killed workload was not confirmed gone in time, so the lease must expire.
    /// [`Input::WorkloadGone`] follows if the end is confirmed later.
    WorkloadStuck {
        /// Token of the claim that the workload ran under.
        token: Token,
    },
    /// Workload health (default: healthy). If unhealthy, the candidate neither leads nor contends.
    Health {
        /// False if another replica should lead.
        healthy: bool,
    },
    /// A request on this machine to step down (SIGUSR1).
    StepDown,
    /// A request to shut down; [`Effect::Exit`](super::Effect::Exit) follows.
    Shutdown,
    /// New settings. The timings of a claim that already leads do not change.
    Reconfigure(Tunables),
}

/// Settings that may change while the candidate runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Tunables {
    /// Durations of the next claim.
    pub timings: Timings,
    /// Time that an unsupervised workload has to notice the end of leadership.
    pub handoff_delay: Duration,
    /// True if the workload normally ends before this process. A shutdown then waits at most 1 s.
    pub workload_ends_first: bool,
    /// Minimum time from an acquisition to a handover to a standby with a higher priority, if any.
    pub prefer_interval: Option<Duration>,
}

impl Default for Tunables {
    fn default() -> Self {
        Self {
            timings: Timings::default(),
            handoff_delay: Duration::from_secs(2),
            workload_ends_first: false,
            prefer_interval: None,
        }
    }
}

/// An event or a state change of the change stream.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Watch {
    /// The stream is open and reports all changes from now on. A read must follow.
    Opened,
    /// As `Opened`, but each change may be reported seconds late (sharded clusters).
    LateStreamOpened,
    /// The cursor of the hints is open. Renewals cause no hints. A read must follow.
    HintsOpened,
    /// The stream or cursor answered without events. The answer shows that the store is reachable.
    Alive,
    /// A hint that something may have changed. Hints may be late, repeated, false or lost.
    Hint,
    /// A hint that the holder released the lease. The release may not be majority-committed yet.
    Released(Released),
    /// The lease changed to this value, according to the events so far.
    Changed(Lease),
    /// An event whose effect only a read can determine.
    Unclear,
    /// The stream or cursor is closed or could not be opened.
    Lost,
}

/// A release that reserved the lease for a candidate, as reported by a hint.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Released {
    /// The claim that ended.
    pub claim: Claim,
    /// The revision that the release wrote.
    pub revision: Revision,
    /// The candidate that acquires first.
    pub reserved_for: Identity,
}

/// Content stored under the lease's name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Found {
    /// A lease of this schema.
    Lease(Lease),
    /// No document.
    Missing,
    /// A foreign document, which must not be changed (I11).
    Foreign(ForeignDocument),
}

impl Found {
    pub(super) fn lease(&self) -> Option<&Lease> {
        match self {
            Self::Lease(lease) => Some(lease),
            Self::Missing | Self::Foreign(_) => None,
        }
    }
}
