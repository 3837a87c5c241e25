//! A claim leads at most once: after its deadline, a step-down or the sending
//! of its release it has no authority again, and it is not renewed again.

use super::{Violation, violation};

/// A claim as its process uses it.
#[derive(Debug, Clone, Copy)]
pub(in crate::sim) struct Use {
    pub(in crate::sim) ended: bool,
    pub(in crate::sim) leads: bool,
    pub(in crate::sim) renews: bool,
}

pub(in crate::sim) fn check(it: Use) -> Option<Violation> {
    if it.ended && (it.leads || it.renews) {
        violation("claims lead once", format!("{it:?}"))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_claim_that_has_not_ended_may_lead_and_renew() {
        let it = |ended, leads, renews| Use {
            ended,
            leads,
            renews,
        };
        assert_eq!(check(it(false, true, true)), None);
        assert_eq!(check(it(true, false, false)), None);
        assert!(check(it(true, true, false)).is_some());
        assert!(check(it(true, false, true)).is_some());
    }
}
