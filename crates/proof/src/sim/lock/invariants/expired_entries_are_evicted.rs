//! While a live waiter reads, an expired entry is evicted within a bound: the sum of the entry's
//! lease duration, a third of the waiter's lease duration, and some operation timeouts. If all jobs
//! are short, one of the next jobs evicts an expired entry.

use std::time::Duration;

use super::{Violation, explain};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    pub(crate) declared: Duration,
    pub(crate) longest: Duration,
    pub(crate) operation_timeout: Duration,
    pub(crate) slowest: u32,
}

/// Returns the maximum true time that an entry may stay unchanged while a live waiter reads.
pub(crate) fn bound(patience: Patience) -> Duration {
    // A failed eviction is repeated, and waiters start their evictions in turn, up to 1.6 s after
    // the entry expires.
    let stagger = Duration::from_millis(1_600);
    (patience.declared + patience.longest / 3 + 3 * patience.operation_timeout + stagger) * 1000
        / patience.slowest
}

pub(crate) fn check(unchanged: Duration, patience: Patience) -> Option<Violation> {
    let evidence = || format!("{unchanged:?} of {patience:?}");
    explain(
        unchanged <= bound(patience),
        "expired entries are evicted",
        evidence,
    )
}

/// Checks how long an expired entry stayed after a job acquired the lock, if this job had to evict
/// the entry.
pub(crate) fn under_brisk_traffic(
    since: Duration,
    operation_timeout: Duration,
) -> Option<Violation> {
    let rule = "expired entries are evicted under brisk traffic";
    let evidence = || format!("{since:?} after a job that had to evict it");
    explain(since <= operation_timeout, rule, evidence)
}

const PATIENCE: Patience = Patience {
    declared: Duration::from_secs(24),
    longest: Duration::from_secs(24),
    operation_timeout: Duration::from_secs(3),
    slowest: 1000,
};

#[test]
fn an_entry_that_is_evicted_in_time_is_accepted() {
    assert_eq!(bound(PATIENCE), Duration::from_millis(42_600));
    assert_eq!(check(bound(PATIENCE), PATIENCE), None);
}

#[test]
fn a_job_that_never_evicts_is_found() {
    let timeout = Duration::from_secs(3);
    assert_eq!(under_brisk_traffic(timeout, timeout), None);
    let late = timeout + Duration::from_nanos(1);
    assert!(under_brisk_traffic(late, timeout).is_some());
}

#[test]
fn an_entry_that_stays_is_found() {
    let late = bound(PATIENCE) + Duration::from_nanos(1);
    assert!(check(late, PATIENCE).is_some());
}
