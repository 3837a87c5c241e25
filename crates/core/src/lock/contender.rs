//! One contender for one lock: its state, inputs and effects.
//!
//! The submodules implement the states (joining, waiting, holding, leaving); `reading.rs` evaluates
//! replies.

#[cfg(proof)]
mod compared;
mod hold;
mod join;
mod leave;
mod reading;
mod sweep;
mod wait;

use std::collections::VecDeque;
use std::time::Duration;

use super::claim_writes::{ClaimWrites, WritePurpose};
use super::effect::{Effect, Notice};
use super::input::{AtLeast, Input, Options};
use super::observations::Observations;
use super::operation::{Hint, Operation, Outcome};
use super::status::{End, Loss, Standing, Status};
use super::view::View;
use crate::claim::{Outbox, Turn};
use crate::election::{Authority, BootTime, CallId, Claim, Randomness, Revision, Session, Token};
#[cfg(proof)]
pub(crate) use compared::Form;
use hold::Holding;
use join::Joining;
use leave::Leaving;
use reading::Reading;
use sweep::Sweeping;
use wait::Waiting;

/// One contender for one lock.
#[derive(Debug, Clone)]
pub struct LockContender {
    options: Options,
    session: Session,
    state: State,
    since: BootTime,
    /// End of the minimum hold of the place, once the lock was acquired with one.
    keeps_until: Option<BootTime>,
    /// True once a renewal has declared the minimum hold of the claim.
    declared: bool,
    /// True once the work has succeeded.
    succeeded: bool,
    /// Start of contention and of the reported waiting time.
    began: BootTime,
    view: View,
    writes: ClaimWrites,
    /// The sweep in flight, if any.
    sweeping: Option<Sweeping>,
    /// Sweeps of unknown outcome, oldest first. A late reply may still show what they evicted.
    unanswered: VecDeque<Sweeping>,
    reading: Option<Reading>,
    read_due: Option<BootTime>,
    /// True if a reply showed something that only a linearizable read can confirm.
    suspicious: bool,
    /// True if a read must be answered before the next write, for example after a rejection.
    behind: bool,
    /// Earliest instant of the next write. Renewals of a holder ignore it, because authority
    /// depends on them.
    retry_at: BootTime,
    /// Number of calls sent when the stream reported that the claim was granted, if it did.
    hinted: Option<u64>,
    watch_open: bool,
    /// Number of calls sent when the stream was opened. Replies to these calls may be older than
    /// the events of the stream.
    opened_after: u64,
    watching: bool,
    reached: bool,
    now: BootTime,
    wakeup: Option<BootTime>,
    outbox: Outbox<Effect>,
}

#[derive(Debug, Clone, Hash)]
enum State {
    Joining(Joining),
    Waiting(Waiting),
    Holding(Holding),
    /// The claim is lost; the work under it may still run.
    Lost(Loss),
    Leaving(Leaving),
    Ended(End),
}

impl LockContender {
    /// Creates a contender that has not sent anything and starts with its first input, for example
    /// [`Input::Tick`].
    pub fn new(options: Options, now: BootTime, random: &mut dyn Randomness) -> Self {
        let lease_duration = options.timings.lease_duration();
        let observations = if planted!(NothingRemembered) {
            Observations::default()
        } else {
            options.observations.clone()
        };
        let view = View::new(options.token_remembered, lease_duration, observations);
        let mut contender = Self {
            session: Session::random(random),
            state: State::Joining(Joining::at(now)),
            since: now,
            keeps_until: None,
            declared: false,
            succeeded: false,
            began: now,
            view,
            writes: ClaimWrites::new(Claim::random(random)),
            sweeping: None,
            unanswered: VecDeque::new(),
            reading: None,
            read_due: None,
            suspicious: false,
            behind: false,
            retry_at: now,
            hinted: None,
            watch_open: false,
            opened_after: 0,
            watching: false,
            reached: false,
            now,
            wakeup: Some(now),
            outbox: Outbox::new(),
            options,
        };
        contender.watch_first(now);
        contender
    }

    /// Applies one input at `now` and performs everything that is due.
    pub fn handle(&mut self, now: BootTime, input: Input, random: &mut dyn Randomness) {
        // A caller may read the clock and then wait for a mutex, so `now` can be older than in the
        // previous call. Time does not move backwards here.
        self.now = self.now.max(now);
        let mut turn = Turn {
            now: self.now,
            random,
        };
        // Expiry comes first, regardless of the input. A claim ends at its deadline, and an
        // acknowledgement that waited in a frozen process is too late.
        self.expire(&turn);
        self.apply(input, &mut turn);
        self.wakeup = self.advance(&mut turn);
        self.check_invariants();
    }

