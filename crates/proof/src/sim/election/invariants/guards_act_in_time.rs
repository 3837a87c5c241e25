//! A running guard enforces the newest deadline that it received, even while the guard waits for
//! another event. The daemon never has to treat its guard as late.

use std::time::Duration;

use super::{Violation, require};

/// A guard that has not killed its child although the deadline passed some time ago.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Late {
    /// Time that the guard has run since the newest order arrived. `None` if the guard does not run
    /// or the order has not arrived.
    pub(crate) runs: Option<Duration>,
    /// Maximum time that a process needs to act after it resumes.
    pub(crate) wake_max: Duration,
}

pub(crate) fn check(late: Late) -> Option<Violation> {
    let could_act = late.runs.is_some_and(|runs| runs > late.wake_max);
    require(!could_act, "guards act in time", &late)
}

#[test]
fn only_one_that_could_not_run_is_late() {
    let late = |runs: Option<u64>| Late {
        runs: runs.map(Duration::from_millis),
        wake_max: Duration::from_millis(10),
    };
    assert_eq!(check(late(None)), None);
    assert_eq!(check(late(Some(10))), None);
    assert!(check(late(Some(11))).is_some());
}
