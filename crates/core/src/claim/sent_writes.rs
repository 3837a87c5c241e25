//! Writes that carried a revision of one claim, and may have been applied.
//!
//! Every revision that was sent is kept until it provably cannot be stored, because an unanswered
//! write may be applied later (I7).

use crate::election::{BootTime, CallId, Revision};

/// Maximum number of unanswered writes of a claim: one, plus a second one after a primary change.
pub(crate) const IN_FLIGHT_MAX: usize = 2;

/// Writes of one claim, oldest first; at most `MAX`. A write beyond that drops the oldest one, apart
/// from the first `KEPT`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SentWrites<P, const MAX: usize, const KEPT: usize>(Vec<SentWrite<P>>);

/// A write that carried a revision of the claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SentWrite<P> {
    pub(crate) call: CallId,
    pub(crate) purpose: P,
    pub(crate) revision: Revision,
    pub(crate) sent: BootTime,
    pub(crate) state: WriteState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum WriteState {
    /// Not answered yet.
    Awaited,
    /// Applied, possibly applied, or possibly applied later.
    Open,
    /// The filter did not match. The revision is kept nevertheless, because a write that the
    /// network delivers twice could match the second time.
    Rejected,
}

impl<P: Copy, const MAX: usize, const KEPT: usize> SentWrites<P, MAX, KEPT> {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Records a write that is sent now. Returns true if an older one was dropped for it.
    pub(crate) fn send(
        &mut self,
        call: CallId,
        purpose: P,
        revision: Revision,
        now: BootTime,
    ) -> bool {
        let is_full = self.0.len() == MAX;
        if is_full {
            self.0.remove(KEPT);
        }
        self.0.push(SentWrite {
            call,
            purpose,
            revision,
            sent: now,
            state: WriteState::Awaited,
        });
        is_full
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &SentWrite<P>> {
        self.0.iter()
    }

    /// Returns every revision that may be stored.
    pub(crate) fn revisions(&self) -> impl Iterator<Item = Revision> {
        self.0.iter().map(|write| write.revision)
    }

    /// Returns true if a write carried `revision` and may be stored.
    pub(crate) fn carried(&self, revision: Revision) -> bool {
        self.revisions().any(|carried| carried == revision)
    }

    pub(crate) fn get(&self, call: CallId) -> Option<SentWrite<P>> {
        self.0.iter().find(|write| write.call == call).copied()
    }

    pub(crate) fn in_flight(&self) -> usize {
        let awaited = |write: &&SentWrite<P>| write.state == WriteState::Awaited;
        self.0.iter().filter(awaited).count()
    }

    /// Returns true if no other write was sent after `call`.
    pub(crate) fn is_newest(&self, call: CallId) -> bool {
        self.0.last().is_some_and(|write| write.call == call)
    }

    pub(crate) fn get_mut(&mut self, call: CallId) -> Option<&mut SentWrite<P>> {
        self.0.iter_mut().find(|write| write.call == call)
    }

    pub(crate) fn settle(&mut self, call: CallId, state: WriteState) {
        if let Some(write) = self.get_mut(call) {
            write.state = state;
        }
    }

    /// Removes a write that was provably never applied.
    pub(crate) fn remove(&mut self, call: CallId) {
        self.0.retain(|write| write.call != call);
    }

    /// Removes a write and all that were sent before it; returns the write.
    pub(crate) fn remove_until(&mut self, call: CallId) -> Option<SentWrite<P>> {
        let index = self.0.iter().position(|write| write.call == call)?;
        self.0.drain(..=index).next_back()
    }
}
