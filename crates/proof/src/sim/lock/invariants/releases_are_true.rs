//! A contender reports a release only if its leave was applied or an earlier leave was not
//! answered. If its work succeeded, the success must be recorded.

use super::{Violation, require};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Released {
    pub(crate) left: bool,
    /// An earlier leave was not answered, so the leave or an eviction may have removed the entry.
    pub(crate) unanswered: bool,
    pub(crate) succeeded: bool,
    pub(crate) recorded: bool,
}

pub(crate) fn check(released: Released) -> Option<Violation> {
    let gone = released.left || released.unanswered;
    let fine = gone && (released.recorded || !released.succeeded);
    require(fine, "reported releases happened", &released)
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
