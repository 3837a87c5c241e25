//! I2 and I7: a claim has authority only from an acknowledged write that left its revision and a
//! token in the stored entry. The authority is counted from an instant before the write was sent,
//! and ends with the claim.

use super::{Violation, require};
use crate::election::BootTime;

/// The authority that a process claims to have, and the authority according to the ledger.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claimed {
    pub(crate) valid_until: BootTime,
    pub(crate) backed: Option<BootTime>,
    pub(crate) ended: bool,
}

pub(crate) fn check(claimed: Claimed) -> Option<Violation> {
    if claimed.ended {
        return require(false, "ended claims stay ended", &claimed);
    }
    require(claimed.backed >= Some(claimed.valid_until), "I2", &claimed)
}

fn claimed(until: u64, backed: Option<u64>, ended: bool) -> Claimed {
    Claimed {
        valid_until: BootTime::from_nanos(until),
        backed: backed.map(BootTime::from_nanos),
        ended,
    }
}

#[test]
fn acknowledged_authority_may_be_used_up_to_its_end() {
    assert_eq!(check(claimed(10, Some(10), false)), None);
    assert_eq!(check(claimed(9, Some(10), false)), None);
}

#[test]
fn everything_else_is_found() {
    assert!(check(claimed(10, None, false)).is_some());
    assert!(check(claimed(11, Some(10), false)).is_some());
    assert!(check(claimed(9, Some(10), true)).is_some());
}
