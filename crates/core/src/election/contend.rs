//! What a candidate knows of the store, and what it does without a claim that leads.
//!
//! Nothing here has authority. A follower writes only if the lease is free, expired by its own
//! observation, held by its own ended claim, or held by a process that has provably exited (I8).
//! Each such write is a compare-and-set on the revision seen.

use super::candidate::Participant;
use super::claims::{EndedClaim, OpenClaims, Overtaken, RejectedClaim};
use super::decide::{Decision, Situation};
use super::effect::{CallId, Effect, Notice};
use super::input::{Found, Outcome};
use super::lease::{Claim, Lease, Reservation, Token};
use super::prefer::GiveWay;
use super::publication::DirectoryRecord;
use super::reading::{ReadReply, Reading, Reads};
use super::standby::{Registration, head_start_of_standby};
use super::state::{CauseOfLoss, LostClaim, State};
use super::status::Reason;
use super::stopping::Stopped;
use super::supervise::WorkloadState;
use super::tenure::Tenure;
use super::time::BootTime;
use super::turn::{Outbox, Turn, earliest};
use super::view::{Plausible, View};
use super::waits::Waits;
use super::write::{Acquired, WriteInFlight, WriteReply};

/// A candidate, apart from a claim that leads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Contender {
    pub(super) me: Participant,
    pub(super) view: View,
    pub(super) reads: Reads,
    pub(super) claims: OpenClaims,
    pub(super) waits: Waits,
    pub(super) registration: Registration,
    record: DirectoryRecord,
    write: Option<WriteInFlight>,
    /// A claim that was just rejected, kept until a read shows why.
    checking: Option<RejectedClaim>,
}

/// Result of an acknowledged acquisition.
pub(super) enum Begun {
    Leads(Tenure, Reason),
    /// The claim must not lead, and is freed like any other ended claim.
    Barred,
    StoreRolledBack,
}

/// A reply that changes more than what is known of the store.
pub(super) enum Consequence {
    Begin(Acquired),
    StoreRolledBack,
}

