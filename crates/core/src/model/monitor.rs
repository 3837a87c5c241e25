//! What an observer notes beside the candidates, to judge the invariants
//! without asking the election how it sees things.

use crate::election::{
    BootTime, Claim, Found, Identity, Operation, Outcome, Revision, Session, Token,
};
use crate::model::store::Store;

/// What must never happen, apart from two leaders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Broken {
    /// A token led that is not above all that led before, or a claim led again.
    I3,
    /// Authority without an acknowledged write that was sent early enough (I2, I7).
    I7,
    /// An acquisition of a lease that was paused or kept for another, or a
    /// take-over of one that could not be taken.
    I8,
}

/// What just happened that a run worth its name must reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Milestone {
    /// A free lease that somebody had led before was acquired.
    HandOver,
    /// A lease was taken over.
    TakeOver,
    /// A claim whose acquisition was never answered leads.
    Adoption,
    /// A write that had been applied is undone.
    RollBack,
    /// A deadline passed.
    DeadlinePassed,
    /// The store rejected a renewal of a leader.
    RenewalRejected,
    /// A candidate saw that the document went back.
    StoreWentBack,
    /// A new process took over from its dead predecessor at once.
    Succession,
    /// A late acknowledgement of a renewal that had been given up extends authority.
    LateExtension,
    /// The candidate for whom the lease was kept acquired it.
    Transferred,
    /// A leader stepped down because the lease is paused.
    Paused,
}

/// Who sends a write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sender<'a> {
    /// The candidate's name.
    pub(crate) identity: &'a Identity,
    /// The process.
    pub(crate) session: Session,
    /// The claim that was proven dead when it started.
    pub(crate) proven_dead: Option<Claim>,
}

/// Notes about one candidate.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Monitor {
    /// The token under which it leads.
    pub(crate) leading: Option<Token>,
    /// Until when the acknowledged writes of that token's claim give authority.
    granted: Option<(Token, BootTime)>,
    /// When it was first shown a revision that is still stored.
    shown: Vec<(Revision, BootTime)>,
}

/// One candidate at one instant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment<'a> {
    /// The candidate's clock.
    pub(crate) now: BootTime,
    /// What is stored.
    pub(crate) store: &'a Store,
}

impl Monitor {
    /// The outcome of a call comes to the candidate.
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
            Operation::Create { .. } | Operation::Release { .. } | Operation::Read { .. } => return,
        };
        if lease.holder.as_ref().is_some_and(|h| h.claim == mine) {
            // A late answer to an earlier claim says nothing about this one.
            let granted = (lease.token, deadline);
            self.granted = self.granted.max(Some(granted));
        }
    }

    /// The candidate is shown a document.
    pub(crate) fn saw(&mut self, found: &Found, at: Moment<'_>) {
        if let Found::Lease(lease) = found
            && !self.shown.iter().any(|(seen, _)| *seen == lease.revision)
        {
            self.shown.push((lease.revision, at.now));
        }
        self.forget(at.store);
    }

    /// Whether there is something to forget.
    pub(crate) fn is_stale(&self, store: &Store) -> bool {
        let mut shown = self.shown.iter();
        shown.any(|(revision, _)| store.with_revision(*revision).is_none())
    }

    /// Forgets revisions on which no write can succeed any more.
    pub(crate) fn forget(&mut self, store: &Store) {
        self.shown
            .retain(|(revision, _)| store.with_revision(*revision).is_some());
    }

    /// Judges a write that the candidate sends (I8).
    pub(crate) fn sends(
        &self,
        operation: &Operation,
        by: Sender<'_>,
        at: Moment<'_>,
    ) -> Option<Broken> {
        let (Operation::Acquire(acquisition) | Operation::TakeOver { acquisition, .. }) = operation
        else {
            // A create matches only where nothing is stored, the others only
            // one's own claim.
            return None;
        };
        // On another revision the write cannot succeed.
        let lease = at.store.with_revision(acquisition.expected)?;
        let shown = self.shown.iter().find(|(r, _)| *r == lease.revision);
        let waited = |time| shown.is_some_and(|(_, since)| *since + time <= at.now);
        let may = match (operation, &lease.holder, &lease.reserved_for) {
            // What is held is not acquired: the filter refuses.
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

    /// Judges the authority that the candidate has after an input.
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
