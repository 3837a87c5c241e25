//! After the faults end, every waiting contender acquires, works, leaves and exits within a bound.

use super::{Violation, explain};
use crate::lock::{FoundLock, LockDocument, Standing};

/// Checks that all processes have ended when the bound has passed. The evidence shows `stored`.
pub(crate) fn check(left: &[Standing], stored: &FoundLock) -> Option<Violation> {
    explain(left.is_empty(), "liveness", || {
        format!("{left:?} of {stored:?}")
    })
}

#[test]
fn a_run_ends_without_waiters() {
    assert_eq!(check(&[], &FoundLock::Missing), None);
}

#[test]
fn a_contender_that_waits_indefinitely_is_found() {
    let stored = FoundLock::Lock(LockDocument::default());
    assert!(check(&[Standing::Joining], &stored).is_some());
}
