//! I11: every queue and every message is bounded, a foreign document is not overwritten, and only a
//! create makes a document.

use super::{Violation, violation};

/// The sizes after a turn.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::sim) struct Sizes {
    pub(in crate::sim) calls: usize,
    pub(in crate::sim) calls_max: usize,
    pub(in crate::sim) chain: usize,
    pub(in crate::sim) chain_max: usize,
    /// Renewals of one claim without an answer.
    pub(in crate::sim) renewals: usize,
    pub(in crate::sim) renewals_max: usize,
    pub(in crate::sim) history: usize,
    pub(in crate::sim) history_max: usize,
}

pub(in crate::sim) fn check(sizes: Sizes) -> Option<Violation> {
    let Sizes {
        calls,
        calls_max,
        chain,
        chain_max,
        renewals,
        renewals_max,
        history,
        history_max,
    } = sizes;
    let within = calls <= calls_max
        && chain <= chain_max
        && renewals <= renewals_max
        && history <= history_max;
    if within {
        None
    } else {
        violation("I11", format!("{sizes:?}"))
    }
}

/// A change of the stored document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sim) struct Change {
    pub(in crate::sim) by_a_person: bool,
    pub(in crate::sim) was_foreign: bool,
    pub(in crate::sim) was_missing: bool,
    /// True if the document is a free lease after the write.
    pub(in crate::sim) is_free_lease: bool,
}

pub(in crate::sim) fn check_change(change: Change) -> Option<Violation> {
    let made = !change.was_missing || change.is_free_lease;
    if change.by_a_person || (!change.was_foreign && made) {
        None
    } else {
        violation("I11", format!("{change:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_within_their_bounds_are_in_order() {
        assert_eq!(check(Sizes::default()), None);
        let calls = Sizes {
            calls: 17,
            calls_max: 16,
            ..Sizes::default()
        };
        assert!(check(calls).is_some());
        let renewals = Sizes {
            renewals: 3,
            renewals_max: 2,
            ..Sizes::default()
        };
        assert!(check(renewals).is_some());
        let history = Sizes {
            history: 21,
            history_max: 20,
            ..Sizes::default()
        };
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
            Change {
                was_foreign: true,
                was_missing: false,
                ..change
            },
            Change {
                is_free_lease: false,
                ..change
            },
        ] {
            assert!(check_change(wrong).is_some());
            let person = Change {
                by_a_person: true,
                ..wrong
            };
            assert_eq!(check_change(person), None);
        }
    }
}
