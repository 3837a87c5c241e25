//! The claim file names every child that runs under a guard. If the daemon and the guard are
//! killed, the next process finds the lock free but must still find the child.

use super::{Violation, require};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Recorded {
    pub(crate) guarded: bool,
    pub(crate) named: bool,
}

pub(crate) fn check(child: Recorded) -> Option<Violation> {
    let recorded = child.named || !child.guarded;
    require(recorded, "children are recorded", &child)
}

#[test]
fn a_guarded_child_is_named() {
    let child = |guarded, named| Recorded { guarded, named };
    assert_eq!(check(child(true, true)), None);
    assert_eq!(check(child(false, false)), None);
    assert!(check(child(true, false)).is_some());
}
