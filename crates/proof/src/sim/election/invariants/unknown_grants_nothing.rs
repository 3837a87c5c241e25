//! I7: an unknown outcome, the passing of time, an event or a read never grants or extends
//! authority.

use super::{Violation, require};
use crate::election::BootTime;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn {
    pub(crate) before: Option<BootTime>,
    pub(crate) after: Option<BootTime>,
    pub(crate) acknowledgement: bool,
}

pub(crate) fn check(turn: Turn) -> Option<Violation> {
    let granted = turn.after > turn.before;
    require(!granted || turn.acknowledgement, "I7", &turn)
}

fn turn(before: Option<u64>, after: Option<u64>, acknowledgement: bool) -> Turn {
    Turn {
        before: before.map(BootTime::from_nanos),
        after: after.map(BootTime::from_nanos),
        acknowledgement,
    }
}

#[test]
fn an_acknowledgement_may_grant_and_anything_may_take() {
    assert_eq!(check(turn(None, Some(5), true)), None);
    assert_eq!(check(turn(Some(5), None, false)), None);
    assert_eq!(check(turn(Some(5), Some(5), false)), None);
}

#[test]
fn anything_else_that_grants_or_extends_is_found() {
    assert!(check(turn(None, Some(5), false)).is_some());
    assert!(check(turn(Some(5), Some(6), false)).is_some());
}
