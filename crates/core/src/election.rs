//! The election itself, without IO: no clock, no network, no task.
//!
//! [`Election`] is a state machine. The simulator drives the type that the daemon ships. Each part of
//! the state is a type of its own: a part changes only itself, requests effects, and returns the
//! changes of other parts, which this file applies.
//!
//! The rules of the protocol, and the reasons why they are safe, are in `docs/protocol.md`.

#![warn(clippy::wildcard_enum_match_arm)]

#[cfg(proof)]
#[macro_use]
#[path = "../../proof/src/planted/election.rs"]
pub(crate) mod mutation;

mod candidate;
mod claims;
mod contend;
mod decide;
mod effect;
mod input;
mod leadership;
mod lease;
mod phase;
mod prefer;
mod publication;
mod reading;
mod shutdown;
mod standby;
mod state;
mod status;
mod stopping;
mod supervise;
mod tenure;
mod time;
mod timings;
mod view;
mod waits;
mod write;

#[cfg(all(test, not(proof)))]
mod tests;

pub use candidate::Candidate;
pub use effect::*;
pub use input::*;
pub use lease::*;
pub use status::*;
pub use time::BootTime;
pub use timings::*;

use crate::claim::{Outbox, Turn, earliest};
use contend::Contender;
use leadership::AfterWrite;
use prefer::GiveWay;
use publication::Publication;
use shutdown::{LastStep, Shutdown};
use state::{CandidateState, CauseOfLoss, LostClaim};
use stopping::Stopping;
use supervise::{WorkloadState, drain_time};
use tenure::{RenewalReply, Tenure};

/// One candidate for one lease.
///
/// Feed it with [`handle`](Self::handle); then drain [`next_effect`](Self::next_effect), in order
/// and before the next input; arm a timer for [`next_wakeup`](Self::next_wakeup), at which
/// [`Input::Tick`] is due; publish [`status`](Self::status). An earlier time than in the call before
/// counts as the time of that call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Election {
    contender: Contender,
    state: CandidateState,
    workload: WorkloadState,
    /// Set by [`Input::Shutdown`].
    shutdown: Option<Shutdown>,
    publication: Publication,
    wakeup: Option<BootTime>,
    // Before `now`, because the model's canonical form leaves out a counter before an instant.
    outbox: Outbox<Effect>,
    now: BootTime,
}

impl Election {
    /// Creates a candidate that has read nothing yet. The first input starts it; [`Input::Tick`] is
    /// sufficient.
    pub fn new(candidate: Candidate, now: BootTime, random: &mut dyn Randomness) -> Self {
        let contender = Contender::new(&candidate, Session::random(random), now);
        Self {
            publication: Publication::new(&contender, now),
            contender,
            state: CandidateState::Contending,
            workload: WorkloadState::new(candidate.supervises),
            shutdown: None,
            wakeup: Some(now),
            outbox: Outbox::default(),
            now,
        }
    }

    /// Processes one input at `now` and everything that is due.
    pub fn handle(&mut self, now: BootTime, input: Input, random: &mut dyn Randomness) {
        // A caller that reads the clock and then waits for a lock could pass an earlier instant
        // than the call before. Time never decreases here.
        self.now = self.now.max(now);
        let mut effects = std::mem::take(&mut self.outbox);
        let turn = &mut Turn {
            now: self.now,
            random,
            effects: &mut effects,
        };
        // Expiry comes first, for every input. A claim ends at its deadline, so an acknowledgement
        // that waited in a frozen process is late.
        if planted!(AcknowledgedAfterDeadline) {
            self.apply(input, turn);
            self.expire(turn);
        } else {
            self.expire(turn);
            self.apply(input, turn);
        }
        self.advance(turn);
        let Contender { record, view, .. } = &mut self.contender;
        turn.effects.extend(record.refresh(view));
        let (shutting_down, drain) = (self.shutdown.is_some(), self.workload.drain);
        let (contender, state, publication) = (&self.contender, &self.state, &mut self.publication);
        let transition = publication.refresh(contender, state, drain, shutting_down, self.now);
        turn.effects.extend(transition);
        self.outbox = effects;
        self.check_invariants();
    }

    /// Returns the next effect, in order. All effects must be drained before the next input.
    pub fn next_effect(&mut self) -> Option<Effect> {
        self.outbox.pop()
    }

    /// Returns the instant at which an [`Input::Tick`] is due unless another input comes first.
    pub fn next_wakeup(&self) -> Option<BootTime> {
        self.wakeup
    }

    /// Returns the status to publish. Evaluate it with [`Status::at`] before showing it.
    pub fn status(&self) -> &Status {
        self.publication.status()
    }

    /// Returns true if this candidate has exited while its claim may still be stored, because no
    /// release was acknowledged. The lease then expires by itself.
    pub const fn is_left_to_expire(&self) -> bool {
        match self.shutdown {
            Some(shutdown) => shutdown.left_to_expire,
            None => false,
        }
    }

