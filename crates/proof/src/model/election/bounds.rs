//! Bounds of an exploration, and the durations that all explorations use.

use std::time::Duration;

use crate::election::Tunables;
use crate::proof::model::pace::Pace;

/// Bounds of one exploration. Time is unbounded, because states are compared by times relative to
/// now. One exploration therefore covers runs of any length.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    /// Clock rate and lease duration of each candidate.
    pub(crate) candidates: Vec<Pace>,
    /// Maximum number of faults in one run, of any kind.
    pub(crate) faults: u8,
    /// Enabled kinds of faults.
    pub(crate) kinds: &'static [Kind],
    /// Maximum number of requests in one run.
    pub(crate) requests: u8,
    /// Enabled kinds of requests.
    pub(crate) requested: &'static [Requested],
    /// True if candidates follow a change stream instead of polling.
    pub(crate) streams: bool,
    /// True if candidates register as standby.
    pub(crate) standby: bool,
    /// True if candidates register as standby, later candidates have higher priorities, and leaders
    /// hand over to higher priorities.
    pub(crate) prefer: bool,
    /// Maximum number of ticks without a fault until a candidate leads (I10), or until no candidate
    /// leads if the lease is paused.
    pub(crate) quiet_ticks_max: u8,
}

impl Bounds {
    /// Returns these bounds with change streams.
    pub(crate) fn on_streams(self) -> Self {
        Self {
            streams: true,
            ..self
        }
    }

    /// Returns these bounds with candidates that register as standby.
    pub(crate) fn with_standby(self) -> Self {
        Self {
            standby: true,
            ..self
        }
    }

    /// Returns these bounds with priorities, and leaders that prefer higher priorities.
    pub(crate) fn with_preference(self) -> Self {
        Self {
            prefer: true,
            ..self.with_standby()
        }
    }

    /// Returns these bounds with these requests instead of signals.
    pub(crate) fn with(self, requested: &'static [Requested]) -> Self {
        Self { requested, ..self }
    }

    /// Returns these bounds with deletions, after which every candidate waits, and with the faults
    /// that are combined with deletions.
    pub(crate) fn with_deletions(self) -> Self {
        Self {
            kinds: &[Kind::Delays, Kind::Crashes, Kind::Deletions],
            quiet_ticks_max: 12,
            ..self
        }
    }
}

/// Kinds of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requested {
    /// Step down, shut down.
    Signals,
    /// An operator pauses the lease, and may resume it at any time.
    Pauses,
    /// An operator transfers the lease to another candidate.
    Transfers,
}

/// Kinds of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Calls, replies and events are delayed, reordered and lost.
    Delays,
    /// A call lands twice.
    Duplicates,
    /// A call is provably never sent.
    Refusals,
    /// A write is applied before a majority has it, and may be rolled back.
    Rollbacks,
    /// A deposed primary answers a majority read.
    StaleReads,
    /// Processes crash, and start again with or without their status directory.
    Crashes,
    /// Processes are paused for a while.
    Freezes,
    /// The document is deleted, but only once every candidate has seen it, because a candidate that
    /// never saw it cannot notice the deletion.
    Deletions,
}

impl Kind {
    pub(crate) const ALL_EXCEPT_DELETIONS: &[Self] = &[
        Self::Delays,
        Self::Duplicates,
        Self::Refusals,
        Self::Rollbacks,
        Self::StaleReads,
        Self::Crashes,
        Self::Freezes,
    ];
}

/// How long a transferred lease is reserved for its candidate.
pub(crate) const RESERVATION: Duration = Duration::from_secs(2);

/// Minimum time that a leader leads before it hands over to a preferred standby.
const PREFER_INTERVAL: Duration = Duration::from_secs(2);

/// Returns the settings of a candidate.
pub(crate) fn tunables(pace: Pace, prefers: bool) -> Tunables {
    Tunables {
        timings: pace.timings(),
        handoff_delay: Duration::ZERO,
        workload_ends_first: false,
        prefer_interval: prefers.then_some(PREFER_INTERVAL),
    }
}
