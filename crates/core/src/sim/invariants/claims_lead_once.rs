//! A claim leads at most once: after its deadline, after a step-down, or from the sending of its
//! release, it does not regain authority and is not renewed.

use super::{Violation, violation};

/// The use of a claim by its process.
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