    fn apply(&mut self, input: Input, turn: &mut Turn<'_>) {
        match input {
            Input::Tick => {}
            Input::Reply { call, outcome } => self.reply(call, outcome, turn),
            Input::Watch(watch) => {
                let leads = self.state.tenure().is_some();
                let Contender { reads, me, .. } = &mut self.contender;
                if let Some(lease) = reads.watch(watch, leads, me.timings(), turn.now) {
                    self.changed(lease, turn);
                }
            }
            Input::PrimaryChanged => self.primary_changed(turn),
            Input::Demoted {
                shown,
                label_pending,
            } => self.with_stopping(|it| it.demoted(shown, label_pending, turn.now)),
            Input::LabelDemoted => self.with_stopping(Stopping::label_demoted),
            Input::WorkloadDone { token } => {
                self.workload.done(token);
                self.with_stopping(|it| it.workload_done(token));
            }
            Input::WorkloadEnded { token } => self.workload_ended(token, turn),
            Input::WorkloadGone { token } => self.workload_gone(token, turn),
            Input::WorkloadStuck { token } => self.workload_stuck(token, turn),
            Input::Health { healthy } => {
                self.contender.waits.unhealthy = !healthy;
                if !healthy {
                    self.stop(Reason::Unhealthy, None, turn);
                }
            }
            Input::StepDown => {
                self.contender.cancel_acquisitions(turn.now);
                self.stop(Reason::Requested, None, turn);
            }
            Input::Shutdown => self.shut_down(turn),
            Input::Reconfigure(tunables) => {
                self.contender.me.tunables = tunables;
                if let (true, Some(tenure)) = (planted!(TimingsReloaded), self.state.tenure_mut()) {
                    tenure.timings = tunables.timings;
                }
            }
        }
    }

    /// Routes a reply to the step that waits for it. A reply that no step waits for grants nothing.
    fn reply(&mut self, call: CallId, outcome: Outcome, turn: &mut Turn<'_>) {
        let contender = &mut self.contender;
        contender.replied(&outcome, turn.now);
        let leads = self.state.tenure().is_some();
        if contender.registration_reply(call, &outcome, leads, turn.now) {
            // Nothing else waits for it.
        } else if contender.reads.awaits(call) {
            self.read_reply(outcome, turn);
        } else if leads {
            self.renewal_reply(call, outcome, turn);
        } else {
            let shuts_down = self.shutdown.is_some();
            let begun = contender.write_reply(call, outcome, shuts_down, turn);
            self.begun(begun, turn);
        }
    }

    /// Handles a change event. An event is a hint: it may be older than the last read, and it
    /// grants nothing.
    fn changed(&mut self, lease: Lease, turn: &mut Turn<'_>) {
        self.contender.shown(&lease, false);
        #[cfg(proof)]
        if let (true, Some(tenure)) = (planted!(EventAsAuthority), self.state.tenure_mut()) {
            tenure.acknowledged_by_event(lease.revision);
        }
        let Some(tenure) = self.state.tenure() else {
            return self.contender.changed(lease, turn);
        };
        let identity = &self.contender.me.identity;
        if !tenure.sent(lease.revision) || self.state.demand(&lease, identity).is_some() {
            self.contender.reads.schedule.read_at(turn.now);
        } else {
            self.contender.view.note_standby(lease.standby);
        }
    }

    fn primary_changed(&mut self, turn: &mut Turn<'_>) {
        // The cursor of an open stream, or of hints, stays on the member that it was opened on, even
        // if that member is no longer the primary and lags behind.
        turn.effects.extend(self.contender.reads.reopen());
        match self.state.tenure_mut() {
            Some(tenure) => tenure.hurry(),
            None => self.contender.reads.hurry(turn.now),
        }
    }

    fn with_stopping(&mut self, change: impl FnOnce(&mut Stopping)) {
        if let CandidateState::Stopping(stopping) = &mut self.state {
            change(stopping);
        }
    }

    /// Handles an exit of the workload that was not requested. A candidate that cannot keep its
    /// workload running lets others try.
    fn workload_ended(&mut self, token: Token, turn: &mut Turn<'_>) {
        let Contender { me, waits, .. } = &mut self.contender;
        if self.state.leading().is_some()
            && let Some(wait) = self.workload.ended(token, me.timings(), turn.now)
        {
            // A leader in between does not improve the workload, so it does not end the cooldown.
            waits.cool_down(turn.now + wait, Token::MAX, me.session);
            self.stop(Reason::WorkloadExit, None, turn);
        }
    }

