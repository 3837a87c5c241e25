//! Planted bugs of a contender. `crates/core/src/election/contend.rs` includes this file as a
//! module, so that this file can use private items of the contender.

use super::decide::{Decision, Predecessor};
use super::write::Acquired;
use super::{AfterWrite, Contender};
use crate::claim::Turn;

impl Contender {
    pub(crate) fn only_reads_after_events(&self) -> bool {
        self.reads.is_late()
    }

    pub(crate) fn continue_from(&mut self, before: &Self) {
        self.view.continue_from(&before.view);
    }

    /// Leads with a claim that was found in the store, as if the store had acknowledged its
    /// renewal.
    pub(crate) fn lead_unrenewed(&mut self, turn: &mut Turn<'_>) -> Option<AfterWrite> {
        if !planted!(AdoptedWithoutRenewal) {
            return None;
        }
        let Some(Decision::Adopt(attempt)) = self.decide(turn) else {
            return None;
        };
        let acquired = Acquired {
            revision: attempt.chain[0],
            attempt,
            sent: turn.now,
            lease: self.view.lease().cloned()?,
            from: Predecessor::Nobody,
        };
        Some(self.begin(acquired, turn))
    }
}
