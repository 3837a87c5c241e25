//! Certain events require a call in the turn that handles them. An opened stream requires a read,
//! because the stream does not report earlier changes. A change of primary requires a renewal,
//! even while another renewal hangs on the old primary (*Change streams* and *Outcomes* in
//! `docs/protocol.md`).

use super::{Violation, require};

/// The calls that the process should have made before its next turn begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owed {
    pub(crate) read: bool,
    pub(crate) renewal: bool,
}

pub(crate) fn check(owed: Owed) -> Option<Violation> {
    let paid = !owed.read && !owed.renewal;
    require(paid, "notifications are followed up", &owed)
}

#[test]
fn missing_follow_ups_are_found() {
    let owed = |read, renewal| Owed { read, renewal };
    assert_eq!(check(owed(false, false)), None);
    assert!(check(owed(true, false)).is_some());
    assert!(check(owed(false, true)).is_some());
}
