//! Selects the part of a contender's state that can affect a later decision, for the exhaustive
//! model.
//!
//! Omits settings, values that are only reported, and writes whose revision cannot be stored again.
//! `canonical_form.rs` tests that these omissions hide no behavior.
//! `crates/core/src/lock/contender.rs` includes this file as a module, so that this file can use
//! private items of the contender.

use std::hash::Hash;

use super::LockContender;
use crate::election::{BootTime, Claim, Revision};
use crate::lock::observations::Observations;

pub(crate) trait Form {
    fn put(&mut self, value: &impl Hash);

    /// Returns true if the revision is stored or shown anywhere, or carried by a write that the
    /// store may still apply.
    fn is_live(&self, revision: Revision) -> bool;

    /// Returns the position of the claim in an order that does not depend on the claim's random
    /// value.
    fn order(&mut self, claim: Claim) -> usize;
}

impl LockContender {
    pub(crate) fn compare(&self, now: BootTime, form: &mut impl Form) {
        let Self {
            state,
            exchange,
            began: _,
            since: _,
            now: _,
            wakeup,
            // Omitted, because the next call number of the outbox is always above the numbers of
            // all calls in flight.
            outbox: _,
        } = self;
        form.put(&exchange.session);
        form.put(state);
        exchange.compare(now, form);
        form.put(wakeup);
    }
}

impl Observations {
    pub(crate) fn compare(&self, form: &mut impl Form) {
        let ordered = self.iter().map(|(claim, seen)| (form.order(claim), seen));
        let mut ordered: Vec<_> = ordered.collect();
        ordered.sort_unstable_by_key(|(order, _)| *order);
        form.put(&ordered);
    }
}
