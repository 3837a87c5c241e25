//! The election itself, without IO: no clock, no network, no task.
//!
//! [`Election`] is a state machine. [`Election::handle`] takes the time and an input,
//! [`Election::next_effect`] returns the effects to carry out, and [`Election::next_wakeup`]
//! returns the instant of the next call. The runner drains the effects before it passes the next
//! input. The simulator drives the same type that the daemon ships.
//!
//! The rules of the protocol, and the reasons why they are safe, are in `docs/protocol.md`.

#![warn(clippy::wildcard_enum_match_arm)]

#[cfg(proof)]
#[macro_use]
#[path = "../../proof/src/planted/election.rs"]
pub(crate) mod mutation;

mod acquired;
mod candidate;
mod claims;
mod contend;
mod create;
mod decide;
mod drain;
mod effect;
mod finish;
mod following;
mod input;
mod lead;
mod lease;
pub(crate) mod named;
mod outbox;
mod phase;
mod prefer;
mod publication;
mod reading;
mod standby;
mod status;
mod supervise;
mod tenure;
mod time;
mod timings;
mod view;
mod waits;

#[cfg(all(test, not(proof)))]
mod tests;

use std::time::Duration;

pub use candidate::Candidate;
pub use effect::*;
pub use input::*;
pub use lease::*;
pub use status::*;
pub use time::BootTime;
pub use timings::*;

use candidate::Participant;
use claims::OpenClaims;
use contend::Contending;
use drain::{DrainAfterLoss, drain_time};
use lead::{Loss, Stopping};
use outbox::Outbox;
use publication::{Basis, Publication};
use reading::{ReadReply, Reads};
use standby::Registration;
use supervise::WorkloadState;
use tenure::Tenure;
use view::{Plausible, View};
use waits::Waits;

/// One candidate for one lease.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Election {
    me: Participant,
    state: State,
    view: View,
    /// Claims of this process that may be stored although they do not lead.
    claims: OpenClaims,
    waits: Waits,
    /// This candidate's registration as the standby, and its preference for another one.
    registration: Registration,
    reads: Reads,
    workload: WorkloadState,
    /// Set by [`Input::Shutdown`].
    shutdown: Option<Shutdown>,
    /// True if a claim may be stored after the exit.
    left_to_expire: bool,
    publication: Publication,
    outbox: Outbox,
    now: BootTime,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum State {
    Contending(Contending),
    Leading(Tenure),
    Stopping(Stopping),
    Exited,
}

impl State {
    fn tenure(&self) -> Option<&Tenure> {
        match self {
            Self::Leading(tenure) => Some(tenure),
            Self::Stopping(stopping) => Some(&stopping.tenure),
            Self::Contending(_) | Self::Exited => None,
        }
    }

    fn tenure_mut(&mut self) -> Option<&mut Tenure> {
        match self {
            Self::Leading(tenure) => Some(tenure),
            Self::Stopping(stopping) => Some(&mut stopping.tenure),
            Self::Contending(_) | Self::Exited => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Shutdown {
    /// Latest instant to exit; set once nothing but the release is left.
    by: Option<BootTime>,
    /// True if a file still names a deadline ahead, so that the lease must expire without a
    /// release.
    keep: bool,
}

/// Context of one call of [`Election::handle`].
struct Turn<'a> {
    now: BootTime,
    random: &'a mut dyn Randomness,
}

impl Turn<'_> {
    /// Returns `duration` with a random jitter of up to 20 % either way.
    fn jittered(&mut self, duration: Duration) -> Duration {
        let spread = 2 * u128::from(JITTER_PERCENT) * 10 + 1;
        let per_mille = u32::try_from(self.random.bits() % spread).unwrap_or(0);
        duration.saturating_mul(1000 - JITTER_PERCENT * 10 + per_mille) / 1000
    }

    /// Returns a random duration between zero and `most`, both included.
    fn up_to(&mut self, most: Duration) -> Duration {
        let nanos = most.as_nanos() + 1;
        Duration::from_nanos(u64::try_from(self.random.bits() % nanos).unwrap_or(0))
    }
}

impl Election {
    /// Creates a candidate that has read nothing yet. The first input starts it; [`Input::Tick`] is
    /// sufficient.
    pub fn new(candidate: Candidate, now: BootTime, random: &mut dyn Randomness) -> Self {
        let Candidate {
            identity,
            tunables,
            token_remembered,
            lease_longest_remembered,
            supervises,
            predecessor_claim,
            stands_by,
            priority,
        } = candidate;
        let own = tunables.timings.lease_duration();
        let lease_longest = lease_longest_remembered.map_or(own, |longest| longest.max(own));
        let session = Session::random(random);
        let view = View::new(token_remembered, lease_longest);
        Self {
            me: Participant {
                identity,
                session,
                priority,
                tunables,
            },
            state: State::Contending(Contending::default()),
            publication: Publication::new(predecessor_claim, &view, session, now),
            view,
            claims: OpenClaims::new(predecessor_claim),
            waits: Waits::new(now),
            registration: Registration::new(stands_by),
            reads: Reads::new(now),
            left_to_expire: false,
            workload: WorkloadState::new(supervises),
            shutdown: None,
            outbox: Outbox::new(now),
            now,
        }
    }

