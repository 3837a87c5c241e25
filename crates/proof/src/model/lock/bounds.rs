use std::time::Duration;

use crate::lock::{LockMode, MinHold, Slots};
use crate::proof::model::pace::Pace;

/// Bounds of one exploration. Time has no bound: states are compared by their times relative to
/// now, so one exploration covers runs of any length.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    /// The machines. On each machine, a process contends for the lock from the start.
    pub(crate) seats: Vec<Seat>,
    pub(crate) faults: u8,
    pub(crate) kinds: &'static [Kind],
    /// Maximum number of further processes in one run. Each starts on a machine whose process has
    /// exited.
    pub(crate) starts: u8,
    pub(crate) give_ups: u8,
    pub(crate) streams: bool,
    pub(crate) missing: bool,
    /// Maximum number of undisturbed ticks in which a contender waits although no process with
    /// authority excludes it.
    pub(crate) idle_ticks_max: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) pace: Pace,
    pub(crate) mode: LockMode,
    pub(crate) non_blocking: bool,
    pub(crate) min_hold: MinHold,
    /// The work must succeed once and is skipped afterwards.
    pub(crate) once: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Delays,
    Duplicates,
    Refusals,
    Rollbacks,
    StaleReads,
    Kills,
    Freezes,
    LostStreams,
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
    pub(crate) const fn of(milliseconds_per_tick: u64, mode: LockMode) -> Self {
        Self {
            pace: Pace::of(milliseconds_per_tick),
            mode,
            non_blocking: false,
            min_hold: MinHold::NONE,
            once: false,
        }
    }

    pub(crate) const fn once(self) -> Self {
        Self { once: true, ..self }
    }

    pub(crate) fn keeping(self, min_hold: Duration) -> Self {
        Self {
            min_hold: MinHold::new(min_hold).expect("short"),
            ..self
        }
    }
}

impl Seat {
    /// Returns a machine with short ticks, so that provisional authority lasts several ticks.
    pub(crate) const fn of_grants(milliseconds_per_tick: u64, mode: LockMode) -> Self {
        Self {
            pace: Pace::with_short_calls(milliseconds_per_tick),
            ..Self::of(milliseconds_per_tick, mode)
        }
    }
}

pub(crate) fn slot(slots: u32) -> LockMode {
    LockMode::Slot(Slots::new(slots).expect("a legal number"))
}

impl Bounds {
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

    pub(crate) fn on_streams(self) -> Self {
        Self {
            streams: true,
            ..self
        }
    }

    pub(crate) fn idle(self, idle_ticks_max: u8) -> Self {
        Self {
            idle_ticks_max,
            ..self
        }
    }

    pub(crate) fn with_give_ups(self, give_ups: u8) -> Self {
        Self { give_ups, ..self }
    }

    pub(crate) fn without_a_document(self) -> Self {
        Self {
            missing: true,
            ..self
        }
    }

    pub(crate) fn with(self, kinds: &'static [Kind]) -> Self {
        Self { kinds, ..self }
    }
}
