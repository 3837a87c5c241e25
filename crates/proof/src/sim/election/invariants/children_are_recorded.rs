//! The claim file names every child that runs under a guard. So a process that finds the lock free,
//! because daemon and guard were killed, also finds the child.

use super::{Violation, require};

/// A child that runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recorded {
    pub(crate) guarded: bool,
    /// True if the record of the directory names this child.
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
