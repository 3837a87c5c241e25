//! A daemon whose guard runs in another container acquires a lease only while a guard is connected,
//! because only a guard can run its workload.

use std::time::Duration;

use super::{Violation, require};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Acquisition {
    /// Time since the daemon noticed that no guard is connected; `None` if a guard is connected.
    pub(crate) alone: Option<Duration>,
}

pub(crate) fn check(acquisition: Acquisition) -> Option<Violation> {
    let has_guard = acquisition.alone.is_none_or(|alone| alone.is_zero());
    require(has_guard, "leaders have guards", &acquisition)
}

#[test]
fn a_daemon_without_a_guard_acquires_nothing() {
    let alone = |millis| Acquisition {
        alone: Some(Duration::from_millis(millis)),
    };
    assert_eq!(check(Acquisition { alone: None }), None);
    assert_eq!(check(alone(0)), None);
    assert!(check(alone(1)).is_some());
}
