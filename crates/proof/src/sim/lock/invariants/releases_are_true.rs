//! A contender reports a release only if its leave was applied, together with the success of its
//! work.

use super::{Violation, require};

/// A contender that reports that it released the lock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Released {
    /// A majority has a leave of the claim.
    pub(crate) left: bool,
    /// An earlier leave was not answered, so the entry may have been evicted instead.
    pub(crate) unanswered: bool,
    /// Its work succeeded, and that is to be recorded.
    pub(crate) succeeded: bool,
    /// A majority has a leave of the claim with the success.
    pub(crate) recorded: bool,
}

pub(crate) fn check(released: Released) -> Option<Violation> {
    let gone = released.left || released.unanswered;
    let fine = gone && (released.recorded || !released.succeeded);
    require(fine, "releases are true", &released)
}

#[test]
fn a_release_that_did_not_happen_is_found() {
    let plain = Released {
        left: true,
        unanswered: false,
        succeeded: false,
        recorded: false,
    };
    let unanswered = Released {
        left: false,
        unanswered: true,
        ..plain
    };
    let recorded = Released {
        succeeded: true,
        recorded: true,
        ..plain
    };
    for fine in [plain, unanswered, recorded] {
        assert_eq!(check(fine), None);
    }
    let never = Released {
        left: false,
        ..plain
    };
    let dropped = Released {
        recorded: false,
        ..recorded
    };
    for wrong in [never, dropped] {
        assert!(check(wrong).is_some(), "{wrong:?}");
    }
}
