//! The election, a state machine without IO. A `Tenure` leads; a `Contender` does everything else.

#![warn(clippy::wildcard_enum_match_arm)]

#[cfg(proof)]
#[macro_use]
#[path = "../../proof/src/planted/election.rs"]
pub(crate) mod mutation;

mod candidate;
mod claims;
mod contend;
mod effect;
mod input;
mod lease;
mod publication;
mod state;
mod status;
mod stopping;
mod tenure;
mod time;
mod timings;
mod view;
mod waits;

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
use contend::{AfterWrite, Contender, GiveWay, LastStep};
use publication::Publication;
use state::{CandidateState, CauseOfLoss, LostClaim};
use stopping::Stopping;
use tenure::{RenewalReply, Tenure};

/// One candidate for one lease.
///
/// After each [`handle`](Self::handle), carry out all effects of [`next_effect`](Self::next_effect)
/// in order, and publish [`status`](Self::status). Pass [`Input::Tick`] at
/// [`next_wakeup`](Self::next_wakeup). If `now` is earlier than in the previous call, the
/// previous time applies.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Election {
    contender: Contender,
    state: CandidateState,
    publication: Publication,
    wakeup: Option<BootTime>,
    // Keep `outbox` directly before `now`, so that the model ignores the number of calls (see
    // `Numbers::Appearing` in `crates/proof`).
    outbox: Outbox<Effect>,
    now: BootTime,
}

impl Election {
    /// Creates a candidate that has read nothing yet. The first input, of any kind, starts it.
    pub fn new(candidate: Candidate, now: BootTime, random: &mut dyn Randomness) -> Self {
        let contender = Contender::new(&candidate, Session::random(random), now);
        Self {
            publication: Publication::new(&contender, now),
            contender,
            state: CandidateState::Contending,
            wakeup: Some(now),
            outbox: Outbox::default(),
            now,
        }
    }

    /// Processes one input at `now`, and everything that is due.
    pub fn handle(&mut self, now: BootTime, input: Input, random: &mut dyn Randomness) {
        // Calls may be out of order, because the first caller to read the clock may get the mutex
        // last.
        self.now = self.now.max(now);
        let mut effects = std::mem::take(&mut self.outbox);
        let turn = &mut Turn {
            now: self.now,
            random,
            effects: &mut effects,
        };
        // Expiry comes first, so that an acknowledgement delayed by a freeze counts as late.
        if planted!(AcknowledgedAfterDeadline) {
            self.apply(input, turn);
            self.expire(turn);
        } else {
            self.expire(turn);
            self.apply(input, turn);
        }
        self.advance(turn);
        turn.effects.extend(self.contender.refresh_record());
        let transition = self
            .publication
            .refresh(&self.contender, &self.state, self.now);
        turn.effects.extend(transition);
        self.outbox = effects;
        self.check_invariants();
    }

    /// Returns the next effect. Drain all effects before the next input.
    pub fn next_effect(&mut self) -> Option<Effect> {
        self.outbox.pop()
    }

    /// Returns the time at which to pass [`Input::Tick`], unless another input comes first.
    pub fn next_wakeup(&self) -> Option<BootTime> {
        self.wakeup
    }

    /// Returns the status to publish. Evaluate it with [`Status::at`] before showing it.
    pub fn status(&self) -> &Status {
        &self.publication.status
    }

    /// Returns true if this candidate has exited without an acknowledged release.
    pub const fn is_left_to_expire(&self) -> bool {
        self.contender.shutdown().left_to_expire
    }

    fn apply(&mut self, input: Input, turn: &mut Turn<'_>) {
        match input {
            Input::Tick => {}
            Input::Reply { call, outcome } => self.reply(call, outcome, turn),
            Input::Watch(watch) => {
                let leads = self.state.tenure().is_some();
                if let Some(lease) = self.contender.watch(watch, leads, turn.now) {
                    self.changed(lease, turn);
                }
            }
            Input::PrimaryChanged => {
                let leads = self.state.tenure_mut().map(Tenure::hurry).is_some();
                self.contender.primary_changed(leads, turn);
            }
            Input::Demoted {
                shown,
                label_pending,
            } => self.with_stopping(|it| it.demoted(shown, label_pending, turn.now)),
            Input::LabelDemoted => self.with_stopping(|it| it.label_until = None),
            Input::WorkloadDone { token } => {
                self.contender.workload_done(token);
                self.with_stopping(|it| it.workload_done(token));
            }
            Input::WorkloadEnded { token } => self.workload_ended(token, turn),
            Input::WorkloadGone { token } => {
                // If this candidate still leads, the workload exited on its own, without an earlier
                // `WorkloadEnded`.
                self.workload_ended(token, turn);
                let contends = self.state.contends();
                self.contender.workload_gone(token, contends, turn.now);
            }
            Input::WorkloadStuck { token } => self.workload_stuck(token, turn),
            Input::Health { healthy } => {
                self.contender.set_health(healthy);
                if !healthy {
                    self.stop(Reason::Unhealthy, None, turn);
                }
            }
            Input::StepDown => {
                self.contender.cancel_acquisitions(turn.now);
                if let CandidateState::Stopping(stopping) = &self.state {
                    self.contender.cool_down(stopping.tenure.token, turn.now);
                }
                self.stop(Reason::Requested, None, turn);
            }
            Input::Shutdown => self.shut_down(turn),
            Input::Reconfigure(tunables) => {
                self.contender.reconfigure(tunables);
                if let (true, Some(tenure)) = (planted!(TimingsReloaded), self.state.tenure_mut()) {
                    tenure.timings = tunables.timings;
                }
            }
        }
    }

