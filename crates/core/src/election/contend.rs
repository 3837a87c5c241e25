//! A candidate's knowledge of the store, and its steps while it does not lead. Apart from
//! registering as the standby, the candidate writes only to a free lease, to a lease that it has
//! seen expire, or to a lease held by its own ended claim or by an exited process (I8). Each of
//! these writes is a compare-and-set.

mod decide;
mod leadership;
mod phase;
#[cfg(proof)]
#[path = "../../../proof/src/planted/contend.rs"]
mod planted;
mod prefer;
mod reading;
mod shutdown;
mod standby;
mod supervise;
mod write;

use super::candidate::{Candidate, Participant};
use super::claims::{OpenClaims, RejectedClaim};
use super::publication::DirectoryRecord;
use super::view::LeaseView;
use super::waits::Waits;
use super::{
    BootTime, CandidateState, Effect, Found, Lease, Notice, Outcome, Role, Session, Token, Tunables,
};
use crate::claim::{Rollback, Turn, earliest};
use decide::Decision;
pub(super) use leadership::AfterWrite;
pub(super) use prefer::GiveWay;
use prefer::Preference;
use reading::LeaseReads;
pub(super) use shutdown::LastStep;
use shutdown::Shutdown;
use standby::Registration;
use supervise::WorkloadState;
pub(super) use write::Acquired;
use write::WriteInFlight;

/// A candidate's knowledge of the store, and its workload. Private to the files below `contend/`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Contender {
    me: Participant,
    view: LeaseView,
    reads: LeaseReads,
    claims: OpenClaims,
    waits: Waits,
    registration: Registration,
    preference: Preference,
    record: DirectoryRecord,
    write: Option<WriteInFlight>,
    /// A claim whose renewal was rejected, kept until a read shows why.
    checking: Option<RejectedClaim>,
    workload: WorkloadState,
    shutdown: Shutdown,
}

impl Contender {
    pub(super) fn new(candidate: &Candidate, session: Session, now: BootTime) -> Self {
        let (predecessor, view) = (candidate.predecessor_claim, LeaseView::new(candidate));
        Self {
            me: Participant {
                identity: candidate.identity.clone(),
                session,
                priority: candidate.priority,
                releases_predecessor: candidate.releases_predecessor,
                tunables: candidate.tunables,
                shared_clock_offset: candidate.shared_clock_offset,
            },
            record: DirectoryRecord::new(predecessor, &view),
            view,
            reads: LeaseReads::new(now),
            claims: OpenClaims::new(predecessor, now),
            waits: Waits::new(now),
            registration: Registration::new(candidate.stands_by),
            preference: Preference::default(),
            write: None,
            checking: None,
            workload: WorkloadState::new(candidate.supervises),
            shutdown: Shutdown::default(),
        }
    }

    pub(super) fn me(&self) -> &Participant {
        &self.me
    }

    pub(super) fn view(&self) -> &LeaseView {
        &self.view
    }

    pub(super) fn reads(&self) -> &LeaseReads {
        &self.reads
    }

    pub(super) fn workload(&self) -> &WorkloadState {
        &self.workload
    }

    pub(super) const fn shutdown(&self) -> &Shutdown {
        &self.shutdown
    }

    pub(super) fn reconfigure(&mut self, tunables: Tunables) {
        self.me.tunables = tunables;
    }

    pub(super) fn set_health(&mut self, healthy: bool) {
        self.waits.unhealthy = !healthy;
    }

    pub(super) fn expire(&mut self, now: BootTime) {
        self.waits.expire(now);
    }

    pub(super) fn refresh_record(&mut self) -> Option<Effect> {
        self.record.refresh(&self.view)
    }

    pub(super) fn role(&self, before: Role, now: BootTime) -> Role {
        let stopped = self.shutdown.requested && before == Role::Stopping;
        if self.checking.is_some() || stopped {
            Role::Stopping
        } else if self.view.document.is_none()
            || self.reads.answers_until.is_none_or(|at| at <= now)
        {
            Role::Unknown
        } else if self.view.lease().is_some_and(|lease| lease.paused) {
            Role::Paused
        } else {
            Role::Follower
        }
    }

    fn is_busy(&self) -> bool {
        self.write.is_some() || self.checking.is_some()
    }

    /// Records a document's token and duration, and marks the acquisitions that it contradicts.
    fn shown(&mut self, lease: &Lease, is_reply: bool) {
        self.view.note_seen(lease);
        for attempt in &mut self.claims.pending {
            attempt.shown(lease, is_reply);
        }
        if let Some(write) = &mut self.write {
            write.shown(lease, is_reply);
        }
    }

    pub(super) fn replied(&mut self, outcome: &Outcome, now: BootTime) {
        if matches!(outcome, Outcome::Applied(_) | Outcome::Rejected) {
            self.contact(now);
        }
        if let Outcome::Applied(Found::Lease(lease)) = outcome {
            self.shown(lease, true);
        }
    }

