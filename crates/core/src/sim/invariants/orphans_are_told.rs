//! A guard whose daemon is gone asks its child to end immediately, because there will be no more
//! renewals.

use std::time::Duration;

use super::{Violation, violation};

/// A child that runs without a daemon.
#[derive(Debug, Clone, Copy)]
pub(in crate::sim) struct Orphan {
    /// True if the guard has asked the child to end, by a signal or SIGKILL, or its leader has
    /// exited.
    pub(in crate::sim) told: bool,
    /// Time for which the guard could have done so.
    pub(in crate::sim) alone: Duration,
    /// Time within which a process acts when it runs again.
    pub(in crate::sim) wake_max: Duration,
}

pub(in crate::sim) fn check(orphan: Orphan) -> Option<Violation> {
    if orphan.told || orphan.alone <= orphan.wake_max {
        None
    } else {
        violation("orphans are told", format!("{orphan:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_within_a_moment() {
        let millis = Duration::from_millis;
        let orphan = |told, alone| Orphan {
            told,
            alone: millis(alone),
            wake_max: millis(10),
        };
        assert_eq!(check(orphan(false, 10)), None);
        assert_eq!(check(orphan(true, 9_000)), None);
        assert!(check(orphan(false, 11)).is_some());
    }
}
