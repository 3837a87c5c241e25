//! I2: a claim has authority only from a write that a majority acknowledged. The authority is
//! counted from an instant before the write was sent.

use super::{Violation, explain, require};
use crate::election::BootTime;

/// The authority that a process claims to have, and the authority according to the observer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Authority {
    pub(crate) says: BootTime,
    pub(crate) earned: Option<BootTime>,
}

pub(crate) fn check(authority: Authority) -> Option<Violation> {
    let earned = authority
        .earned
        .is_some_and(|until| authority.says <= until);
    require(earned, "I2", &authority)
}

pub(crate) fn check_durable(durable: bool) -> Option<Violation> {
    explain(durable, "I2", || {
        "acknowledged without a majority".to_owned()
    })
}

fn at(nanos: u64) -> BootTime {
    BootTime::from_nanos(nanos)
}

#[test]
fn authority_up_to_the_deadline_is_earned() {
    let (says, earned) = (at(5), Some(at(5)));
    assert_eq!(check(Authority { says, earned }), None);
    assert_eq!(check_durable(true), None);
}

#[test]
fn more_than_was_acknowledged_is_not_earned() {
    for earned in [None, Some(at(4))] {
        let says = at(5);
        assert!(check(Authority { says, earned }).is_some());
    }
    assert!(check_durable(false).is_some());
}
