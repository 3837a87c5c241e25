//! A guard whose daemon has exited stops its child immediately, because an exited daemon sends no
//! more renewals.

use std::time::Duration;

use super::{Violation, require};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Orphan {
    /// The guard has sent the child a stop signal or SIGKILL, or the child's leader has exited.
    pub(crate) asked: bool,
    /// Time during which the guard could send the signal.
    pub(crate) alone: Duration,
    /// Maximum time that a process needs to act after it resumes.
    pub(crate) wake_max: Duration,
}

pub(crate) fn check(orphan: Orphan) -> Option<Violation> {
    let stopped = orphan.asked || orphan.alone <= orphan.wake_max;
    require(stopped, "orphaned children are stopped", &orphan)
}

#[test]
fn an_orphan_is_stopped_immediately() {
    let millis = Duration::from_millis;
    let orphan = |asked, alone| Orphan {
        asked,
        alone: millis(alone),
        wake_max: millis(10),
    };
    assert_eq!(check(orphan(false, 10)), None);
    assert_eq!(check(orphan(true, 9_000)), None);
    assert!(check(orphan(false, 11)).is_some());
}
