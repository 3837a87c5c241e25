//! I11: the calls in flight, the filters and the history are bounded, no candidate replaces a
//! foreign document, and a document that a candidate creates is a free lease.

use super::{Violation, require, with};

pub(crate) fn check(what: &str, size: usize, most: usize) -> Option<Violation> {
    require(size <= most, "I11", &(what, size, most))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) by_a_person: bool,
    pub(crate) was_foreign: bool,
    pub(crate) was_missing: bool,
    pub(crate) is_free_lease: bool,
}

pub(crate) fn check_change(change: Change) -> Option<Violation> {
    let made = !change.was_missing || change.is_free_lease;
    let allowed = change.by_a_person || (!change.was_foreign && made);
    require(allowed, "I11", &change)
}

#[test]
fn sizes_within_their_bounds_are_in_order() {
    assert_eq!(check("calls", 16, 16), None);
    assert!(check("calls", 17, 16).is_some());
}

#[test]
fn a_candidate_changes_no_foreign_document_and_makes_none_but_a_free_one() {
    let change = Change {
        by_a_person: false,
        was_foreign: false,
        was_missing: true,
        is_free_lease: true,
    };
    assert_eq!(check_change(change), None);
    for wrong in [
        with(change, |it| {
            (it.was_foreign, it.was_missing) = (true, false)
        }),
        with(change, |it| it.is_free_lease = false),
    ] {
        assert!(check_change(wrong).is_some());
        let person = with(wrong, |it| it.by_a_person = true);
        assert_eq!(check_change(person), None);
    }
}
