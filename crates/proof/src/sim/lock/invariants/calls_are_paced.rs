//! A contender does not send calls in a tight loop, each immediately after the previous answer.

use super::{Violation, explain};

/// Maximum number of consecutive calls that are sent less than a retry interval after the previous
/// answer. An acquisition needs six calls: a rejected join, a read, a create, another join, a read,
/// and a confirmation.
const CALLS_MAX: usize = 12;

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
