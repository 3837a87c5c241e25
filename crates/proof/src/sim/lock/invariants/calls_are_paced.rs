//! A contender does not answer each reply with another call at once for as long as the store answers.

use super::{Violation, explain};

/// Maximum number of calls of which each is sent when the one before is answered, within less than a
/// retry interval. A contention takes a few: a join that is rejected, a read, a create, another join, a
/// read, a confirmation.
const CALLS_MAX: usize = 12;

/// Checks the number of such calls in a row.
pub(crate) fn check(calls: usize) -> Option<Violation> {
    explain(calls <= CALLS_MAX, "calls are paced", || {
        format!("{calls} calls without a pause")
    })
}

#[test]
fn calls_without_a_pause_are_found() {
    assert_eq!(check(CALLS_MAX), None);
    assert!(check(CALLS_MAX + 1).is_some());
}
