//! I10: a leader whose child does not start gives up in time, so that another candidate can lead.

use std::time::Duration;

use super::{Violation, require};

/// Maximum time until a step-down takes effect.
const ACTS_MAX: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Start {
    /// Time that the daemon has run since it should have given up the start.
    pub(crate) lasts: Duration,
}

pub(crate) fn check(start: Start) -> Option<Violation> {
    require(start.lasts <= ACTS_MAX, "I10", &start)
}

#[test]
fn a_leader_does_not_wait_for_its_child_without_a_bound() {
    let start = |millis| Start {
        lasts: Duration::from_millis(millis),
    };
    assert_eq!(check(start(200)), None);
    assert!(check(start(201)).is_some());
}
