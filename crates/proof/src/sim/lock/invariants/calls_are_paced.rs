//! A contender does not send calls in a tight loop, each as soon as the previous call is answered.

use super::{Violation, explain};

/// Maximum number of consecutive calls, each of which follows the previous answer within less than
/// a retry interval. An acquisition needs a few: a rejected join, a read, a create, another join, a
/// read, a confirmation.
const CALLS_MAX: usize = 12;

/// Checks the number of these consecutive calls.
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