    /// Processes one input at `now` and everything that is due.
    pub fn handle(&mut self, now: BootTime, input: Input, random: &mut dyn Randomness) {
        // A caller that reads the clock and then waits for a lock could pass an earlier instant
        // than the call before. Time never decreases here.
        self.now = self.now.max(now);
        let mut turn = Turn {
            now: self.now,
            random,
        };
        // Expiry comes first, for every input. A claim ends at its deadline, so an acknowledgement
        // that waited in a frozen process is late.
        if planted!(AcknowledgedAfterDeadline) {
            self.apply(input, &mut turn);
            self.expire(&mut turn);
        } else {
            self.expire(&mut turn);
            self.apply(input, &mut turn);
        }
        self.advance(&mut turn);
        self.outbox.extend(self.publication.record_view(&self.view));
        self.publish();
        self.check_invariants();
    }

    /// Returns the next effect, in order. All effects must be drained before the next input.
    pub fn next_effect(&mut self) -> Option<Effect> {
        self.outbox.pop()
    }

    /// Returns the instant at which an [`Input::Tick`] is due unless another input comes first.
    pub fn next_wakeup(&self) -> Option<BootTime> {
        self.outbox.wakeup()
    }

    /// Returns the status to publish. Evaluate it with [`Status::at`] before showing it.
    pub fn status(&self) -> &Status {
        self.publication.status()
    }

    fn publish(&mut self) {
        let transition = self.publication.refresh(&Basis {
            me: &self.me,
            state: &self.state,
            view: &self.view,
            answers_until: self.reads.answers_until(),
            drain: self.workload.drain(),
            shutting_down: self.shutdown.is_some(),
            now: self.now,
        });
        self.outbox.extend(transition);
    }

    /// Checks invariants that only a bug can break. A daemon that fails here exits. Its files and
    /// its claim carry deadlines, so readers and contenders continue without it.
    fn check_invariants(&self) {
        let awake = self.outbox.wakeup().is_none_or(|at| at > self.now);
        assert!(awake, "due at once again after all that was due was done");
        let idle = matches!(self.state, State::Contending(_)) && !self.is_busy();
        self.reads.check_invariants(idle);
        let token_highest = self.view.token_highest();
        self.publication.check_invariants(self.now, token_highest);
        if let (true, State::Leading(tenure)) = (self.workload.supervises(), &self.state) {
            let runs = self.workload.runs_under(tenure.token);
            assert!(runs, "a leader whose workload is gone");
        }
        let leading = self.state.tenure().map(|tenure| tenure.claim);
        self.claims.check_invariants(leading);
    }

