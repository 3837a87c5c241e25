//! What one exploration covers, and the durations that all of them use.

use std::time::Duration;

use crate::election::{TimingSettings, Timings, Tunables};

/// The bounds of one exploration. Time is not among them: states are compared
/// with their clocks taken relative to now, so runs of any length are covered.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    /// The candidates.
    pub(crate) candidates: Vec<Pace>,
    /// Faults in one run, of any kind.
    pub(crate) faults: u8,
    /// Which kinds of faults there are.
    pub(crate) kinds: Kinds,
    /// Requests in one run.
    pub(crate) requests: u8,
    /// Which kinds of requests there are.
    pub(crate) requested: Requests,
    /// Candidates follow a change stream instead of polling.
    pub(crate) streams: bool,
    /// Ticks without a fault after which somebody must lead (I10), or nobody
    /// where the lease is paused.
    pub(crate) quiet_ticks_max: u8,
}

/// How time passes for one candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Pace {
    /// How far its clock advances in a tick.
    pub(crate) milliseconds_per_tick: u64,
    /// The lease duration that it declares; its own authority lasts a second less.
    pub(crate) lease_seconds: u64,
}

/// Kinds of requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Requests {
    /// Signals: step down, shut down.
    pub(crate) signals: bool,
    /// An operator pauses the lease; it is resumed whenever that may be.
    pub(crate) pauses: bool,
    /// An operator transfers the lease to another candidate.
    pub(crate) transfers: bool,
}

impl Requests {
    /// None.
    pub(crate) const NONE: Self = Self {
        signals: false,
        pauses: false,
        transfers: false,
    };
}

/// Kinds of faults.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kinds {
    /// Calls, replies and events are delayed, reordered and lost.
    pub(crate) delays: bool,
    /// A call lands twice.
    pub(crate) duplicates: bool,
    /// A call is provably never sent.
    pub(crate) refusals: bool,
    /// A write is applied before a majority has it, and may be rolled back.
    pub(crate) rollbacks: bool,
    /// A deposed primary answers a majority read.
    pub(crate) stale_reads: bool,
    /// Processes die, and start again with or without their status directory.
    pub(crate) crashes: bool,
    /// Processes do not run for a while.
    pub(crate) freezes: bool,
    /// Somebody deletes the document while every candidate has seen it.
    pub(crate) deletions: bool,
}

impl Kinds {
    /// None.
    pub(crate) const NONE: Self = Self {
        delays: false,
        duplicates: false,
        refusals: false,
        rollbacks: false,
        stale_reads: false,
        crashes: false,
        freezes: false,
        deletions: false,
    };
    /// All but deletions, which void what a candidate without memory promises.
    pub(crate) const ALL: Self = Self {
        delays: true,
        duplicates: true,
        refusals: true,
        rollbacks: true,
        stale_reads: true,
        crashes: true,
        freezes: true,
        deletions: false,
    };
}

/// For how long a transferred lease is kept for its candidate.
pub(crate) const RESERVATION: Duration = Duration::from_secs(2);

impl Pace {
    /// Short durations in the shipped relations: authority lasts 3 s, others
    /// wait 4 s, so the bound on the clocks' rates is 4/3 as with the defaults.
    /// A tick is a second at most, so a renewal has one retry before the deadline.
    pub(crate) const fn of(milliseconds_per_tick: u64) -> Self {
        Self {
            milliseconds_per_tick,
            lease_seconds: 4,
        }
    }
}

/// The settings of a candidate.
pub(crate) fn tunables(pace: Pace) -> Tunables {
    let timings = Timings::new(TimingSettings {
        lease_duration: Duration::from_secs(pace.lease_seconds),
        renew_deadline: Duration::from_secs(pace.lease_seconds - 1),
        renew_interval: Duration::from_secs(1),
        retry_interval: Duration::from_millis(100),
        operation_timeout: Duration::from_millis(800),
        loss_grace: Duration::ZERO,
    });
    Tunables {
        timings: timings.expect("the relations hold"),
        handoff_delay: Duration::ZERO,
        workload_ends_first: false,
    }
}
