//! The inputs of an election.

use super::effect::CallId;
use super::lease::{Lease, Token};
use super::timings::Timings;
use std::time::Duration;

pub use crate::claim::Outcome;

/// An input of [`Election::handle`](super::Election::handle).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Input {
    /// The instant of [`Election::next_wakeup`](super::Election::next_wakeup) has come.
    Tick,
    /// The outcome of a call. After a timeout it is [`Outcome::Unknown`]; the true outcome may
    /// follow later with the same id, at most once.
    Reply {
        /// The answered call.
        call: CallId,
        /// Outcome of the call.
        outcome: Outcome,
    },
    /// An event of the change stream. The event is a hint and never grants authority.
    Watch(Watch),
    /// The driver discovered a new primary. A leader renews immediately, even while a renewal hangs
    /// on the old primary.
    PrimaryChanged,
    /// The answer of the files to [`Effect::Demote`](super::Effect::Demote).
    Demoted {
        /// True if all files say "not leader"; false if a file that names a deadline could be
        /// neither rewritten nor removed.
        shown: bool,
        /// True if [`Input::LabelDemoted`] follows. The release waits for it, for a limited time.
        #[cfg_attr(feature = "serde", serde(default))]
        label_pending: bool,
    },
    /// The pod's label no longer says leader, or the wait for it is over. A label has no deadline,
    /// so a release does not depend on it.
    LabelDemoted,
    /// The workload confirmed that it stopped all work under this token.
    WorkloadDone {
        /// The confirmed token.
        token: Token,
    },
    /// The supervised workload exited on its own. Its remaining processes are being ended;
    /// [`Input::WorkloadGone`] follows.
    WorkloadEnded {
        /// Token of the claim that the workload ran under.
        token: Token,
    },
    /// No process of the supervised workload is left, or it never started. Its claim may now be
    /// released (I6), and a new one may lead.
    WorkloadGone {
        /// Token of the claim that the workload ran under.
        token: Token,
    },
    /// The supervised workload was killed, and its end could not be confirmed in time. It may still
    /// be running, so its claim ends without a release and the lease expires by itself.
    /// [`Input::WorkloadGone`] follows if the end is confirmed after all.
    WorkloadStuck {
        /// Token of the claim that the workload ran under.
        token: Token,
    },
    /// Health of the workload. The election assumes a healthy workload until the first such input.
    /// A candidate with an unhealthy workload steps down and does not contend.
    Health {
        /// False if another replica should lead.
        healthy: bool,
    },
    /// A request on this machine to step down (SIGUSR1).
    StepDown,
    /// A request to shut down: step down if leading, release, then
    /// [`Effect::Exit`](super::Effect::Exit).
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
    /// Time that a workload without confirmation has to notice the end of leadership.
    pub handoff_delay: Duration,
    /// True if the workload has normally ended when a shutdown is requested. At a shutdown it then
    /// has at most one second to notice, even if `handoff_delay` is longer.
    pub workload_ends_first: bool,
    /// If set, a leader hands over to a standby with a higher priority, this long after its
    /// acquisition at the earliest. If not set, priorities never end a leadership.
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

/// An event, or a change of state, of the change stream.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Watch {
    /// The stream is open and reports all changes from now on. A read must follow.
    Opened,
    /// The stream is open and reports all changes from now on, each up to some seconds late, as
    /// through the routers of a sharded cluster. A read must follow.
    LateStreamOpened,
    /// The cursor of the hints is open instead of a stream. Others report by [`Watch::Hint`] what
    /// they change, except renewals. A read must follow.
    HintsOpened,
    /// The stream or cursor answered without events, so the store is reachable.
    Alive,
    /// A hint that something may have changed. It may be late, repeated or false, and another one
    /// may be lost.
    Hint,
    /// The lease changed to this value, according to the events so far.
    Changed(Lease),
    /// An event that only a read can resolve.
    Unclear,
    /// The stream or cursor is closed or could not be opened, so the candidate must poll.
    Lost,
}

/// Content stored under the lease's name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Found {
    /// A lease of this schema.
    Lease(Lease),
    /// No document.
    Missing,
    /// A foreign document, which must not be changed (I11); the text gives the reason, for humans.
    Foreign(String),
}