impl Contender {
    pub(super) fn new(
        me: Participant,
        view: View,
        predecessor: Option<Claim>,
        stands_by: bool,
        now: BootTime,
    ) -> Self {
        Self {
            me,
            record: DirectoryRecord::new(predecessor, &view),
            view,
            reads: Reads::new(now),
            claims: OpenClaims::new(predecessor),
            waits: Waits::new(now),
            registration: Registration::new(stands_by),
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

    /// Handles what any reply shows, also a late one that no step waits for, because the token was
    /// used.
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
        let (registration, view) = (&mut self.registration, &mut self.view);
        registration.reply(call, outcome, leads, &self.me, view, now)
    }

    /// Handles a change event without a claim.
    pub(super) fn changed(&mut self, lease: Lease, outbox: &mut Outbox, turn: &mut Turn<'_>) {
        if self.reads.is_late() {
            if self.view.is_older_than(&lease) {
                self.reads.read_at(turn.now);
            }
            return;
        }
        let found = Found::Lease(lease);
        if self.view.judge(&found) == Plausible::Yes {
            self.observe(found, outbox, turn);
            self.reads.overtake();
        } else {
            self.reads.fall_behind(turn.now);
        }
    }

    /// Records new values of the view for the next process on the status directory.
    pub(super) fn record_view(&mut self) -> Option<Effect> {
        self.record.refresh(&self.view)
    }

    /// Sends a read if one is due.
    pub(super) fn read_if_due(&mut self, outbox: &mut Outbox, now: BootTime) {
        self.reads.send_if_due(&self.view, outbox, now);
    }

    /// Applies the content of a reply or of a trusted event to the view.
    pub(super) fn observe(&mut self, found: Found, outbox: &mut Outbox, turn: &mut Turn<'_>) {
        if let Found::Lease(lease) = &found {
            if self.claims.forget_superseded(lease, self.record.claim()) {
                outbox.push(self.record.set(None, &self.view));
            }
            self.waits.observe(lease);
        }
        outbox.extend(self.view.strange(&found).map(Effect::Notice));
        if self.view.observe(found, turn.now) {
            self.waits.draw(turn);
            self.registration.draw(turn);
            let lease = self.view.lease();
            if lease.is_some_and(|lease| self.view.next_token(lease).is_none()) {
                outbox.notice(Notice::TokensExhausted);
            }
        }
    }

    /// Applies the reply to a write. A reply older than the view was overtaken by an event, or the
    /// store was rolled back; only a linearizable read can distinguish the two.
    fn observe_written(&mut self, found: Found, outbox: &mut Outbox, turn: &mut Turn<'_>) {
        if self.view.judge(&found) == Plausible::Yes {
            self.reads.looked(turn.now);
            self.observe(found, outbox, turn);
        } else {
            self.reads.suspect(turn.now);
            self.reads.fall_behind(turn.now);
        }
    }

    /// Applies the reply to a renewal of the claim that leads.
    pub(super) fn renewed(&mut self, lease: &Lease, outbox: &mut Outbox, turn: &mut Turn<'_>) {
        let found = Found::Lease(lease.clone());
        if self.view.judge(&found) == Plausible::Yes {
            self.observe(found, outbox, turn);
        } else {
            // The token was lowered, so the next leader could get a token that was already used.
            self.reads.suspect(turn.now);
        }
    }

    /// Waits for whoever may still lead in a store that was rolled back.
    pub(super) fn rolled_back(
        &mut self,
        seen: Token,
        found: Option<Token>,
        outbox: &mut Outbox,
        now: BootTime,
    ) {
        let wait = if planted!(OwnQuarantine) {
            self.me.timings().lease_duration()
        } else {
            self.view.lease_longest()
        };
        self.waits.quarantine_until(Some(now + wait));
        outbox.notice(Notice::StoreRolledBack { seen, found, wait });
        self.claims.clear();
        self.checking = None;
    }

    /// Handles the reply to a read.
    pub(super) fn read_reply(&mut self, outcome: Outcome, turn: &mut Turn<'_>) -> ReadReply {
        let reply = self.reads.reply(outcome, &self.view, &self.me, turn);
        if let ReadReply::Unanswered = reply {
            self.checking = None;
        }
        reply
    }

    /// Prepares what follows the reply to a read; returns false if an event overtook it.
    pub(super) fn accept(
        &mut self,
        reading: &Reading,
        found: &Found,
        contends: bool,
        outbox: &mut Outbox,
        turn: &mut Turn<'_>,
    ) -> bool {
        let (reads, view) = (&mut self.reads, &self.view);
        reads.looked(turn.now);
        let current = reads.is_current(reading, found, contends, view, turn.now);
        if current {
            outbox.extend(reads.judge_stream(reading, found, view));
            reads.follow_up(found, contends, &self.me, turn);
        }
        current
    }

    /// Ends the check of a rejected claim by a read. Returns true if the stored claim is this
    /// process's own, with a revision that it never sent: a forked machine renews it, or the
    /// document was edited by hand.
    pub(super) fn settle_check(
        &mut self,
        found: &Found,
        outbox: &mut Outbox,
        turn: &mut Turn<'_>,
    ) -> bool {
        let (Some(checking), Found::Lease(lease)) = (self.checking.take(), found) else {
            return false;
        };
        let duplicate = checking.is_renewed_by_another(lease);
        if duplicate {
            let session = self.me.session;
            outbox.notice(Notice::Duplicate { session });
            self.me.renew_session(turn);
        }
        duplicate
    }

    /// Handles the reply to the write in flight, or a late reply to an earlier call.
    pub(super) fn write_reply(
        &mut self,
        call: CallId,
        outcome: Outcome,
        outbox: &mut Outbox,
        turn: &mut Turn<'_>,
    ) -> Option<Consequence> {
        let Some(write) = self.write.take_if(|write| write.call() == call) else {
            self.late_reply(call, &outcome, turn.now);
            return None;
        };
        match write.reply(outcome, &mut self.claims, turn.now) {
            WriteReply::Acquired(acquired) => return Some(Consequence::Begin(acquired)),
            WriteReply::Created(found, overtaken) => {
                let rolled_back = self.created(&found, overtaken, outbox, turn.now);
                self.observe(found, outbox, turn);
                return rolled_back.then_some(Consequence::StoreRolledBack);
            }
            WriteReply::Released(found) => self.observe_written(found, outbox, turn),
            WriteReply::Retry => self.reads.read_before_write(self.me.retry_at(turn)),
            WriteReply::Rejected => self.reads.fall_behind(turn.now),
            WriteReply::Exists => {
                self.view.exists();
                self.reads.fall_behind(turn.now);
            }
            WriteReply::RaceLost => {
                self.waits.race_lost();
                self.reads.fall_behind(turn.now);
            }
            WriteReply::Unreported => {
                outbox.extend(self.reads.reopen());
                self.reads.fall_behind(turn.now);
            }
        }
        None
    }

    /// Handles a created document; returns true if its creation proves a rollback of the store.
    /// Another document may have been seen while the insert was in flight. The success of the
    /// insert proves that this document is gone, and its holder may still lead. The same holds if
    /// the new document has the same token.
    fn created(
        &mut self,
        found: &Found,
        overtaken: bool,
        outbox: &mut Outbox,
        now: BootTime,
    ) -> bool {
        let (seen, found) = match (self.view.judge(found), found) {
            (Plausible::WentBack { seen, found }, _) => (seen, found),
            (Plausible::Yes, Found::Lease(lease)) if overtaken => {
                (self.view.token_highest(), Some(lease.token))
            }
            (Plausible::Yes, _) => return false,
        };
        self.rolled_back(seen, found, outbox, now);
        true
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
        outbox: &mut Outbox,
        turn: &mut Turn<'_>,
    ) -> Option<Decision> {
        if !self.is_busy() {
            self.reads.keep_looking(&self.me, turn);
        }
        self.read_if_due(outbox, turn.now);
        let waits = self.is_busy() || self.reads.is_blind();
        (!waits).then(|| self.situation(workload).decide(turn.now))
    }

    /// Sends what was decided; returns the next wakeup.
    pub(super) fn carry_out(
        &mut self,
        decision: Option<Decision>,
        outbox: &mut Outbox,
        turn: &mut Turn<'_>,
    ) -> Option<BootTime> {
        let mut wait = None;
        match decision {
            None => {}
            Some(Decision::Wait(until)) => {
                let (view, timings) = (&self.view, self.me.timings());
                let checked = self.reads.check_stream(view, timings, outbox, turn.now);
                wait = earliest([until, checked, self.stand_by(outbox, turn)]);
            }
            Some(Decision::Create) => {
                let token = self.view.token_highest();
                self.write = Some(WriteInFlight::create(token, outbox, turn));
            }
            Some(Decision::Acquire(lease, ended, from)) => {
                if let Some(token) = self.view.next_token(&lease) {
                    let acquisition = self.me.acquisition(token, lease.revision, turn);
                    // The next process on this directory must find the claim that may be stored.
                    // The token is recorded only after it was seen in the store. Otherwise the next
                    // process would mistake a store that never had the token for one that was
                    // rolled back.
                    outbox.push(self.record.set(Some(acquisition.claim), &self.view));
                    let (replaced, timings) = ((&lease, ended), *self.me.timings());
                    self.write = Some(WriteInFlight::acquire(
                        acquisition,
                        replaced,
                        from,
                        timings,
                        outbox,
                        turn.now,
                    ));
                }
            }
            Some(Decision::Adopt(attempt)) => {
                self.write = Some(WriteInFlight::adopt(attempt, outbox, turn));
            }
            Some(Decision::Release(ended)) => {
                self.reads.replace_due(turn.now);
                self.release(&ended, outbox, turn);
            }
        }
        earliest([wait, self.reads.next()])
    }

    /// Sends a release. From now on the claim is ended (for all callers it already was).
    pub(super) fn release(&mut self, ended: &EndedClaim, outbox: &mut Outbox, turn: &mut Turn<'_>) {
        self.claims.releasing(ended);
        self.reads.drop_in_flight();
        self.write = Some(WriteInFlight::release(ended, outbox, turn));
    }

    /// Registers this candidate if the holder has no standby, or a standby with a lower priority,
    /// and withdraws its registration if it cannot lead. Returns the next instant.
    fn stand_by(&mut self, outbox: &mut Outbox, turn: &mut Turn<'_>) -> Option<BootTime> {
        let (registration, view) = (&mut self.registration, &mut self.view);
        if self.waits.is_unhealthy() && registration.withdraw(&self.me, view, outbox) {
            return None;
        }
        let vacancy = registration.vacancy(&self.me, view, &self.claims, &self.waits, turn.now);
        registration.stand_by(vacancy, &self.me, outbox, turn)
    }

    /// Cancels the acquisitions that may still succeed, because a step-down was requested. Their
    /// claims never lead, and the cooldown after a requested step-down begins.
    pub(super) fn cancel_acquisitions(&mut self, now: BootTime) {
        let pending = self.claims.cancel();
        let acquiring = self.write.as_mut().is_some_and(WriteInFlight::cancel);
        if pending || acquiring {
            // The cooldown ends early when another claim follows the document as last seen.
            self.cool_down(self.view.document_token().unwrap_or_default(), now);
        }
    }

    /// Starts a cooldown of one lease duration, which ends early when another claim leads.
    fn cool_down(&mut self, token: Token, now: BootTime) {
        let until = now + self.me.timings().lease_duration();
        self.waits.cool_down(until, token, self.me.session);
    }

    /// Starts the cooldown if the step-down was requested. After a step-down for its workload's
    /// health, a candidate stays out only until the workload is healthy again. A leader that gave
    /// way to a preferred standby contends again after the reservation.
    pub(super) fn cool_down_if_asked(&mut self, reason: Reason, token: Token, now: BootTime) {
        let asked = matches!(reason, Reason::Requested | Reason::Transferred);
        if asked && !self.registration.gave_way() {
            self.cool_down(token, now);
        }
    }

    /// Begins a claim after an acknowledged write, unless something bars it from leading.
    pub(super) fn begin(
        &mut self,
        acquired: Acquired,
        shutting_down: bool,
        outbox: &mut Outbox,
        turn: &mut Turn<'_>,
    ) -> Begun {
        let Acquired {
            mut attempt,
            revision,
            sent,
            lease,
            from,
        } = acquired;
        if planted!(RollbackForgottenAtBegin) {
            attempt.overtaken = None;
            self.waits.quarantine_until(None);
        }
        let Some(tenure) = Tenure::begin(&attempt, revision, sent, &lease) else {
            return Begun::Barred;
        };
        // Every other pending or ended claim waited for a revision that is gone now.
        self.claims.clear();
        // If the token was lowered since, other candidates do not know this token and would use it
        // again.
        self.view.note_used(attempt.token);
        let another_history = attempt.overtaken == Some(Overtaken::InAnotherHistory);
        if lease.token < attempt.token || another_history {
            self.rolled_back(attempt.token, Some(lease.token), outbox, turn.now);
            self.observe(Found::Lease(lease), outbox, turn);
            return Begun::StoreRolledBack;
        }
        if attempt.overtaken.is_some() {
            // The other claim may lead. If an event showed it, no read can prove or refute that.
            let until = turn.now + self.view.lease_longest();
            self.waits.quarantine_until(Some(until));
            self.observe_written(Found::Lease(lease), outbox, turn);
        } else {
            self.observe(Found::Lease(lease), outbox, turn);
        }
        let asked = shutting_down.then_some(Reason::Shutdown);
        let asked = asked.or(self.waits.is_unhealthy().then_some(Reason::Unhealthy));
        let asked = asked.or(attempt.cancelled.then_some(Reason::Requested));
        let rolled_back = attempt.overtaken.is_some() || self.waits.quarantine().is_some();
        let barred = asked.or(rolled_back.then_some(Reason::StoreRolledBack));
        if barred.is_some() || tenure.valid_until() <= turn.now {
            let reason = barred.unwrap_or(Reason::Deadline);
            self.claims.add_ended(self.end(&tenure, reason, None));
            return Begun::Barred;
        }
        let (reason, notice) = from.succeeded(turn.now);
        outbox.extend(notice.map(Effect::Notice));
        self.claims.forget_predecessor();
        self.registration.end();
        self.waits.begin_to_lead();
        self.reads.begin_to_lead();
        Begun::Leads(tenure, reason)
    }

    /// Hands over to a preferred standby if this is due.
    pub(super) fn give_way(
        &mut self,
        tenure: &Tenure,
        outbox: &mut Outbox,
        now: BootTime,
    ) -> GiveWay {
        let registration = &mut self.registration;
        registration.give_way(tenure, &self.view, &self.me, outbox, now)
    }

    /// Returns the ended claim that remains of a step-down.
    pub(super) fn end_stopped(
        &mut self,
        stopped: Stopped,
        reason: Reason,
        now: BootTime,
    ) -> EndedClaim {
        let tenure = stopped.tenure;
        self.cool_down_if_asked(stopped.reason, tenure.token, now);
        self.end(&tenure, reason, stopped.reserved_for)
    }

    /// Returns the ended claim that remains of a lost leadership.
    pub(super) fn end_lost(
        &mut self,
        lost: LostClaim,
        reason: Reason,
        now: BootTime,
    ) -> EndedClaim {
        match lost {
            LostClaim::Leading(tenure) => self.end(&tenure, reason, None),
            LostClaim::Stopping(stopped) => self.end_stopped(stopped, reason, now),
        }
    }

    /// Returns the ended claim that remains of a tenure. Without another reservation, the standby
    /// gets a head start.
    pub(super) fn end(
        &self,
        tenure: &Tenure,
        reason: Reason,
        reserved_for: Option<Reservation>,
    ) -> EndedClaim {
        // While the lease is paused, no candidate may use a head start.
        let head_start = || (reason != Reason::Paused).then(|| head_start_of_standby(&self.view));
        let reserved_for = reserved_for.or_else(|| head_start().flatten());
        tenure.end(&self.me.identity, reason, reserved_for)
    }

    /// Contends again after a loss of leadership. The claim never leads again.
    pub(super) fn lost(
        &mut self,
        cause: CauseOfLoss,
        ended: EndedClaim,
        workload: &WorkloadState,
        outbox: &mut Outbox,
        turn: &mut Turn<'_>,
    ) {
        match cause {
            // The claim is released too, so that the lease is free early when the store recovers.
            // The release waits while the workload may not have noticed the loss (I6).
            CauseOfLoss::Deadline => {
                // Others go first after a second loss within some minutes.
                if self.waits.lost_by_deadline(turn.now) {
                    self.cool_down(ended.entry.token, turn.now);
                    let wait = self.me.timings().lease_duration();
                    outbox.notice(Notice::BackingOff { wait });
                }
                #[cfg(proof)]
                if planted!(RenewedAfterDeadline) {
                    let timings = self.me.timings();
                    let revived = super::mutation::revived(&ended, timings, turn.now);
                    self.claims.add_pending(revived);
                    return self.reads.fall_behind(turn.now);
                }
                let release_from = self.situation(workload).release_from();
                if workload.runs() || release_from > turn.now {
                    self.claims.add_ended(ended);
                    self.reads.fall_behind(turn.now);
                } else {
                    self.release(&ended, outbox, turn);
                }
            }
            // No release: a forked machine may lead with the same claim, and the release would
            // depose it. A process on a cloned directory may lead with this claim as well, so the
            // record no longer proves anything to the next process.
            CauseOfLoss::Rejected => {
                outbox.push(self.record.set(None, &self.view));
                self.checking = Some(RejectedClaim::of(ended));
                self.reads.fall_behind(turn.now);
            }
            // The lease expires by itself. The release follows only if the workload is confirmed
            // gone before that (I6).
            CauseOfLoss::WorkloadStuck => {
                self.claims.add_ended(ended);
                self.reads.fall_behind(turn.now);
            }
            // Nothing to release, because the document that named this claim is gone.
            CauseOfLoss::StoreRolledBack => {}
        }
    }

    /// Returns true if the document may name a claim of this process: an acquisition or a release
    /// was not answered, or no release was sent.
    pub(super) fn may_be_stored(&self) -> bool {
        let held = self.view.lease().and_then(|lease| lease.holder.as_ref());
        self.write
            .as_ref()
            .is_some_and(WriteInFlight::is_acquisition)
            || !self.claims.is_empty()
            || (!self.reads.is_behind() && held.is_some_and(|h| h.session == self.me.session))
    }

    /// Returns the ended or pending claim of this process that was last seen in the store, if any.
    pub(super) fn own_claim_stored(&self) -> Option<EndedClaim> {
        let lease = self.view.lease()?;
        self.claims.stored_in(lease, &self.me.identity)
    }

    /// Withdraws the registration of a process that exits. Returns the instant until which to wait
    /// for the answer.
    pub(super) fn withdraw_before_exit(
        &mut self,
        by: BootTime,
        outbox: &mut Outbox,
        now: BootTime,
    ) -> Option<BootTime> {
        if self.reads.is_suspicious() {
            return None;
        }
        let (registration, view) = (&mut self.registration, &mut self.view);
        registration.withdraw_before_exit(by, &self.me, view, outbox, now)
    }

    /// Forgets the write in flight, because this candidate exits.
    pub(super) fn exit(&mut self) {
        (self.write, self.checking) = (None, None);
    }

    /// Checks invariants that only a bug can break.
    pub(super) fn check_invariants(&self, state: &State) {
        self.reads
            .check_invariants(state.contends() && !self.is_busy());
        let leading = state.tenure().map(|tenure| tenure.claim);
        self.claims.check_invariants(leading);
    }
}
