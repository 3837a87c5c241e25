//! A candidate's knowledge of the store, and its steps while no claim of it leads.
//!
//! Nothing here has authority. A follower writes only if the lease is free, expired by its own
//! observation, held by its own ended claim, or held by a process that has provably exited (I8).
//! Each such write is a compare-and-set on the revision seen.

use super::candidate::{Candidate, Participant};
use super::claims::{EndedClaim, OpenClaims, RejectedClaim};
use super::decide::{Decision, Situation};
use super::effect::{CallId, Effect, Notice};
use super::input::{Found, Outcome};
use super::leadership::AfterWrite;
use super::lease::{Lease, Session, Token};
use super::prefer::Preference;
use super::publication::DirectoryRecord;
use super::reading::{LeaseReads, ReadDocument};
use super::standby::Registration;
use super::state::CandidateState;
use super::supervise::WorkloadState;
use super::time::BootTime;
use super::view::LeaseView;
use super::waits::Waits;
use super::write::{WriteInFlight, WriteReply};
use crate::claim::{Rollback, Turn, earliest};

/// A candidate without the claim that leads, if any.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Contender {
    pub(super) me: Participant,
    pub(super) view: LeaseView,
    pub(super) reads: LeaseReads,
    pub(super) claims: OpenClaims,
    pub(super) waits: Waits,
    pub(super) registration: Registration,
    /// Progress of a leader towards a handover to a preferred standby.
    pub(super) preference: Preference,
    pub(super) record: DirectoryRecord,
    write: Option<WriteInFlight>,
    /// A claim that was just rejected, kept until a read shows why.
    checking: Option<RejectedClaim>,
}

impl Contender {
    pub(super) fn new(candidate: &Candidate, session: Session, now: BootTime) -> Self {
        let (predecessor, view) = (candidate.predecessor_claim, LeaseView::new(candidate));
        Self {
            me: Participant::new(candidate, session),
            record: DirectoryRecord::new(predecessor, &view),
            view,
            reads: LeaseReads::new(now),
            claims: OpenClaims::new(predecessor),
            waits: Waits::new(now),
            registration: Registration::new(candidate.stands_by),
            preference: Preference::default(),
            write: None,
            checking: None,
        }
    }

    pub(super) fn is_checking(&self) -> bool {
        self.checking.is_some()
    }

    /// Returns true if a write is in flight, or the cause of a rejection is being read.
    pub(super) fn is_busy(&self) -> bool {
        self.write.is_some() || self.is_checking()
    }

    pub(super) fn situation<'a>(&'a self, workload: &'a WorkloadState) -> Situation<'a> {
        Situation {
            me: &self.me,
            view: &self.view,
            claims: &self.claims,
            waits: &self.waits,
            registration: &self.registration,
            preference: &self.preference,
            workload,
        }
    }

    /// Records what a reply or event shows, even if it is late or not trusted: the token was used,
    /// its holder may lead for the declared duration, and acquisitions in flight may be overtaken.
    pub(super) fn shown(&mut self, lease: &Lease, is_reply: bool) {
        self.view.note_seen(lease);
        self.claims.shown(lease, is_reply);
        if let Some(write) = &mut self.write {
            write.shown(lease, is_reply);
        }
    }

    /// Handles the document of any reply, even if no step waits for the reply: the token was used.
    pub(super) fn replied(&mut self, outcome: &Outcome, now: BootTime) {
        if matches!(outcome, Outcome::Applied(_) | Outcome::Rejected) {
            self.reads.contact(self.me.timings(), now);
        }
        if let Outcome::Applied(Found::Lease(lease)) = outcome {
            self.shown(lease, true);
        }
    }

    /// Handles the reply to a registration or withdrawal of a standby; returns false for any other
    /// reply.
    pub(super) fn registration_reply(
        &mut self,
        call: CallId,
        outcome: &Outcome,
        leads: bool,
        now: BootTime,
    ) -> bool {
        let (me, view) = (&self.me, &mut self.view);
        let wait = leads.then(|| 2 * me.timings().renew_interval());
        self.registration.reply(call, outcome, me, view)
            || self.preference.reply(call, outcome, wait, view, now)
    }

