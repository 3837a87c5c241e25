//! While a workload ends, its claim is renewed, so that nobody takes over
//! before it is gone.

use std::time::Duration;

use super::{Violation, violation};

/// A process that gives up its leadership, awake all the time.
#[derive(Debug, Clone, Copy)]
pub(in crate::sim) struct Draining {
    /// Since it was last seen awake for the first time, or last sent a renewal.
    pub(in crate::sim) idle: Duration,
    /// A renewal interval, a time-out and a retry.
    pub(in crate::sim) idle_max: Duration,
}

pub(in crate::sim) fn check(draining: Draining) -> Option<Violation> {
    if draining.idle <= draining.idle_max {
        None
    } else {
        violation("draining is renewed", format!("{draining:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_that_is_left_alone_is_found() {
        let draining = |idle| Draining {
            idle: Duration::from_secs(idle),
            idle_max: Duration::from_secs(8),
        };
        assert_eq!(check(draining(8)), None);
        assert!(check(draining(9)).is_some());
    }
}
