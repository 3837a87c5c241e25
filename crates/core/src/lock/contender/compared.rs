//! The part of a contender's state that can affect a later decision, for the exhaustive model.
//!
//! Left out: settings, what is only reported, and writes whose revision cannot be stored again.
//! `crates/proof/src/model/lock/canonical_form.rs` tests that this loses no behavior.

use std::hash::Hash;

use super::LockContender;
use crate::election::{BootTime, Claim, Revision};
use crate::lock::observations::Observations;
use crate::lock::view::View;

/// Canonical form of a state, as it is written.
pub(crate) trait Form {
    /// Writes a value.
    fn put(&mut self, value: &impl Hash);

    /// Returns true if the revision is stored or shown anywhere, or carried by a write that may
    /// still be applied.
    fn is_live(&self, revision: Revision) -> bool;

    /// Returns the position of the claim in an order that does not depend on its value.
    fn order(&mut self, claim: Claim) -> usize;
}

impl LockContender {
    /// Writes the state at `now` to `form`.
    pub(crate) fn compare(&self, now: BootTime, form: &mut impl Form) {
        let Self {
            options: _,
            session,
            state,
            since: _,
            keeps_until,
            declared,
            succeeded,
            began: _,
            view,
            writes,
            sweeping,
            // Late replies to these are only reported.
            unanswered: _,
            reading,
            read_due,
            suspicious,
            behind,
            retry_at,
            hinted,
            watch_open,
            opened_after,
            watching,
            reached: _,
            now: _,
            wakeup,
            // Its number of calls is above those that are awaited.
            outbox: _,
        } = self;
        form.put(session);
        form.put(state);
        form.put(&(keeps_until, declared, succeeded));
        view.compare(form);
        writes.compare(form);
        form.put(sweeping);
        form.put(&(reading, read_due, suspicious, behind));
        form.put(&now.max(*retry_at));
        form.put(hinted);
        form.put(&(watch_open, watching, wakeup));
        if *watch_open {
            form.put(opened_after);
        }
    }
}

impl View {
    fn compare(&self, form: &mut impl Form) {
        let Self {
            // Decisions are made when it is recorded.
            lock: _,
            call,
            token,
            token_highest,
            token_floor,
            exists,
            lease_longest,
            observations,
        } = self;
        form.put(call);
        form.put(&(token, token_highest, token_floor, exists));
        form.put(lease_longest);
        observations.compare(form);
    }
}

impl Observations {
    /// Writes the observations.
    pub(crate) fn compare(&self, form: &mut impl Form) {
        let ordered = self.iter().map(|(claim, seen)| (form.order(claim), seen));
        let mut ordered: Vec<_> = ordered.collect();
        ordered.sort_unstable_by_key(|(order, _)| *order);
        form.put(&ordered);
    }
}