    fn apply(&mut self, input: Input, turn: &mut Turn<'_>) {
        match input {
            Input::Tick => {}
            Input::Reply { call, outcome } => self.reply(call, outcome, turn),
            Input::Watch(watch) => self.watch(watch, turn),
            Input::PrimaryChanged => self.primary_changed(turn),
            Input::Demoted {
                shown,
                label_pending,
            } => self.demoted(shown, label_pending, turn.now),
            Input::LabelDemoted => self.label_demoted(),
            Input::WorkloadDone { token } => self.workload_done(token),
            Input::WorkloadEnded { token } => self.workload_ended(token, turn),
            Input::WorkloadGone { token } => self.workload_gone(token, turn),
            Input::WorkloadStuck { token } => self.workload_stuck(token, turn),
            Input::Health { healthy } => self.health(healthy, turn),
            Input::StepDown => {
                self.cancel_acquisitions(turn.now);
                self.stop(Reason::Requested, None, turn);
            }
            Input::Shutdown => self.shut_down(turn),
            Input::Reconfigure(tunables) => {
                self.me.tunables = tunables;
                if let (true, Some(tenure)) = (planted!(TimingsReloaded), self.state.tenure_mut()) {
                    tenure.timings = tunables.timings;
                }
            }
        }
    }

    fn watch(&mut self, watch: Watch, turn: &mut Turn<'_>) {
        let (leads, timings) = (self.state.tenure().is_some(), self.me.timings());
        if let Some(lease) = self.reads.watch(watch, leads, timings, turn.now) {
            self.changed(lease, turn);
        }
    }

    /// Handles a change event. An event is a hint: it may be older than the last read, and it
    /// grants nothing.
    fn changed(&mut self, lease: Lease, turn: &mut Turn<'_>) {
        self.note_seen(&lease);
        self.shown_while_acquiring(&lease, false);
        let found = Found::Lease(lease);
        let believed = self.view.judge(&found) == Plausible::Yes;
        let Found::Lease(lease) = found else { return };
        #[cfg(proof)]
        if let (true, Some(tenure)) = (planted!(EventAsAuthority), self.state.tenure_mut()) {
            tenure.acknowledged_by_event(lease.revision);
        }
        match self.state.tenure() {
            Some(tenure) if !tenure.sent(lease.revision) || self.demand(&lease).is_some() => {
                self.reads.read_at(turn.now);
            }
            Some(_) => self.view.note_standby(lease.standby),
            None if self.reads.is_late() => {
                if self.view.is_older_than(&lease) {
                    self.reads.read_at(turn.now);
                }
            }
            None if believed => {
                self.observe(Found::Lease(lease), turn);
                self.reads.overtake();
            }
            None => self.reads.fall_behind(turn.now),
        }
    }

    fn primary_changed(&mut self, turn: &mut Turn<'_>) {
        // The cursor of an open stream, or of hints, stays on the member that it was opened on, even
        // if that member is no longer the primary and lags behind.
        self.outbox.extend(self.reads.reopen());
        match self.state.tenure_mut() {
            Some(tenure) => tenure.hurry(),
            None => self.reads.hurry(turn.now),
        }
    }

    /// Handles the reply to a read.
    fn read_reply(&mut self, outcome: Outcome, turn: &mut Turn<'_>) {
        let (reading, found) = match self.reads.reply(outcome, &self.view, &self.me, turn) {
            ReadReply::Unanswered => return self.settle_check(None, turn),
            ReadReply::Untrusted => return,
            ReadReply::Shows {
                reading,
                found,
                rolled_back,
            } => {
                if let Some((seen, found)) = rolled_back {
                    self.store_went_back(seen, found, turn);
                }
                (reading, found)
            }
        };
        let contends = matches!(self.state, State::Contending(_));
        self.reads.looked(turn.now);
        let (view, now) = (&self.view, turn.now);
        if !self.reads.is_current(&reading, &found, contends, view, now) {
            return;
        }
        let reopen = self.reads.judge_stream(&reading, &found, view);
        self.outbox.extend(reopen);
        self.reads.follow_up(&found, contends, &self.me, turn);
        match self.state {
            State::Leading(_) | State::Stopping(_) => self.leader_read(found, turn),
            State::Contending(_) => {
                self.settle_check(Some(&found), turn);
                self.observe(found, turn);
            }
            State::Exited => {}
        }
    }