    /// Handles a change event without a claim.
    pub(super) fn changed(&mut self, lease: Lease, turn: &mut Turn<'_>) {
        if self.reads.is_late() {
            if self.view.is_older_than(&lease) {
                self.reads.schedule.read_at(turn.now);
            }
            return;
        }
        let found = Found::Lease(lease);
        if self.view.rollback(&found).is_none() {
            self.observe(found, turn);
            self.reads.overtake();
        } else {
            self.reads.fall_behind(turn.now);
        }
    }

    pub(super) fn read_if_due(&mut self, turn: &mut Turn<'_>) {
        self.reads.send_if_due(&self.view, turn);
    }

    /// Applies the content of a reply or of a trusted event to the view.
    pub(super) fn observe(&mut self, found: Found, turn: &mut Turn<'_>) {
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

    /// Applies the reply to a write. A reply older than the view was overtaken by an event, or the
    /// store was rolled back; only a linearizable read can distinguish the two.
    pub(super) fn observe_written(&mut self, found: Found, turn: &mut Turn<'_>) {
        if self.view.rollback(&found).is_none() {
            self.reads.looked(turn.now);
            self.observe(found, turn);
        } else {
            self.reads.suspect(turn.now);
            self.reads.fall_behind(turn.now);
        }
    }

    /// Applies the reply to a renewal of the claim that leads.
    pub(super) fn renewed(&mut self, lease: &Lease, turn: &mut Turn<'_>) {
        let found = Found::Lease(lease.clone());
        if self.view.rollback(&found).is_none() {
            self.observe(found, turn);
        } else {
            // The token was lowered, so the next leader could get a token that was already used.
            self.reads.suspect(turn.now);
        }
    }

    /// Begins the quarantine after a rollback of the store, in which another candidate may still lead.
    pub(super) fn rolled_back(&mut self, Rollback { seen, found }: Rollback, turn: &mut Turn<'_>) {
        let wait = if planted!(OwnQuarantine) {
            self.me.timings().lease_duration()
        } else {
            self.view.marks.lease_longest()
        };
        self.waits.quarantine = Some(turn.now + wait);
        turn.effects
            .notice(Notice::StoreRolledBack { seen, found, wait });
        self.claims.clear();
        self.checking = None;
    }

    /// Handles the reply to a read; returns what it shows, if it is to be trusted.
    pub(super) fn read_reply(
        &mut self,
        outcome: Outcome,
        turn: &mut Turn<'_>,
    ) -> Option<ReadDocument> {
        if !matches!(outcome, Outcome::Applied(_)) {
            self.checking = None;
        }
        let read = self.reads.reply(outcome, &self.view, &self.me, turn)?;
        if let Some(rollback) = read.rollback {
            self.rolled_back(rollback, turn);
        }
        Some(read)
    }

    /// Prepares what follows the reply to a read; returns false if an event overtook it.
    pub(super) fn accept(
        &mut self,
        read: &ReadDocument,
        contends: bool,
        turn: &mut Turn<'_>,
    ) -> bool {
        let (reads, view) = (&mut self.reads, &self.view);
        reads.looked(turn.now);
        let current = reads.is_current(read, contends, view, turn.now);
        if current {
            turn.effects.extend(reads.judge_stream(read, view));
            reads.follow_up(&read.found, contends, &self.me, turn);
        }
        current
    }

    /// Checks by a read why a claim was rejected. A process on a cloned directory may lead with it,
    /// so the record no longer proves anything to the next process.
    pub(super) fn check(&mut self, rejected: RejectedClaim, turn: &mut Turn<'_>) {
        turn.effects.push(self.record.set(None, &self.view));
        self.checking = Some(rejected);
    }

    /// Applies what a read shows, which ends the check of a rejected claim. Returns true if the
    /// stored claim is this process's own, with a revision that it never sent: a forked machine
    /// renews it, or the document was edited by hand.
    pub(super) fn observe_read(&mut self, found: Found, turn: &mut Turn<'_>) -> bool {
        let checking = self.checking.take();
        let duplicate = checking.is_some_and(|claim| claim.is_renewed_by_another(&found));
        if duplicate {
            let session = self.me.session;
            turn.effects.notice(Notice::Duplicate { session });
            self.me.renew_session(turn);
        }
        self.observe(found, turn);
        duplicate
    }

    /// Handles the reply to the write in flight, or a late reply to an earlier call.
    pub(super) fn write_reply(
        &mut self,
        call: CallId,
        outcome: Outcome,
        shutting_down: bool,
        turn: &mut Turn<'_>,
    ) -> AfterWrite {
        let Some(write) = self.write.take_if(|write| write.call() == call) else {
            self.late_reply(call, &outcome, turn.now);
            return AfterWrite::Nothing;
        };
        match write.reply(outcome, &mut self.claims, turn.now) {
            WriteReply::Acquired(acquired) => {
                return self.begin(*acquired, shutting_down, turn);
            }
            WriteReply::Created(found, overtaken) => {
                let begun = self.created(&found, overtaken, turn);
                self.observe(found, turn);
                return begun;
            }
            WriteReply::Released(found) => self.observe_written(found, turn),
            WriteReply::Retry => self.reads.read_before_write(self.me.retry_at(turn)),
            WriteReply::Rejected => self.reads.fall_behind(turn.now),
            WriteReply::Exists => {
                self.view.marks.note_existence();
                self.reads.fall_behind(turn.now);
            }
            WriteReply::RaceLost => {
                self.waits.race_lost();
                self.reads.fall_behind(turn.now);
            }
            WriteReply::Unreported => {
                turn.effects.extend(self.reads.reopen());
                self.reads.fall_behind(turn.now);
            }
        }
        AfterWrite::Nothing
    }

    /// Handles a created document, whose creation may prove a rollback of the store.
    /// Another document may have been seen while the insert was in flight. The success of the
    /// insert proves that this document is gone, and its holder may still lead, even if the new
    /// document has the token of the other one.
    fn created(&mut self, found: &Found, overtaken: bool, turn: &mut Turn<'_>) -> AfterWrite {
        let rollback = match (self.view.rollback(found), found) {
            (Some(rollback), _) => rollback,
            (None, Found::Lease(lease)) if overtaken => Rollback {
                seen: self.view.marks.token_highest(),
                found: Some(lease.token),
            },
            (None, _) => return AfterWrite::Nothing,
        };
        self.rolled_back(rollback, turn);
        AfterWrite::StoreRolledBack
    }

    /// Handles the true outcome of a call that had counted as unknown. The outcome grants no
    /// authority and at most triggers a read.
    fn late_reply(&mut self, call: CallId, outcome: &Outcome, now: BootTime) {
        match outcome {
            Outcome::Rejected | Outcome::Failed => self.claims.remove_call(call),
            Outcome::Applied(_) if self.claims.awaits(call) => self.reads.fall_behind(now),
            // The reply to an old read. The filters protect a foreign document from being written
            // to, but the next write should still be preceded by a read.
            Outcome::Applied(Found::Foreign(_)) => self.reads.fall_behind(now),
            // It shows a claim that follows the document as last seen. If that document is stored
            // again, the claim may still lead, which only a read can notice.
            Outcome::Applied(Found::Lease(lease))
                if (self.view.lease()).is_some_and(|known| lease.token > known.token) =>
            {
                self.reads.late_reply(now);
            }
            Outcome::Applied(_) | Outcome::Unknown => {}
        }
    }

    /// Returns the next decision; `None` while a reply or a read must come first.
    pub(super) fn decide(
        &mut self,
        workload: &WorkloadState,
        turn: &mut Turn<'_>,
    ) -> Option<Decision> {
        if !self.is_busy() {
            self.reads.keep_looking(&self.me, turn);
        }
        self.read_if_due(turn);
        let waits = self.is_busy() || self.reads.is_blind();
        (!waits).then(|| self.situation(workload).decide(turn.now))
    }

    /// Sends what was decided; returns the next wakeup.
    pub(super) fn carry_out(
        &mut self,
        decision: Option<Decision>,
        turn: &mut Turn<'_>,
    ) -> Option<BootTime> {
        let mut wait = None;
        match decision {
            None => {}
            Some(Decision::Wait(until)) => {
                let (view, timings) = (&self.view, self.me.timings());
                let checked = self.reads.check_stream(view, timings, turn);
                wait = earliest([until, checked, self.stand_by(turn)]);
            }
            Some(Decision::Create) => {
                let token = self.view.marks.token_highest();
                self.write = Some(WriteInFlight::create(token, turn));
            }
            Some(Decision::Acquire(lease, ended, from)) => {
                if let Some(token) = self.view.next_token(&lease) {
                    let acquisition = self.me.acquisition(token, lease.revision, turn);
                    // The next process on this directory must find the claim that may be stored.
                    // The token is recorded only after it was seen in the store. Otherwise the next
                    // process would mistake a store that never had the token for a store that
                    // was rolled back.
                    turn.effects
                        .push(self.record.set(Some(acquisition.claim), &self.view));
                    let (replaced, timings) = ((&lease, ended), *self.me.timings());
                    self.write = Some(WriteInFlight::acquire(
                        acquisition,
                        replaced,
                        from,
                        timings,
                        turn,
                    ));
                }
            }
            Some(Decision::Adopt(attempt)) => {
                self.write = Some(WriteInFlight::adopt(attempt, turn));
            }
            Some(Decision::Release(ended)) => {
                self.reads.replace_due(turn.now);
                self.release(&ended, turn);
            }
        }
        earliest([wait, self.reads.schedule.next()])
    }

    /// Sends the release of an ended claim.
    pub(super) fn release(&mut self, ended: &EndedClaim, turn: &mut Turn<'_>) {
        self.claims.releasing(ended);
        self.reads.drop_in_flight();
        self.write = Some(WriteInFlight::release(ended, turn));
    }

    /// Registers this candidate if the holder has no standby, or a standby with a lower priority,
    /// and withdraws its registration if it cannot lead. Returns the next instant.
    fn stand_by(&mut self, turn: &mut Turn<'_>) -> Option<BootTime> {
        let (registration, view) = (&mut self.registration, &mut self.view);
        if self.waits.unhealthy && registration.withdraw(&self.me, view, turn) {
            return None;
        }
        let vacancy = registration.vacancy(&self.me, view, &self.claims, &self.waits, turn.now);
        registration.stand_by(vacancy, &self.me, turn)
    }

    /// Cancels the acquisitions that may still succeed, because a step-down was requested. Their
    /// claims never lead, and the cooldown after a requested step-down begins.
    pub(super) fn cancel_acquisitions(&mut self, now: BootTime) {
        let pending = self.claims.cancel();
        let acquiring = self.write.as_mut().is_some_and(WriteInFlight::cancel);
        if pending || acquiring {
            // The cooldown ends early when another claim follows the document as last seen.
            self.cool_down(self.view.marks.document_token().unwrap_or_default(), now);
        }
    }

    /// Starts a cooldown of one lease duration, which ends early when another claim leads.
    pub(super) fn cool_down(&mut self, token: Token, now: BootTime) {
        let until = now + self.me.timings().lease_duration();
        self.waits.cool_down(until, token, self.me.session);
    }

    /// Returns true if the document may name a claim of this process: an acquisition or a release
    /// was not answered, or no release was sent.
    pub(super) fn may_be_stored(&self) -> bool {
        let held = self.view.lease().and_then(|lease| lease.holder.as_ref());
        self.write
            .as_ref()
            .is_some_and(WriteInFlight::is_acquisition)
            || !self.claims.is_empty()
            || (!self.reads.schedule.behind && held.is_some_and(|h| h.session == self.me.session))
    }

    /// Withdraws the registration of a process that exits. Returns the end of the wait for the
    /// answer.
    pub(super) fn withdraw_before_exit(
        &mut self,
        by: BootTime,
        turn: &mut Turn<'_>,
    ) -> Option<BootTime> {
        if self.reads.schedule.suspicious {
            return None;
        }
        let (registration, view) = (&mut self.registration, &mut self.view);
        registration.withdraw_before_exit(by, &self.me, view, turn)
    }

    /// Forgets the write in flight, because this candidate exits.
    pub(super) fn exit(&mut self) {
        (self.write, self.checking) = (None, None);
    }

    pub(super) fn check_invariants(&self, state: &CandidateState) {
        self.reads
            .check_invariants(state.contends() && !self.is_busy());
        let leading = state.tenure().map(|tenure| tenure.claim);
        self.claims.check_invariants(leading);
    }
}
