//! I9: no wall clock affects a decision. A run makes the same decisions as a run in which no wall
//! clock and no server clock jumps.

use super::{Violation, explain};

/// A digest of all decisions of a run, and their number.
pub(crate) type Decisions = (u64, u64);

pub(crate) fn check(jumping: Decisions, steady: Decisions) -> Option<Violation> {
    let evidence = || format!("{jumping:?} with jumps, {steady:?} without");
    explain(jumping == steady, "I9", evidence)
}

#[test]
fn only_equal_decisions_are_accepted() {
    assert_eq!(check((1, 2), (1, 2)), None);
    assert!(check((1, 2), (3, 2)).is_some());
}