    /// Ends the check of a rejected claim, after its document was read or the read failed.
    fn settle_check(&mut self, found: Option<&Found>, turn: &mut Turn<'_>) {
        let State::Contending(contending) = &mut self.state else {
            return;
        };
        let Some(checking) = contending.checking.take() else {
            return;
        };
        if let Some(Found::Lease(lease)) = found
            && lease
                .holder
                .as_ref()
                .is_some_and(|h| h.claim == checking.claim)
            && !checking.chain.contains(&lease.revision)
        {
            // The stored claim is this process's own, with a revision that it never sent: a forked
            // machine renews it, or the document was edited by hand.
            self.outbox.notice(Notice::Duplicate {
                session: self.me.session,
            });
            self.me.session = Session::random(turn.random);
            self.publication.set_reason(Reason::Duplicate);
        }
    }

    fn store_went_back(&mut self, seen: Token, found: Option<Token>, turn: &mut Turn<'_>) {
        let wait = if planted!(OwnQuarantine) {
            self.me.timings().lease_duration()
        } else {
            self.view.lease_longest()
        };
        self.waits.quarantine_until(Some(turn.now + wait));
        self.outbox
            .notice(Notice::StoreRolledBack { seen, found, wait });
        self.claims.clear();
        if self.state.tenure().is_some() {
            self.lose(Loss::StoreRolledBack, turn);
        } else {
            self.publication.set_reason(Reason::StoreRolledBack);
            if let State::Contending(contending) = &mut self.state {
                contending.checking = None;
            }
        }
    }

    /// Records what a reply or event shows, even if it is late or not trusted: the token was used,
    /// and its holder may lead for the declared duration.
    fn note_seen(&mut self, lease: &Lease) {
        self.view.note_seen(lease);
        self.shown_while_creating(lease);
    }

    fn record(&mut self, claim: Option<Claim>) {
        self.outbox.push(self.publication.record(claim, &self.view));
    }

    /// Applies the content of a reply or of a trusted event to the view.
    fn observe(&mut self, found: Found, turn: &mut Turn<'_>) {
        if let Found::Lease(lease) = &found {
            let recorded = self.publication.recorded_claim();
            if self.claims.forget_superseded(lease, recorded) {
                self.record(None);
            }
            self.waits.observe(lease);
        }
        self.outbox
            .extend(self.view.strange(&found).map(Effect::Notice));
        if self.view.observe(found, turn.now) {
            self.waits.draw(turn);
            self.registration.draw(turn);
            let lease = self.view.lease();
            if lease.is_some_and(|lease| self.view.next_token(lease).is_none()) {
                self.outbox.notice(Notice::TokensExhausted);
            }
        }
    }

    /// Routes a reply to the step that waits for it. A reply that no step waits for grants nothing.
    fn reply(&mut self, call: CallId, outcome: Outcome, turn: &mut Turn<'_>) {
        if matches!(outcome, Outcome::Applied(_) | Outcome::Rejected) {
            self.reads.contact(self.me.timings(), turn.now);
        }
        // This includes late replies that no step waits for, because the token was used.
        if let Outcome::Applied(Found::Lease(lease)) = &outcome {
            self.note_seen(lease);
            self.shown_while_acquiring(lease, true);
        }
        if self.registration_reply(call, &outcome, turn.now) {
            // Nothing else waits for it.
        } else if self.reads.awaits(call) {
            self.read_reply(outcome, turn);
        } else if self.state.tenure().is_some() {
            self.renewal_reply(call, outcome, turn);
        } else {
            self.contender_reply(call, outcome, turn);
        }
    }

    fn health(&mut self, healthy: bool, turn: &mut Turn<'_>) {
        self.waits.set_unhealthy(!healthy);
        if !healthy {
            self.stop(Reason::Unhealthy, None, turn);
        }
    }

    /// Handles the confirmation that the workload stopped all work under `token`, possibly after
    /// that claim was lost.
    fn workload_done(&mut self, token: Token) {
        self.workload.done(token);
        if let State::Stopping(stopping) = &mut self.state
            && stopping.tenure.token == token
        {
            stopping.shorten_drain(BootTime::default(), Duration::ZERO);
        }
    }

