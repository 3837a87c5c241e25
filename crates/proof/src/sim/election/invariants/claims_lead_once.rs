//! A claim leads at most once. After its deadline, after a step-down, or once its release was sent,
//! the claim never regains authority and is never renewed.

use super::{Violation, require};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Use {
    pub(crate) ended: bool,
    pub(crate) leads: bool,
    pub(crate) renews: bool,
}

pub(crate) fn check(it: Use) -> Option<Violation> {
    let leads_again = it.ended && (it.leads || it.renews);
    require(!leads_again, "claims lead once", &it)
}

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