    /// Returns the next effect, in order. Drain all effects before the next input.
    pub fn next_effect(&mut self) -> Option<Effect> {
        self.outbox.pop()
    }

    /// Returns when to pass [`Input::Tick`] if nothing else happens earlier.
    pub fn next_wakeup(&self) -> Option<BootTime> {
        self.wakeup
    }

    /// Returns the authority at `now`, if any.
    pub fn authority_at(&self, now: BootTime) -> Option<Authority> {
        let State::Holding(holding) = &self.state else {
            return None;
        };
        let authority = holding.authority();
        Some(authority).filter(|a| a.valid_until > now)
    }

    /// Returns the current status. Use [`Status::at`] before showing it at a later time.
    pub fn status(&self) -> Status {
        let standing = match &self.state {
            State::Joining(_) => Standing::Joining,
            State::Waiting(waiting) => Standing::Waiting {
                position: waiting.position,
                holding: self.view.numbers_ahead(self.writes.claim()).0,
                ahead: self.view.ahead(self.writes.claim()),
            },
            State::Holding(holding) => Standing::Held(holding.authority()),
            State::Lost(loss) => Standing::Lost(*loss),
            State::Leaving(_) => Standing::Leaving,
            State::Ended(end) => Standing::Ended(end.clone()),
        };
        Status {
            standing,
            since: self.since,
            claim: self.writes.claim(),
            session: self.session,
            provisional: matches!(&self.state, State::Holding(holding) if holding.provisional),
            slot: match &self.state {
                State::Holding(holding) => holding.slot,
                State::Joining(_)
                | State::Waiting(_)
                | State::Lost(_)
                | State::Leaving(_)
                | State::Ended(_) => None,
            },
            token_highest: self.view.token_highest,
            store_reached: self.reached,
        }
    }

    /// Returns the current claim. Each join at the tail has a new one.
    pub fn claim(&self) -> Claim {
        self.writes.claim()
    }

    /// Returns since when the contender has been waiting, or `None` if it is not waiting.
    pub fn waits_since(&self) -> Option<BootTime> {
        matches!(self.state, State::Waiting(_)).then_some(self.since)
    }

    /// Returns the highest token of this lock seen so far, to be remembered.
    pub fn token_highest(&self) -> Token {
        self.view.token_highest
    }

    /// Returns the observations of other entries, to be remembered for the next contender of this
    /// boot. A contender may end long before any entry that it observed has expired.
    pub fn observations(&self) -> &Observations {
        &self.view.observations
    }

    fn apply(&mut self, input: Input, turn: &mut Turn<'_>) {
        match input {
            Input::Tick => {}
            Input::Reply { call, outcome } => self.reply(call, outcome, turn),
            Input::Hint(hint) => self.hint(hint, turn),
            Input::PrimaryChanged => self.primary_changed(turn.now),
            Input::GiveUp => {
                // No work began, so no place is kept, even if the lock is lost by now.
                let ended = matches!(self.state, State::Leaving(_));
                let keeps = ended || planted!(GivenUpPlaceKept);
                self.keeps_until = self.keeps_until.filter(|_| keeps);
                self.give_up(turn.now);
            }
            Input::Abandoned => self.give_up(turn.now),
            Input::Release => self.release(turn.now),
            Input::Succeeded => {
                self.succeeded |= matches!(self.state, State::Holding(_));
                self.release(turn.now);
            }
        }
    }

    /// Routes a reply to the handler of its call. The tokens in it count as used even if the call
    /// is no longer awaited.
    fn reply(&mut self, call: CallId, outcome: Outcome, turn: &mut Turn<'_>) {
        self.reached |= matches!(outcome, Outcome::Applied(_) | Outcome::Rejected);
        if let Outcome::Applied(super::Found::Lock(lock)) = &outcome {
            self.view.note_seen(lock, self.writes.claim());
        }
        let swept = self.sweep_reply(call, &outcome, turn.now);
        if self.reading.is_some_and(|reading| reading.call == call) {
            self.read_reply(outcome, turn);
        } else if let Some(write) = self.writes.write(call) {
            self.attempt_reply(write, outcome, turn);
        } else {
            match &self.state {
                State::Joining(_) if swept => self.joining_swept(call, outcome, turn),
                State::Joining(joining) if joining.creates(call) => self.created(&outcome, turn),
                State::Joining(_) | State::Waiting(_) => self.late_read(outcome, call, turn),
                State::Leaving(_) => self.leave_reply(call, outcome, turn),
                State::Holding(_) => self.shown_to_holder(call, outcome, turn),
                State::Lost(_) | State::Ended(_) => {}
            }
        }
    }