    /// Routes a reply to the step that awaits it. Any other reply grants nothing.
    fn reply(&mut self, call: CallId, outcome: Outcome, turn: &mut Turn<'_>) {
        let contender = &mut self.contender;
        contender.replied(&outcome, turn.now);
        let tenure = self.state.tenure();
        let leads = tenure.is_some();
        if contender.registration_reply(call, &outcome, turn)
            || contender.preference_reply(call, &outcome, tenure, turn.now)
        {
            // The reply belongs to a standby registration or to a withdrawal, and was handled
            // above.
        } else if contender.awaits_read(call) {
            self.read_reply(outcome, turn);
        } else if leads {
            self.renewal_reply(call, outcome, turn);
        } else {
            let begun = contender.write_reply(call, outcome, turn);
            self.begun(begun, turn);
        }
    }

    /// Handles a change event, which may be older than the last read.
    fn changed(&mut self, lease: Lease, turn: &mut Turn<'_>) {
        #[cfg(proof)]
        if let (true, Some(tenure)) = (planted!(EventAsAuthority), self.state.tenure_mut()) {
            tenure.acknowledged_by_event(lease.revision);
        }
        let Some(tenure) = self.state.tenure() else {
            return self.contender.changed(lease, turn);
        };
        let identity = &self.contender.me().identity;
        let expected = tenure.sent(lease.revision) && self.state.demand(&lease, identity).is_none();
        self.contender
            .changed_while_leading(lease, expected, turn.now);
    }

    fn with_stopping(&mut self, change: impl FnOnce(&mut Stopping)) {
        if let CandidateState::Stopping(stopping) = &mut self.state {
            change(stopping);
        }
    }

    /// Gives up the lease and begins a cooldown, because this candidate's workload ended on its
    /// own.
    fn workload_ended(&mut self, token: Token, turn: &mut Turn<'_>) {
        if self.state.leading().is_some() && self.contender.workload_ended(token, turn.now) {
            self.stop(Reason::WorkloadExit, None, turn);
        }
    }

    /// Gives up the claim of a workload that survived SIGKILL and may never end.
    fn workload_stuck(&mut self, token: Token, turn: &mut Turn<'_>) {
        if self.contender.workload_stuck(token) {
            let expires_at = self.state.tenure().map(Tenure::expires_at);
            let wait = expires_at.unwrap_or_default().since(turn.now);
            turn.effects.notice(Notice::WorkloadStuck { token, wait });
            self.publication.reason = Some(Reason::WorkloadStuck);
            self.lose(CauseOfLoss::WorkloadStuck, turn);
        }
    }

    fn shut_down(&mut self, turn: &mut Turn<'_>) {
        if self.contender.shut_down(turn.now) {
            let delay = self.contender.drain_time();
            self.with_stopping(|it| it.shorten_drain(turn.now + delay, delay));
            self.stop(Reason::Shutdown, None, turn);
        }
    }

    fn expire(&mut self, turn: &mut Turn<'_>) {
        if (self.state.tenure()).is_some_and(|tenure| tenure.valid_until() <= turn.now) {
            self.lose(CauseOfLoss::Deadline, turn);
        }
        self.contender.expire(turn.now);
    }

    fn advance(&mut self, turn: &mut Turn<'_>) {
        let next = match &self.state {
            CandidateState::Exited => None,
            CandidateState::Leading(_) | CandidateState::Stopping(_) => self.lead(turn),
            CandidateState::Contending => self.contend(turn),
        };
        let silent = self.contender.reads().answers_until;
        let silent = silent.filter(|at| *at > turn.now && self.state.contends());
        self.wakeup = earliest([next, silent]);
    }

    fn contend(&mut self, turn: &mut Turn<'_>) -> Option<BootTime> {
        let contender = &mut self.contender;
        if contender.shutdown().requested {
            return match contender.last_step(turn) {
                LastStep::Wait(until) => until,
                LastStep::Exit => {
                    self.state = CandidateState::Exited;
                    turn.effects.push(Effect::Exit);
                    None
                }
            };
        }
        #[cfg(proof)]
        if let Some(begun) = contender.lead_unrenewed(turn) {
            self.begun(begun, turn);
            return self.contender.next_read();
        }
        contender.proceed(turn)
    }

