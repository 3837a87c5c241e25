//! Clock rates and durations, short and in the shipped proportions.

use std::time::Duration;

use crate::election::{TimingSettings, Timings};

/// Clock rate and durations of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Pace {
    /// Advance of its clock per tick.
    pub(crate) milliseconds_per_tick: u64,
    /// Declared lease duration. The process's own authority ends one second earlier.
    pub(crate) lease_seconds: u64,
    /// Time after which the outcome of a call is unknown.
    pub(crate) operation_milliseconds: u64,
}

impl Pace {
    /// Returns a pace with short durations in the proportions of the defaults. Authority lasts 3 s
    /// and others wait 4 s, so the bound on the ratio of the clock rates is 4/3, as with the
    /// defaults. A tick is at most a second, so a renewal has one retry before the deadline.
    pub(crate) const fn of(milliseconds_per_tick: u64) -> Self {
        Self {
            milliseconds_per_tick,
            lease_seconds: 4,
            operation_milliseconds: 800,
        }
    }

    /// Returns a pace whose calls time out within an eighth of the lease duration, which is how
    /// long other contenders wait for a grantee.
    pub(crate) const fn with_short_calls(milliseconds_per_tick: u64) -> Self {
        Self {
            operation_milliseconds: 300,
            ..Self::of(milliseconds_per_tick)
        }
    }

    pub(crate) fn timings(self) -> Timings {
        let timings = Timings::new(TimingSettings {
            lease_duration: Duration::from_secs(self.lease_seconds),
            renew_deadline: Duration::from_secs(self.lease_seconds - 1),
            renew_interval: Duration::from_secs(1),
            retry_interval: Duration::from_millis(100),
            operation_timeout: Duration::from_millis(self.operation_milliseconds),
            loss_grace: Duration::ZERO,
        });
        timings.expect("the relations hold")
    }
}
