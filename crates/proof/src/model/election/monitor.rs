//! Notes of an observer about the candidates. The invariants are checked against these notes, not
//! against the election's own state.

use crate::election::{
    BootTime, Claim, Found, Identity, Operation, Outcome, Revision, Session, Token,
};
use crate::proof::model::election::store::Store;

/// A violated invariant, except I1, which needs all candidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Broken {
    /// A candidate led with a token that was not above all earlier tokens, or led again with an
    /// ended claim.
    I3,
    /// Authority without an acknowledged write that was sent early enough (I2, I7).
    I7,
    /// Acquisition of a lease that was paused or reserved for another candidate, or takeover of a
    /// lease that could not be taken over.
    I8,
}

/// Milestone: an event that some run must reach, because an exploration without it proves little.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Milestone {
    /// A free lease that had a leader before was acquired.
    HandOver,
    /// A lease was taken over.
    TakeOver,
    /// A claim whose acquisition was never answered leads.
    Adoption,
    /// An applied write was rolled back.
    RollBack,
    DeadlinePassed,
    /// The store rejected a renewal of a leader.
    RenewalRejected,
    /// A candidate noticed that the document is older than before.
    StoreRolledBack,
    /// A new process took over immediately from its predecessor, which has exited.
    Succession,
    /// A late acknowledgement of a timed-out renewal extended authority.
    LateExtension,
    /// The lease was reserved for a candidate, and this candidate acquired it.
    Transferred,
    /// A leader stepped down because the lease was paused.
    Paused,
}

/// Sender of a write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sender<'a> {
    /// Name of the candidate.
    pub(crate) identity: &'a Identity,
    pub(crate) session: Session,
    /// Claim of the previous process, proven to have exited when this process started.
    pub(crate) proven_dead: Option<Claim>,
}

/// Notes about one candidate.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Monitor {
    /// Token of the candidate's current leadership.
    pub(crate) leading: Option<Token>,
    /// A token, and the end of its authority according to the acknowledged writes of its claim.
    granted: Option<(Token, BootTime)>,
    /// Stored revisions, and when the candidate first saw each.
    shown: Vec<(Revision, BootTime)>,
}

/// One candidate at one instant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment<'a> {
    /// The candidate's clock.
    pub(crate) now: BootTime,
    pub(crate) store: &'a Store,
}

impl Monitor {
    /// Records the outcome of a call that the candidate receives.
    pub(crate) fn answered(
        &mut self,
        operation: &Operation,
        deadline: BootTime,
        outcome: &Outcome,
        at: Moment<'_>,
    ) {
        let Outcome::Applied(found) = outcome else {
            return;
        };
        self.saw(found, at);
        let Found::Lease(lease) = found else { return };
        let mine = match operation {
            Operation::Acquire(acquisition) | Operation::TakeOver { acquisition, .. } => {
                acquisition.claim
            }
            Operation::Renew { claim, .. } => *claim,
            Operation::Create { .. }
            | Operation::Release { .. }
            | Operation::Register { .. }
            | Operation::Withdraw { .. }
            | Operation::Read { .. } => return,
        };
        if lease.holder.as_ref().is_some_and(|h| h.claim == mine) {
            // A late answer about an earlier claim proves nothing about the current claim.
            let granted = (lease.token, deadline);
            self.granted = self.granted.max(Some(granted));
        }
    }

    /// Records a document that the candidate sees.
    pub(crate) fn saw(&mut self, found: &Found, at: Moment<'_>) {
        if let Found::Lease(lease) = found
            && !self.shown.iter().any(|(seen, _)| *seen == lease.revision)
        {
            self.shown.push((lease.revision, at.now));
        }
        self.forget(at.store);
    }

    /// Returns true if some notes can be dropped.
    pub(crate) fn is_stale(&self, store: &Store) -> bool {
        let mut shown = self.shown.iter();
        shown.any(|(revision, _)| store.with_revision(*revision).is_none())
    }

    /// Drops notes about revisions that are no longer stored, because no write can match them.
    pub(crate) fn forget(&mut self, store: &Store) {
        self.shown
            .retain(|(revision, _)| store.with_revision(*revision).is_some());
    }

    /// Checks a write that the candidate sends (I8).
    pub(crate) fn sends(
        &self,
        operation: &Operation,
        by: Sender<'_>,
        at: Moment<'_>,
    ) -> Option<Broken> {
        let (Operation::Acquire(acquisition) | Operation::TakeOver { acquisition, .. }) = operation
        else {
            // A create matches only if there is no document, and the other writes match only the
            // candidate's own claim.
            return None;
        };
        // The write cannot succeed with any other expected revision.
        let lease = at.store.with_revision(acquisition.expected)?;
        let shown = self.shown.iter().find(|(r, _)| *r == lease.revision);
        let waited = |time| shown.is_some_and(|(_, since)| *since + time <= at.now);
        let may = match (operation, &lease.holder, &lease.reserved_for) {
            // An acquire of a held lease is harmless, because the filter rejects it.
            (Operation::Acquire(_), Some(_), _) | (Operation::Acquire(_), None, None) => true,
            (Operation::Acquire(_), None, Some(kept)) => {
                kept.identity == *by.identity || waited(kept.duration)
            }
            (_, None, _) => true,
            (_, Some(holder), _) => {
                let own = holder.session == by.session;
                let dead = by.proven_dead == Some(holder.claim);
                own || dead || waited(holder.lease_duration.duration())
            }
        };
        (!may).then_some(Broken::I8)
    }

    /// Checks the authority that the candidate has after an input.
    pub(crate) fn leads(
        &mut self,
        authority: Option<(Token, BootTime)>,
        token_led: &mut Token,
    ) -> Option<Broken> {
        let Some((token, until)) = authority else {
            self.leading = None;
            self.granted = None;
            return None;
        };
        if self.leading != Some(token) {
            if token <= *token_led {
                return Some(Broken::I3);
            }
            *token_led = token;
            self.leading = Some(token);
        }
        let covered = self
            .granted
            .is_some_and(|(granted, upto)| granted == token && until <= upto);
        (!covered).then_some(Broken::I7)
    }
}
