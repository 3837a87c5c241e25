//! A dead waiter, grantee or holder is gone within its lease duration, a
//! third of the longest one, and operation time-outs, while a live waiter reads;
//! and where jobs are short, soon after one that begins when it has expired.

use crate::sim::invariants::{Violation, violation};
use std::time::Duration;

/// The durations that a bound is made of.
#[derive(Debug, Clone, Copy)]
pub(in crate::lock_sim) struct Patience {
    pub(in crate::lock_sim) declared: Duration,
    pub(in crate::lock_sim) longest: Duration,
    pub(in crate::lock_sim) operation_timeout: Duration,
    /// The slowest clock, per mille.
    pub(in crate::lock_sim) slowest: u32,
}

/// How long an entry may stay unchanged before a live waiter, in true time.
pub(in crate::lock_sim) fn bound(patience: Patience) -> Duration {
    let Patience {
        declared,
        longest,
        operation_timeout,
        slowest,
    } = patience;
    // A sweep that fails is repeated, and the eighth place waits 1.6 s longer.
    let stagger = Duration::from_millis(1_600);
    (declared + longest / 3 + 3 * operation_timeout + stagger) * 1000 / slowest
}

pub(in crate::lock_sim) fn check(unchanged: Duration, patience: Patience) -> Option<Violation> {
    if unchanged <= bound(patience) {
        None
    } else {
        violation("the dead go", format!("{unchanged:?} of {patience:?}"))
    }
}

/// A job that knew the entry to be dead acquired the lock so long ago.
pub(in crate::lock_sim) fn under_brisk_traffic(
    since: Duration,
    operation_timeout: Duration,
) -> Option<Violation> {
    if since <= operation_timeout {
        None
    } else {
        let evidence = format!("{since:?} after a job that had to evict it");
        violation("the dead go under brisk traffic", evidence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience = Patience {
        declared: Duration::from_secs(24),
        longest: Duration::from_secs(24),
        operation_timeout: Duration::from_secs(3),
        slowest: 1000,
    };

    #[test]
    fn whoever_goes_in_time_is_accepted() {
        assert_eq!(bound(PATIENCE), Duration::from_millis(42_600));
        assert_eq!(check(bound(PATIENCE), PATIENCE), None);
    }

    #[test]
    fn a_job_that_evicts_nobody_is_found() {
        let timeout = Duration::from_secs(3);
        assert_eq!(under_brisk_traffic(timeout, timeout), None);
        let late = timeout + Duration::from_nanos(1);
        assert!(under_brisk_traffic(late, timeout).is_some());
    }

    #[test]
    fn whoever_stays_is_found() {
        let late = bound(PATIENCE) + Duration::from_nanos(1);
        assert!(check(late, PATIENCE).is_some());
    }
}
