//! A child starts only while its claim has authority by the clock of its host.

use super::{Violation, require};
use crate::election::BootTime;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Start {
    pub(crate) now: BootTime,
    pub(crate) until: Option<BootTime>,
}

pub(crate) fn check(start: Start) -> Option<Violation> {
    let has_authority = start.until.is_some_and(|until| start.now < until);
    require(has_authority, "children start with authority", &start)
}

#[test]
fn before_the_deadline_and_neither_at_it_nor_without_one() {
    let at = BootTime::from_nanos;
    let until = Some(at(10));
    assert_eq!(check(Start { now: at(9), until }), None);
    assert!(check(Start { now: at(10), until }).is_some());
    let until = None;
    assert!(check(Start { now: at(9), until }).is_some());
}
