//! An observer's notes about each candidate. The invariants are checked against these notes and
//! not against the state of the election, which may be wrong.

use crate::election::{
    BootTime, Claim, Found, Identity, Operation, Outcome, Revision, Session, Token,
};
use crate::proof::model::election::store::Store;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Broken {
    /// A candidate led with a token that was not above all earlier tokens, or led again with an
    /// ended claim.
    I3,
    /// A candidate had authority for longer than its acknowledged writes granted (I2, I7).
    I7,
    /// A candidate acquired a lease that was paused or reserved for another candidate, or took
    /// over a lease too early.
    I8,
}

/// An event that some run must reach. An exploration without this event proves little.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Milestone {
    /// A candidate acquired a free lease that had a leader before.
    HandOver,
    TakeOver,
    /// A candidate led with a claim whose acquisition was never answered.
    Adoption,
    RollBack,
    DeadlinePassed,
    RenewalRejected,
    /// A candidate noticed that the stored document is older than a document that it had seen.
    StoreRolledBack,
    /// The reply to an insert was received after a newer document, which the insert may have
    /// replaced. The candidate reports this as a loss, too.
    CreatedLate,
    /// A new process took over immediately from its exited predecessor on the same machine.
    Succession,
    /// An acknowledgement arrived after its renewal had timed out, and extended authority.
    LateExtension,
    Transferred,
    Paused,
    /// A candidate tried to acquire the lease with a revision that it had not read.
    AcquiredUnread,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Sender<'a> {
    pub(crate) identity: &'a Identity,
    pub(crate) session: Session,
    /// The claim of the previous process, if that process is proven to have exited.
    pub(crate) proven_dead: Option<Claim>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Monitor {
    pub(crate) leading: Option<Token>,
    /// A token, and the time at which its authority ends according to the acknowledged writes.
    granted: Option<(Token, BootTime)>,
    /// The stored revisions, each with the time at which the candidate first saw it.
    shown: Vec<(Revision, BootTime)>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment<'a> {
    pub(crate) now: BootTime,
    pub(crate) store: &'a Store,
}

impl Monitor {
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
            // A late answer about an earlier claim does not extend the current claim's authority.
            let granted = (lease.token, deadline);
            self.granted = self.granted.max(Some(granted));
        }
    }

    pub(crate) fn saw(&mut self, found: &Found, at: Moment<'_>) {
        if let Found::Lease(lease) = found
            && !self.shown.iter().any(|(seen, _)| *seen == lease.revision)
        {
            self.shown.push((lease.revision, at.now));
        }
        self.forget(at.store);
    }

    pub(crate) fn is_stale(&self, store: &Store) -> bool {
        let mut shown = self.shown.iter();
        shown.any(|(revision, _)| store.with_revision(*revision).is_none())
    }

    /// Drops the notes about revisions that are no longer stored, because no write can match them.
    pub(crate) fn forget(&mut self, store: &Store) {
        self.shown
            .retain(|(revision, _)| store.with_revision(*revision).is_some());
    }

    pub(crate) fn sends(
        &self,
        operation: &Operation,
        by: Sender<'_>,
        at: Moment<'_>,
    ) -> Option<Broken> {
        let (Operation::Acquire(acquisition) | Operation::TakeOver { acquisition, .. }) = operation
        else {
            // The other writes cannot take the lease from another candidate.
            return None;
        };
        // The write matches only the revision that it expects.
        let lease = at.store.with_revision(acquisition.expected)?;
        let shown = self.shown.iter().find(|(r, _)| *r == lease.revision);
        let waited = |time| shown.is_some_and(|(_, since)| *since + time <= at.now);
        let may = match (operation, &lease.holder, &lease.reserved_for) {
            // The filter rejects an acquire while the lease is held.
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

    /// Returns true if the operation expects a stored revision that the candidate has not read.
    pub(crate) fn acquires_unread(&self, operation: &Operation, at: Moment<'_>) -> bool {
        let Operation::Acquire(acquisition) = operation else {
            return false;
        };
        let unread = self.shown.iter().all(|(r, _)| *r != acquisition.expected);
        unread && at.store.with_revision(acquisition.expected).is_some()
    }

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
