//! A guard whose daemon is gone tells its child to end at once: nobody renews
//! for it any more.

use std::time::Duration;

use super::{Violation, violation};

/// A child that runs without a daemon.
#[derive(Debug, Clone, Copy)]
pub(in crate::sim) struct Orphan {
    /// Its guard was told to end it, by a signal or SIGKILL.
    pub(in crate::sim) told: bool,
    /// How long its guard has been able to tell it.
    pub(in crate::sim) alone: Duration,
    /// Within this whoever runs again acts.
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