    fn observe(&mut self, found: Found, turn: &mut Turn<'_>) {
        if let Found::Lease(lease) = &found {
            if self.claims.forget_superseded(lease, self.record.claim) {
                turn.effects.push(self.record.set(None, &self.view));
            }
            self.waits.observe(lease);
        }
        turn.effects
            .extend(self.view.strange(&found).map(Effect::Notice));
        if self.view.observe(found, turn.now) {
            self.waits.draw(turn);
            self.registration.draw(turn);
            let lease = self.view.lease();
            if lease.is_some_and(|lease| self.view.next_token(lease).is_none()) {
                turn.effects.notice(Notice::TokensExhausted);
            }
        }
    }

    /// Begins the quarantine after a rollback, because another candidate may still lead.
    fn rolled_back(&mut self, Rollback { seen, found }: Rollback, turn: &mut Turn<'_>) {
        let own = self.me.timings().lease_duration();
        let wait = planted!(OwnQuarantine, own, self.view.marks.lease_longest);
        self.waits.quarantine = Some(turn.now + wait);
        turn.effects
            .notice(Notice::StoreRolledBack { seen, found, wait });
        self.claims.clear();
        if let Some(claim) = self.record.claim {
            self.forget_recorded(claim, turn);
        }
        self.checking = None;
        // An event may have shown a newer document than the reply that proves the rollback.
        self.reads.fall_behind(turn.now);
    }

    /// Applies a read. Returns true if another process, for example on a forked VM, renews this
    /// claim.
    pub(super) fn observe_read(&mut self, found: Found, turn: &mut Turn<'_>) -> bool {
        let checking = self.checking.take();
        let duplicate = checking.is_some_and(|claim| claim.is_renewed_by_another(&found));
        if duplicate {
            let session = self.me.session;
            turn.effects.notice(Notice::Duplicate { session });
            self.me.session = Session::random(turn.random);
        }
        if let Found::Lease(lease) = &found
            && let Some(claim) = self.claims.confirm_release(lease)
        {
            self.released(claim, turn);
        }
        self.observe(found, turn);
        duplicate
    }

    /// Returns the next decision; `None` if a reply or a read must come first.
    fn decide(&mut self, turn: &mut Turn<'_>) -> Option<Decision> {
        if !self.is_busy() {
            self.keep_looking(turn);
        }
        self.read_if_due(turn);
        let waits = self.is_busy() || self.reads.is_blind();
        (!waits).then(|| self.decision(turn.now))
    }

    pub(super) fn proceed(&mut self, turn: &mut Turn<'_>) -> Option<BootTime> {
        let mut wait = None;
        match self.decide(turn) {
            None => {}
            Some(Decision::Wait(until)) => {
                let checked = self.check_stream(turn);
                wait = earliest([until, checked, self.stand_by(turn)]);
            }
            Some(Decision::Create) => self.create(turn),
            Some(Decision::Acquire(lease, ended, from)) => {
                if let Some(token) = self.view.next_token(&lease) {
                    self.acquire(token, (&lease, ended), from, turn);
                }
            }
            Some(Decision::Adopt(attempt)) => self.adopt(attempt, turn),
            Some(Decision::Release(ended)) => {
                // The reply to the release contains the document, so a due read is not needed.
                self.reads.drop_due(turn.now);
                self.release(&ended, turn);
            }
        }
        earliest([wait, self.next_read()])
    }

    pub(super) fn cancel_acquisitions(&mut self, now: BootTime) {
        let pending = !self.claims.pending.is_empty();
        for attempt in &mut self.claims.pending {
            attempt.cancelled = true;
        }
        let acquiring = self.write.as_mut().is_some_and(WriteInFlight::cancel);
        if pending || acquiring {
            self.cool_down(self.view.marks.document_token.unwrap_or_default(), now);
        }
    }

    pub(super) fn cool_down(&mut self, token: Token, now: BootTime) {
        let until = now + self.me.timings().lease_duration();
        self.waits.cool_down(until, token, self.me.session);
    }

    fn may_be_stored(&self) -> bool {
        let held = self.view.lease().and_then(|lease| lease.holder.as_ref());
        matches!(self.write, Some(WriteInFlight::Acquiring { .. }))
            || !self.claims.is_empty()
            || self.exited_claim_may_be_stored()
            || (!self.reads.schedule.behind && held.is_some_and(|h| h.session == self.me.session))
    }

    pub(super) fn check_invariants(&self, state: &CandidateState) {
        let idle = state.contends() && !self.is_busy();
        self.reads.check_invariants(idle);
        let leading = state.tenure().map(|tenure| tenure.claim);
        self.claims.check_invariants(leading);
        self.workload.check_invariants(state);
    }
}

/// Access for tests, which also build states that no input reaches.
#[cfg(all(test, not(proof)))]
impl Contender {
    pub(super) fn view_mut(&mut self) -> &mut LeaseView {
        &mut self.view
    }

    pub(super) fn claims(&mut self) -> &mut OpenClaims {
        &mut self.claims
    }

    pub(super) fn waits(&mut self) -> &mut Waits {
        &mut self.waits
    }
}