    fn workload_gone(&mut self, token: Token, turn: &mut Turn<'_>) {
        // If no `WorkloadEnded` came before, the workload exited on its own as well.
        self.workload_ended(token, turn);
        if self.workload.gone(token) && self.state.contends() {
            // The claim waited for this, and the document may have changed meanwhile.
            self.contender.reads.fall_behind(turn.now);
        }
    }

    /// Handles a workload that survived its kill. Waiting for its end would keep the lease from the
    /// other candidates without a bound, so the claim is lost instead.
    fn workload_stuck(&mut self, token: Token, turn: &mut Turn<'_>) {
        if self.workload.stuck(token) {
            let expires_at = self.state.tenure().map(Tenure::expires_at);
            let wait = expires_at.unwrap_or_default().since(turn.now);
            turn.effects.notice(Notice::WorkloadStuck { token, wait });
            self.publication.set_reason(Reason::WorkloadStuck);
            self.lose(CauseOfLoss::WorkloadStuck, turn);
        }
    }

    fn shut_down(&mut self, turn: &mut Turn<'_>) {
        if self.shutdown.is_none() {
            self.shutdown = Some(Shutdown::default());
            // A wait for the workload that is in progress may become shorter.
            let delay = drain_time(&self.contender.me.tunables, true);
            self.workload.shorten_drain(turn.now + delay);
            self.with_stopping(|it| it.shorten_drain(turn.now + delay, delay));
            self.stop(Reason::Shutdown, None, turn);
        }
    }

    /// Ends the claim if its deadline has passed, regardless of everything else in progress.
    fn expire(&mut self, turn: &mut Turn<'_>) {
        if (self.state.tenure()).is_some_and(|tenure| tenure.valid_until() <= turn.now) {
            self.lose(CauseOfLoss::Deadline, turn);
        }
        self.contender.waits.expire(turn.now);
    }

    /// Does everything that is due and sets the next wakeup.
    fn advance(&mut self, turn: &mut Turn<'_>) {
        let next = match &self.state {
            CandidateState::Exited => None,
            CandidateState::Leading(_) | CandidateState::Stopping(_) => self.lead(turn),
            CandidateState::Contending => self.contend(turn),
        };
        let next = next.filter(|_| self.state != CandidateState::Exited);
        let silent = self.contender.reads.answers_until;
        let silent = silent.filter(|at| *at > turn.now && self.state.contends());
        self.wakeup = earliest([next, silent]);
    }

    /// Does everything that is due without a claim that leads; returns the next wakeup.
    fn contend(&mut self, turn: &mut Turn<'_>) -> Option<BootTime> {
        let contender = &mut self.contender;
        if let Some(shutdown) = &mut self.shutdown {
            return match shutdown.next(contender, &self.workload, turn) {
                LastStep::Wait(until) => until,
                LastStep::Exit => {
                    self.state = CandidateState::Exited;
                    turn.effects.push(Effect::Exit);
                    None
                }
            };
        }
        let decision = contender.decide(&self.workload, turn);
        #[cfg(proof)]
        if let (true, Some(decide::Decision::Adopt(attempt))) =
            (planted!(AdoptedWithoutRenewal), &decision)
        {
            self.lead_unrenewed(attempt.clone(), turn);
            return self.contender.reads.schedule.next();
        }
        contender.carry_out(decision, turn)
    }

    /// Does everything that is due with a claim; returns the next wakeup.
    fn lead(&mut self, turn: &mut Turn<'_>) -> Option<BootTime> {
        self.contender.read_if_due(turn);
        if let Some(tenure) = self.state.tenure_mut() {
            tenure.renew_if_due(turn);
        }
        let (preference, leading) = (&mut self.contender.preference, self.state.leading());
        let (view, me) = (&self.contender.view, &self.contender.me);
        let preferred = match leading.map(|it| preference.give_way(it, view, me, turn)) {
            None => None,
            Some(GiveWay::Wait(until)) => until,
            Some(GiveWay::HandOver(reservation)) => {
                self.stop(Reason::Transferred, Some(reservation), turn);
                None
            }
        };
        let shutting_down = self.shutdown.is_some();
        let progress = self.state.progress(&self.workload, shutting_down, turn);
        let (wait, release) = progress;
        if release {
            self.hand_over(turn);
            return self.contend(turn);
        }
        let tenure = self.state.tenure()?;
        earliest([
            Some(tenure.valid_until()),
            tenure.next_renewal(),
            wait,
            preferred,
            self.contender.reads.schedule.next(),
        ])
    }

    fn read_reply(&mut self, outcome: Outcome, turn: &mut Turn<'_>) {
        let Some(read) = self.contender.read_reply(outcome, turn) else {
            return;
        };
        if read.rollback.is_some() {
            self.publication.set_reason(Reason::StoreRolledBack);
            self.lose(CauseOfLoss::StoreRolledBack, turn);
        }
        let contends = self.state.contends();
        if !self.contender.accept(&read, contends, turn) {
            return;
        }
        if self.state.tenure().is_some() {
            self.leader_read(read.found, turn);
        } else if contends && self.contender.observe_read(read.found, turn) {
            self.publication.set_reason(Reason::Duplicate);
        }
    }