    /// Handles an exit of the workload that was not requested. A candidate that cannot keep its
    /// workload running lets others try.
    fn workload_ended(&mut self, token: Token, turn: &mut Turn<'_>) {
        if self.workload.runs_under(token) && matches!(self.state, State::Leading(_)) {
            let wait = self.workload.back_off(self.me.timings(), turn.now);
            // A leader in between does not improve the workload, so it does not end the cooldown.
            let session = self.me.session;
            self.waits.cool_down(turn.now + wait, Token::MAX, session);
            self.stop(Reason::WorkloadExit, None, turn);
        }
    }

    fn workload_gone(&mut self, token: Token, turn: &mut Turn<'_>) {
        if !self.workload.runs_under(token) {
            return;
        }
        // If no `WorkloadEnded` came before, the workload exited on its own as well.
        self.workload_ended(token, turn);
        self.workload.gone();
        if matches!(self.state, State::Contending(_)) {
            // The claim waited for this, and the document may have changed meanwhile.
            self.reads.fall_behind(turn.now);
        }
    }

    /// Handles a workload that survived its kill. Waiting for its end would keep the lease from the
    /// other candidates without a bound, so the claim is lost instead.
    fn workload_stuck(&mut self, token: Token, turn: &mut Turn<'_>) {
        if self.workload.stuck(token) {
            let expires_at = self.state.tenure().map(Tenure::expires_at);
            let wait = expires_at.map_or(Duration::ZERO, |at| at.since(turn.now));
            self.outbox.notice(Notice::WorkloadStuck { token, wait });
            self.publication.set_reason(Reason::WorkloadStuck);
            self.lose(Loss::WorkloadStuck, turn);
        }
    }

    /// Returns the time that a workload has to notice the end of leadership.
    fn drain_time(&self) -> Duration {
        drain_time(&self.me.tunables, self.shutdown.is_some())
    }

    /// Shortens a wait for the workload that is in progress when a shutdown is requested, if the
    /// new delay is shorter.
    fn shorten_drain(&mut self, now: BootTime) {
        let delay = self.drain_time();
        let until = now + delay;
        self.workload.shorten_drain(until);
        if let State::Stopping(stopping) = &mut self.state {
            stopping.shorten_drain(until, delay);
        }
    }

    /// Returns the earliest instant of a release, unless the workload confirms before. After a
    /// rollback of the store, another candidate may still lead, and those that have not noticed the
    /// rollback would acquire a lease that is released.
    fn release_from(&self) -> BootTime {
        let noticed = self.workload.drain().map(DrainAfterLoss::until);
        noticed.max(self.waits.quarantine()).unwrap_or_default()
    }

    /// Starts a cooldown of one lease duration, which ends early when another claim leads.
    fn cool_down(&mut self, token: Token, now: BootTime) {
        let until = now + self.me.timings().lease_duration();
        self.waits.cool_down(until, token, self.me.session);
    }

    fn shut_down(&mut self, turn: &mut Turn<'_>) {
        if self.shutdown.is_none() {
            self.shutdown = Some(Shutdown {
                by: None,
                keep: false,
            });
            self.shorten_drain(turn.now);
            self.stop(Reason::Shutdown, None, turn);
        }
    }

    /// Does everything that is due and sets the next wakeup.
    fn advance(&mut self, turn: &mut Turn<'_>) {
        let next = match &self.state {
            State::Exited => None,
            State::Leading(_) | State::Stopping(_) => self.lead(turn),
            State::Contending(_) => self.contend(turn),
        };
        let silent = self.reads.answers_until().filter(|at| *at > turn.now);
        self.outbox.wake_at(match self.state {
            State::Exited => None,
            State::Contending(_) => earliest([next, silent]),
            State::Leading(_) | State::Stopping(_) => next,
        });
    }
}

fn earliest<const N: usize>(instants: [Option<BootTime>; N]) -> Option<BootTime> {
    instants.into_iter().flatten().min()
}
