//! Clock rates, and short durations with the proportions of the shipped defaults.

use std::time::Duration;

use crate::election::{TimingSettings, Timings};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Pace {
    pub(crate) milliseconds_per_tick: u64,
    /// The declared lease duration. The process's own authority lasts one second less.
    pub(crate) lease_seconds: u64,
    /// A call times out after this time, and its outcome is then unknown.
    pub(crate) operation_milliseconds: u64,
}

impl Pace {
    /// Authority lasts 3 s and other processes wait 4 s, so clock rates may differ by a factor of
    /// 4/3, as with the shipped defaults. A tick is at most a second, so a renewal can be retried
    /// once before the deadline.
    pub(crate) const fn of(milliseconds_per_tick: u64) -> Self {
        Self {
            milliseconds_per_tick,
            lease_seconds: 4,
            operation_milliseconds: 800,
        }
    }

    /// Returns a pace with shorter call timeouts. A contender that is granted the lock must confirm
    /// within an eighth of the renew deadline, so its calls must time out even sooner.
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