    /// Handles a read while holding a claim. A read that does not show the claim only triggers a
    /// renewal, because a majority read may be older than the claim. Only a rejected renewal ends
    /// it.
    fn leader_read(&mut self, found: Found, turn: &mut Turn<'_>) {
        if let Found::Lease(lease) = &found
            && self.state.tenure().is_some_and(|t| t.holds(lease))
        {
            self.carry_out_request(lease, turn);
        }
        self.state.verify(&found);
    }

    /// Handles the reply to a renewal, possibly late or out of order.
    fn renewal_reply(&mut self, call: CallId, outcome: Outcome, turn: &mut Turn<'_>) {
        let retry_at = self.contender.me.retry_at(turn);
        let Some(tenure) = self.state.tenure_mut() else {
            return;
        };
        match tenure.reply(call, outcome, retry_at, turn.now) {
            RenewalReply::Extended(lease) => {
                turn.effects.extend(self.workload.extend(tenure));
                self.contender.renewed(&lease, turn);
                self.carry_out_request(&lease, turn);
            }
            RenewalReply::Rejected => self.lose(CauseOfLoss::Rejected, turn),
            RenewalReply::Nothing => {}
        }
    }

    fn carry_out_request(&mut self, lease: &Lease, turn: &mut Turn<'_>) {
        if let Some(tenure) = self.state.leading() {
            let notice = self.publication.report_request(lease, tenure.token);
            turn.effects.extend(notice.map(Effect::Notice));
        }
        let identity = &self.contender.me.identity;
        if let Some((reason, reserved_for)) = self.state.demand(lease, identity) {
            self.stop(reason, reserved_for, turn);
        }
    }

    /// Applies the reply to a write.
    fn begun(&mut self, begun: AfterWrite, turn: &mut Turn<'_>) {
        match begun {
            AfterWrite::Leads(tenure, reason) => {
                turn.effects.extend(self.workload.start(&tenure, turn.now));
                self.state = CandidateState::Leading(tenure);
                self.publication.begin_to_lead(reason);
                // An acquisition does not match a paused lease; an adoption can.
                if let Some(lease) = self.contender.view.lease().cloned() {
                    self.carry_out_request(&lease, turn);
                }
            }
            AfterWrite::StoreRolledBack => self.publication.set_reason(Reason::StoreRolledBack),
            AfterWrite::Nothing => {}
        }
    }

    /// Gives up authority now, and the lease when the workload is gone.
    fn stop(&mut self, reason: Reason, reserved_for: Option<Reservation>, turn: &mut Turn<'_>) {
        let delay = drain_time(&self.contender.me.tunables, self.shutdown.is_some());
        if self.state.stop(reason, reserved_for, delay, turn.now) {
            self.publication.set_reason(reason);
            turn.effects.push(Effect::Demote);
            turn.effects.extend(self.workload.stop());
        }
    }

    /// Ends the claim and sends its release, after the workload is gone (I6).
    fn hand_over(&mut self, turn: &mut Turn<'_>) {
        let Some(LostClaim::Stopping(stopped)) = self.state.lose(turn.now) else {
            return;
        };
        let stuck = stopped.shown_until > turn.now;
        let ended = self.contender.end_stopped(stopped, None, turn.now);
        match &mut self.shutdown {
            Some(shutdown) if stuck => shutdown.keep = true,
            Some(_) | None => self.contender.release(&ended, turn),
        }
    }

    /// Ends the claim, if there is one, after a loss of leadership. It never leads again.
    fn lose(&mut self, cause: CauseOfLoss, turn: &mut Turn<'_>) {
        let Some(lost) = self.state.lose(turn.now) else {
            return;
        };
        let contender = &mut self.contender;
        let delay = drain_time(&contender.me.tunables, self.shutdown.is_some());
        turn.effects
            .extend(self.workload.lose(&lost, delay, turn.now));
        self.publication.set_reason(cause.reason());
        let ended = contender.end_lost(lost, cause.reason(), turn.now);
        contender.lost(cause, ended, &self.workload, turn);
    }

    /// Checks invariants that only a bug can break. A daemon that fails here exits. Its files and
    /// its claim carry deadlines, so readers and contenders continue without it.
    fn check_invariants(&self) {
        let awake = self.wakeup.is_none_or(|at| at > self.now);
        assert!(awake, "due at once again after all that was due was done");
        self.contender.check_invariants(&self.state);
        let token_highest = self.contender.view.marks.token_highest();
        self.publication.check_invariants(self.now, token_highest);
        self.workload.check_invariants(&self.state);
    }
}
