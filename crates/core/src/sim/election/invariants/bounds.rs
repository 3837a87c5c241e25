//! I11: every queue and every message is bounded, a foreign document is not overwritten, and only a
//! create makes a document.

use super::{Violation, require, with};

/// The sizes after a turn.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sizes {
    pub(crate) calls: usize,
    pub(crate) calls_max: usize,
    pub(crate) chain: usize,
    pub(crate) chain_max: usize,
    /// Renewals of one claim without an answer.
    pub(crate) renewals: usize,
    pub(crate) renewals_max: usize,
    pub(crate) history: usize,
    pub(crate) history_max: usize,
}

pub(crate) fn check(sizes: Sizes) -> Option<Violation> {
    let within = sizes.calls <= sizes.calls_max
        && sizes.chain <= sizes.chain_max
        && sizes.renewals <= sizes.renewals_max
        && sizes.history <= sizes.history_max;
    require(within, "I11", &sizes)
}

/// A change of the stored document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) by_a_person: bool,
    pub(crate) was_foreign: bool,
    pub(crate) was_missing: bool,
    /// True if the document is a free lease after the write.
    pub(crate) is_free_lease: bool,
}

pub(crate) fn check_change(change: Change) -> Option<Violation> {
    let made = !change.was_missing || change.is_free_lease;
    require(
        change.by_a_person || (!change.was_foreign && made),
        "I11",
        &change,
    )
}

#[test]
fn sizes_within_their_bounds_are_in_order() {
    assert_eq!(check(Sizes::default()), None);
    let calls = with(Sizes::default(), |it| (it.calls, it.calls_max) = (17, 16));
    assert!(check(calls).is_some());
    let renewals = with(Sizes::default(), |it| {
        (it.renewals, it.renewals_max) = (3, 2)
    });
    assert!(check(renewals).is_some());
    let history = with(Sizes::default(), |it| {
        (it.history, it.history_max) = (21, 20)
    });
    assert!(check(history).is_some());
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
