//! After the faults end, every contender that waits acquires, works, leaves and exits within a
//! bound.

use crate::lock::{Found, Standing};
use crate::sim::invariants::{Violation, violation};

/// Checks that no process is left when the bound has passed. `stored` is for the report.
pub(in crate::lock_sim) fn check(left: &[Standing], stored: &Found) -> Option<Violation> {
    if !left.is_empty() {
        return violation("liveness", format!("{left:?} of {stored:?}"));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::LockDocument;

    #[test]
    fn a_run_ends_when_nobody_waits() {
        assert_eq!(check(&[], &Found::Missing), None);
    }

    #[test]
    fn whoever_waits_for_ever_is_found() {
        let stored = Found::Lock(LockDocument::default());
        assert!(check(&[Standing::Joining], &stored).is_some());
    }
}