    fn lead(&mut self, turn: &mut Turn<'_>) -> Option<BootTime> {
        self.contender.read_if_due(turn);
        if let Some(tenure) = self.state.tenure_mut() {
            tenure.renew_if_due(turn);
        }
        let leading = self.state.leading();
        let preferred = match leading.map(|it| self.contender.give_way(it, turn)) {
            None => None,
            Some(GiveWay::Wait(until)) => until,
            Some(GiveWay::HandOver(reservation)) => {
                self.stop(Reason::Transferred, Some(reservation), turn);
                None
            }
        };
        let mut release_due = None;
        if let CandidateState::Stopping(stopping) = &mut self.state {
            let shutting_down = self.contender.shutdown().requested;
            // Nothing is released while the workload may still be running (I6).
            if !self.contender.workload().runs() {
                release_due = Some(stopping.release_due(shutting_down, turn.now));
            }
            if !shutting_down {
                let notice = stopping.report_stuck_files(turn.now);
                turn.effects.extend(notice.map(Effect::Notice));
            }
        }
        if release_due.is_some_and(|due| due <= turn.now)
            && let Some(LostClaim::Stopping(stopped)) = self.state.lose()
        {
            self.contender.hand_over(stopped, turn);
            return self.contend(turn);
        }
        let tenure = self.state.tenure()?;
        earliest([
            Some(tenure.valid_until()),
            tenure.next_renewal(),
            release_due,
            preferred,
            self.contender.next_read(),
        ])
    }

    fn read_reply(&mut self, outcome: Outcome, turn: &mut Turn<'_>) {
        let Some(read) = self.contender.read_reply(outcome, turn) else {
            return;
        };
        if read.rollback.is_some() {
            self.publication.reason = Some(Reason::StoreRolledBack);
            self.lose(CauseOfLoss::StoreRolledBack, turn);
        }
        let contends = self.state.contends();
        if !self.contender.accept(&read, contends, turn) {
            return;
        }
        if let Some(tenure) = self.state.tenure() {
            if let Found::Lease(lease) = &read.found
                && tenure.holds(lease)
            {
                self.contender.note_standby(lease.standby.clone());
                self.carry_out_request(lease, turn);
            }
            self.state.verify(&read.found);
        } else if contends && self.contender.observe_read(read.found, turn) {
            self.publication.reason = Some(Reason::Duplicate);
        }
    }

    fn renewal_reply(&mut self, call: CallId, outcome: Outcome, turn: &mut Turn<'_>) {
        let Some(tenure) = self.state.tenure_mut() else {
            return;
        };
        // A reload does not change the timings of the claim.
        let retry_at = turn.now + turn.jittered(tenure.timings.retry_interval());
        match tenure.reply(call, outcome, retry_at, turn.now) {
            RenewalReply::Extended(lease) => {
                self.contender.renewed(tenure, &lease, turn);
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
        let identity = &self.contender.me().identity;
        if let Some((reason, reserved_for)) = self.state.demand(lease, identity) {
            self.stop(reason, reserved_for, turn);
        }
    }

    fn begun(&mut self, begun: AfterWrite, turn: &mut Turn<'_>) {
        match begun {
            AfterWrite::Leads(tenure, reason) => {
                self.state = CandidateState::Leading(tenure);
                self.publication.request_reported = None;
                self.publication.reason = Some(reason);
                // The filter of an acquisition excludes a paused lease, but an adopted lease may be
                // paused.
                if let Some(lease) = self.contender.view().lease().cloned() {
                    self.carry_out_request(&lease, turn);
                }
            }
            AfterWrite::StoreRolledBack => {
                self.publication.reason = Some(Reason::StoreRolledBack);
            }
            AfterWrite::Nothing => {}
        }
    }

    /// Gives up authority now, and releases the lease once the workload has ended.
    fn stop(&mut self, reason: Reason, reserved_for: Option<Reservation>, turn: &mut Turn<'_>) {
        if let CandidateState::Leading(tenure) = &self.state {
            let (tenure, delay) = (tenure.clone(), self.contender.drain_time());
            let stopping = Stopping::begin(tenure, reason, reserved_for, delay, turn.now);
            self.state = CandidateState::Stopping(stopping);
            self.publication.reason = Some(reason);
            turn.effects.push(Effect::Demote);
            turn.effects
                .extend(self.contender.workload().order(OrderKind::Stop));
        }
    }

    fn lose(&mut self, cause: CauseOfLoss, turn: &mut Turn<'_>) {
        let Some(lost) = self.state.lose() else {
            return;
        };
        self.publication.reason = Some(cause.reason());
        self.contender.lost(cause, lost, turn);
    }

    /// Panics in states that only a bug can cause. Status files and claims contain deadlines, so
    /// readers and contenders can continue without this process.
    fn check_invariants(&self) {
        let awake = self.wakeup.is_none_or(|at| at > self.now);
        assert!(awake, "the next wakeup is not in the future");
        self.contender.check_invariants(&self.state);
        let token_highest = self.contender.view().marks.token_highest;
        self.publication.check_invariants(self.now, token_highest);
    }
}
