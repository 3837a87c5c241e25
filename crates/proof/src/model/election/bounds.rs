use std::time::Duration;

use crate::election::Tunables;
use crate::proof::model::pace::Pace;

/// Bounds of one exploration. Time has no bound: states are compared by their times relative to
/// now, so one exploration covers runs of any length.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    pub(crate) candidates: Vec<Pace>,
    pub(crate) faults: u8,
    pub(crate) kinds: &'static [Kind],
    pub(crate) requests: u8,
    pub(crate) requested: &'static [Requested],
    /// Candidates follow a change stream instead of polling.
    pub(crate) streams: bool,
    /// The primary alone acknowledges the release for a named candidate, and a hint announces the
    /// release to this candidate. Candidates poll, so other hints would change nothing.
    pub(crate) hints: bool,
    pub(crate) standby: bool,
    /// Candidates register as standby with their index as the priority, and leaders hand over to
    /// candidates of higher priority.
    pub(crate) prefer: bool,
    /// After this number of ticks without a fault, some candidate must lead (I10). If the lease is
    /// paused, no candidate may lead after these ticks.
    pub(crate) quiet_ticks_max: u8,
}

impl Bounds {
    pub(crate) fn on_streams(self) -> Self {
        Self {
            streams: true,
            ..self
        }
    }

    pub(crate) fn with_hints(self) -> Self {
        Self {
            hints: true,
            ..self
        }
    }

    pub(crate) fn with_standby(self) -> Self {
        Self {
            standby: true,
            ..self
        }
    }

    pub(crate) fn with_preference(self) -> Self {
        Self {
            prefer: true,
            ..self.with_standby()
        }
    }

    pub(crate) fn with(self, requested: &'static [Requested]) -> Self {
        Self { requested, ..self }
    }

    /// Adds deletions, and keeps only delays and crashes as other faults. The quiet time is longer,
    /// because every candidate waits after a deletion.
    pub(crate) fn with_deletions(self) -> Self {
        Self {
            kinds: &[Kind::Delays, Kind::Crashes, Kind::Deletions],
            quiet_ticks_max: 12,
            ..self
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requested {
    Signals,
    Pauses,
    Transfers,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Delays,
    Duplicates,
    Refusals,
    Rollbacks,
    StaleReads,
    Crashes,
    Freezes,
    /// An operator deletes the document, but only after every candidate has seen it. A candidate
    /// that never saw the document cannot notice that it is gone.
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

/// How long a transfer reserves the lease for its target.
pub(crate) const RESERVATION: Duration = Duration::from_secs(2);

/// Minimum duration of leadership before a leader hands over to a standby of higher priority.
const PREFER_INTERVAL: Duration = Duration::from_secs(2);

pub(crate) fn tunables(pace: Pace, prefers: bool) -> Tunables {
    Tunables {
        timings: pace.timings(),
        handoff_delay: Duration::ZERO,
        workload_ends_first: false,
        prefer_interval: prefers.then_some(PREFER_INTERVAL),
    }
}
