//! Intervals between new logins while a server refuses calls for a missing right.
//!
//! A server logs out the connections of a user that was dropped, and a driver keeps using them. The
//! refusal looks like a missing right of the role, where a new login does not help.

use std::time::Duration;

use leasehold_core::election::{BootTime, Timings};

/// Upper bound of the interval.
const INTERVAL_MAX: Duration = Duration::from_secs(30);

/// The last new login for a missing right.
#[derive(Debug, Default)]
pub(super) struct Logins {
    last: Option<(BootTime, Duration)>,
}

impl Logins {
    /// Returns true if another login is due: immediately at first, then at intervals that double
    /// from `retry_interval` on. A pause of two of the longest intervals starts over.
    pub(super) fn is_due(&mut self, now: BootTime, timings: Timings) -> bool {
        let first = timings.retry_interval().min(INTERVAL_MAX);
        let next = match self.last {
            Some((last, interval)) if now.since(last) < interval => return false,
            Some((last, interval)) if now.since(last) < INTERVAL_MAX * 2 => {
                (interval * 2).min(INTERVAL_MAX)
            }
            Some(_) | None => first,
        };
        self.last = Some((now, next));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logins_are_repeated_at_growing_intervals() {
        let (mut logins, timings) = (Logins::default(), Timings::default());
        let mut at = |seconds| {
            let now = BootTime::default() + Duration::from_secs(seconds);
            logins.is_due(now, timings)
        };
        let due: Vec<_> = (0..100).filter(|second| at(*second)).collect();
        assert_eq!(due, [0, 1, 3, 7, 15, 31, 61, 91]);
        assert!(at(152) && at(153), "a new refusal starts over");
    }
}
