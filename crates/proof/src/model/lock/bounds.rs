//! Bounds of an exploration.

use std::time::Duration;

use crate::lock::{LockMode, MinHold, Slots};
use crate::proof::model::pace::Pace;

/// Bounds of one exploration. Time is unbounded, because states are compared by times relative to
/// now. One exploration therefore covers runs of any length.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    /// The machines, each with a process that contends from the start.
    pub(crate) seats: Vec<Seat>,
    /// Maximum number of faults in one run, of any kind.
    pub(crate) faults: u8,
    /// Enabled kinds of faults.
    pub(crate) kinds: &'static [Kind],
    /// Maximum number of processes in one run that start later, each on a machine whose process has
    /// exited.
    pub(crate) starts: u8,
    /// Maximum number of contenders that are asked to give up.
    pub(crate) give_ups: u8,
    /// True if contenders follow a change stream instead of polling.
    pub(crate) streams: bool,
    /// True if the document does not exist at the start.
    pub(crate) missing: bool,
    /// Maximum number of undisturbed ticks in which a running contender waits although it is
    /// compatible with every process that has authority.
    pub(crate) idle_ticks_max: u8,
}

/// A machine and the requests of its processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seat {
    /// Clock rate and durations.
    pub(crate) pace: Pace,
    /// Requested mode.
    pub(crate) mode: LockMode,
    /// True if the processes try the lock once and do not wait for it.
    pub(crate) non_blocking: bool,
    pub(crate) min_hold: MinHold,
    /// True if work must succeed only once and is skipped afterwards.
    pub(crate) once: bool,
}

/// Kinds of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Calls, replies and events are delayed, reordered and lost.
    Delays,
    /// Writes land twice, and events arrive twice.
    Duplicates,
    /// A call is provably never sent.
    Refusals,
    /// A write is applied before a majority has it, and may be rolled back.
    Rollbacks,
    /// A deposed primary answers a majority read.
    StaleReads,
    Kills,
    /// Processes are paused for a while.
    Freezes,
    /// Change streams end, and are opened again after a while.
    LostStreams,
    /// A driver discovers a new primary.
    NewPrimaries,
}

impl Kind {
    pub(crate) const ALL: &[Self] = &[
        Self::Delays,
        Self::Duplicates,
        Self::Refusals,
        Self::Rollbacks,
        Self::StaleReads,
        Self::Kills,
        Self::Freezes,
        Self::LostStreams,
        Self::NewPrimaries,
    ];
}

impl Seat {
    /// Returns a machine whose clock advances by this many milliseconds in each tick.
    pub(crate) const fn of(milliseconds_per_tick: u64, mode: LockMode) -> Self {
        Self {
            pace: Pace::of(milliseconds_per_tick),
            mode,
            non_blocking: false,
            min_hold: MinHold::NONE,
            once: false,
        }
    }

    /// Returns this seat with work that must succeed only once.
    pub(crate) const fn once(self) -> Self {
        Self { once: true, ..self }
    }

    /// Returns this seat with a minimum hold.
    pub(crate) fn keeping(self, min_hold: Duration) -> Self {
        Self {
            min_hold: MinHold::new(min_hold).expect("short"),
            ..self
        }
    }
}

impl Seat {
    /// Returns a machine whose ticks are short enough to observe the end of provisional authority.
    pub(crate) const fn of_grants(milliseconds_per_tick: u64, mode: LockMode) -> Self {
        Self {
            pace: Pace::with_short_calls(milliseconds_per_tick),
            ..Self::of(milliseconds_per_tick, mode)
        }
    }
}

/// Returns a request for one of these slots.
pub(crate) fn slot(slots: u32) -> LockMode {
    LockMode::Slot(Slots::new(slots).expect("a legal number"))
}

impl Bounds {
    /// Returns bounds with faults of every kind, without change streams.
    pub(crate) fn of(seats: &[Seat], faults: u8, starts: u8) -> Self {
        Self {
            seats: seats.to_vec(),
            faults,
            kinds: Kind::ALL,
            starts,
            give_ups: 0,
            streams: false,
            missing: false,
            idle_ticks_max: 4,
        }
    }

    /// Returns these bounds with change streams.
    pub(crate) fn on_streams(self) -> Self {
        Self {
            streams: true,
            ..self
        }
    }

    /// Returns these bounds with this number of idle ticks.
    pub(crate) fn idle(self, idle_ticks_max: u8) -> Self {
        Self {
            idle_ticks_max,
            ..self
        }
    }

    /// Returns these bounds with contenders that are asked to give up.
    pub(crate) fn with_give_ups(self, give_ups: u8) -> Self {
        Self { give_ups, ..self }
    }

    /// Returns these bounds without a document at the start.
    pub(crate) fn without_a_document(self) -> Self {
        Self {
            missing: true,
            ..self
        }
    }

    /// Returns these bounds with faults of these kinds.
    pub(crate) fn with(self, kinds: &'static [Kind]) -> Self {
        Self { kinds, ..self }
    }
}
