//! I10: not paused, the store reachable, healthy candidates: somebody leads
//! within a bound that the durations give, and it is one.

use std::time::Duration;

use super::{Violation, violation};

/// What a bound is made of.
#[derive(Debug, Clone, Copy)]
pub(in crate::sim) struct Longest {
    pub(in crate::sim) lease_duration: Duration,
    pub(in crate::sim) reservation: Duration,
    pub(in crate::sim) operation_timeout: Duration,
    pub(in crate::sim) retry_interval: Duration,
    /// Per mille of true time, of the slowest clock.
    pub(in crate::sim) rate: u32,
}

/// The declared lease duration, a reservation, and 2 × (time-out + retry), on
/// the slowest clock.
pub(in crate::sim) fn bound(longest: Longest) -> Duration {
    let retries = 2 * (longest.operation_timeout + longest.retry_interval * 6 / 5);
    (longest.lease_duration + longest.reservation + retries) * 1000 / longest.rate
}

pub(in crate::sim) fn check(leaders: usize, waited: Duration) -> Option<Violation> {
    if leaders == 1 {
        None
    } else {
        violation(
            "I10",
            format!("{leaders} leaders after {waited:?} of peace"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_leader_is_healthy() {
        assert_eq!(check(1, Duration::ZERO), None);
        assert!(check(0, Duration::ZERO).is_some());
        assert!(check(2, Duration::ZERO).is_some());
    }

    #[test]
    fn the_bound_is_the_one_of_the_protocol() {
        let seconds = Duration::from_secs;
        let bound = bound(Longest {
            lease_duration: seconds(24),
            reservation: seconds(5),
            operation_timeout: seconds(3),
            retry_interval: seconds(1),
            rate: 1000,
        });
        assert_eq!(bound, Duration::from_millis(37_400));
    }
}
