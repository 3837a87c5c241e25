use std::time::Duration;

use crate::election::BootTime;

/// A machine's clock, which advances in steps of 1000 true nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    /// Local nanoseconds per thousand true nanoseconds.
    pub(super) rate: u64,
    pub(super) base: i64,
}

impl Clock {
    pub(super) fn at(self, now: u64) -> i64 {
        self.base + i64::try_from(now / 1000 * self.rate).expect("a run is short")
    }

    /// Returns the true time when the clock will show `at`. The clock shows `shown` at the true
    /// time `now`.
    pub(super) fn true_time(self, now: u64, shown: BootTime, at: BootTime) -> u64 {
        let ahead = nanos(at.since(shown));
        (now / 1000 + ahead.div_ceil(self.rate)) * 1000 + u64::from(ahead > 0) * 1000
    }

    pub(super) fn stretched(self, duration: Duration) -> u64 {
        nanos(duration) / self.rate * 1000
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 2_000)
}