    fn hint(&mut self, hint: Hint, turn: &mut Turn<'_>) {
        match hint {
            Hint::Alive => {}
            Hint::Opened { since_join } => {
                self.watch_open = true;
                // Read after opening the stream, so that no change in between is missed.
                self.opened_after = if since_join { 0 } else { self.outbox.calls() };
                if !since_join && matches!(self.state, State::Waiting(_)) {
                    self.read_again(turn.now);
                } else {
                    self.keep_pace(turn);
                }
                self.watch_settled();
            }
            Hint::Lost => {
                self.watch_open = false;
                if matches!(self.state, State::Waiting(_)) {
                    let poll = turn.now + turn.jittered(self.options.timings.retry_interval());
                    self.read_soon(poll);
                }
                self.watch_settled();
            }
            Hint::Granted(grant) => self.granted(grant, turn.now),
            Hint::Next => self.at_the_head(turn),
            Hint::Changed => {
                if matches!(self.state, State::Waiting(_)) {
                    self.read_again(turn.now);
                }
            }
        }
    }

    fn primary_changed(&mut self, now: BootTime) {
        // The cursor of an open stream stays on the member on which it was opened, and that member
        // may lag from now on.
        if self.watching && self.watch_open {
            self.follow();
        }
        match &mut self.state {
            State::Holding(holding) => holding.hurry = true,
            State::Waiting(waiting) => {
                waiting.hurry = waiting.granted || self.hinted.is_some();
                self.retry_at = now;
                self.read_soon(now);
            }
            State::Joining(_) => self.retry_at = now,
            State::Leaving(_) => self.leave_again(now),
            State::Lost(_) | State::Ended(_) => {}
        }
    }

    /// Performs everything that is due and returns the next wake-up.
    fn advance(&mut self, turn: &mut Turn<'_>) -> Option<BootTime> {
        match self.state {
            State::Joining(_) => self.join(turn),
            State::Waiting(_) => self.wait(turn),
            State::Holding(_) => self.hold(turn),
            State::Leaving(_) => self.leave(turn),
            State::Lost(_) | State::Ended(_) => None,
        }
    }

    /// Queues a call and returns its id.
    fn call(&mut self, operation: Operation) -> CallId {
        self.outbox.call(|id| Effect::Call { id, operation })
    }

    /// Records a write that carries a revision of the claim. The next call must be this write.
    fn attempt(&mut self, purpose: WritePurpose, turn: &mut Turn<'_>) -> Revision {
        let call = self.outbox.next_call();
        let fresh = Revision::random(turn.random);
        self.writes.send(call, purpose, fresh, turn.now)
    }

    fn renew(&mut self, turn: &mut Turn<'_>) {
        let mine = self.writes.mine();
        let revision = self.attempt(WritePurpose::Renew, turn);
        let at_least = self.declares(turn.now);
        self.declared |= at_least.is_some();
        self.call(Operation::Renew {
            claim: self.writes.claim(),
            revision,
            mine,
            seen: self.view.token_floor,
            at_least,
        });
    }

    /// Returns the rest of the minimum hold to declare with a renewal, or all of it if the renewal
    /// may acquire the lock.
    fn declares(&self, now: BootTime) -> Option<Duration> {
        let at_least = self.options.at_least;
        match &self.state {
            _ if at_least == AtLeast::NONE => None,
            State::Waiting(waiting) if waiting.granted || self.hinted.is_some() => {
                Some(at_least.get())
            }
            State::Holding(_) => self.keeps_until.map(|until| until.since(now)),
            State::Joining(_)
            | State::Waiting(_)
            | State::Lost(_)
            | State::Leaving(_)
            | State::Ended(_) => None,
        }
    }

    fn notice(&mut self, notice: Notice) {
        self.outbox.push(Effect::Notice(notice));
    }

    fn enter(&mut self, state: State, now: BootTime) {
        self.state = state;
        self.since = now;
    }

    /// Panics in states that only a bug can cause, because a contender must not continue with
    /// authority there.
    fn check_invariants(&self) {
        let in_flight = self.writes.in_flight();
        assert!(
            in_flight <= 2,
            "{in_flight} writes of a claim are in flight"
        );
        if let State::Holding(holding) = &self.state {
            let authority = holding.authority();
            assert!(
                authority.valid_until > self.now,
                "a lock is held past its deadline"
            );
            assert!(
                authority.token <= self.view.token_highest,
                "a lock is held by a token that nobody saw"
            );
            assert!(self.writes.is_present(), "a lock is held by no entry");
        }
        if let State::Ended(_) = self.state {
            assert!(self.wakeup.is_none(), "a contender that ended wakes up");
        }
        assert!(
            !self.behind || self.reading.is_some() || self.read_due.is_some(),
            "a contender is behind and does not read"
        );
    }
}
