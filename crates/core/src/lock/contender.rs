//! One contender for one lock: its state, its inputs and its effects.
//!
//! What it does in each state is in the files beside this one: joining,
//! waiting, holding and leaving; what it makes of replies, in `reading.rs`.

mod hold;
mod join;
mod leave;
mod reading;
mod wait;

use std::collections::VecDeque;
use std::time::Duration;

use super::effect::{Effect, Notice};
use super::input::{Input, Options};
use super::operation::{Hint, Operation, Outcome, Seen};
use super::sightings::{Patience, Sightings};
use super::stake::{Kind, Stake};
use super::status::{End, Loss, Standing, Status};
use super::view::View;
use crate::election::{
    Authority, BootTime, CallId, Claim, JITTER_PERCENT, Randomness, Revision, Session, Token,
};
use hold::Holding;
use join::Joining;
use leave::Leaving;
use reading::Reading;
use wait::Waiting;

/// One contender for one lock.
#[derive(Debug, Clone)]
pub struct LockContender {
    options: Options,
    session: Session,
    state: State,
    since: BootTime,
    /// When it began to contend for what it holds or will hold.
    began: BootTime,
    view: View,
    stake: Stake,
    /// The entries that a sweep under way takes out.
    sweeping: Option<Sweeping>,
    reading: Option<Reading>,
    read_due: Option<BootTime>,
    /// A reply said something that only a linearizable read can confirm.
    suspicious: bool,
    /// A write was rejected: read before the next one.
    behind: bool,
    /// No write before this instant, unless authority depends on it.
    retry_at: BootTime,
    /// The stream said that the claim was granted, when so many calls had
    /// been sent.
    hinted: Option<u64>,
    watch_open: bool,
    /// How many calls had been sent when the stream was opened: what their
    /// replies show may be older than what it tells.
    opened_after: u64,
    watching: bool,
    reached: bool,
    calls: u64,
    now: BootTime,
    wakeup: Option<BootTime>,
    effects: VecDeque<Effect>,
}

#[derive(Debug, Clone)]
enum State {
    Joining(Joining),
    Waiting(Waiting),
    Holding(Holding),
    /// The claim has ended; the work under it may still run.
    Lost(Loss),
    Leaving(Leaving),
    Ended(End),
}

#[derive(Debug, Clone)]
struct Sweeping {
    call: CallId,
    pairs: Vec<Seen>,
}

/// One call of [`LockContender::handle`]: what every step of it needs.
struct Turn<'a> {
    now: BootTime,
    random: &'a mut dyn Randomness,
}

impl Turn<'_> {
    /// `duration` spread by 20 % on either side.
    fn jittered(&mut self, duration: Duration) -> Duration {
        self.spread(
            duration,
            1000 - JITTER_PERCENT * 10,
            2 * JITTER_PERCENT * 10,
        )
    }

    /// `duration` or up to 20 % less, where more would break a bound.
    fn shortened(&mut self, duration: Duration) -> Duration {
        self.spread(duration, 1000 - JITTER_PERCENT * 10, JITTER_PERCENT * 10)
    }

    fn spread(&mut self, duration: Duration, least: u32, spread: u32) -> Duration {
        let per_mille = self.random.bits() % (u128::from(spread) + 1);
        let per_mille = least + u32::try_from(per_mille).unwrap_or(0);
        duration.saturating_mul(per_mille) / 1000
    }
}

impl LockContender {
    /// A contender that has sent nothing yet; it begins with its first input,
    /// a [`Input::Tick`] will do.
    pub fn new(options: Options, now: BootTime, random: &mut dyn Randomness) -> Self {
        let lease_duration = options.timings.lease_duration();
        let sightings = if planted!(NothingRemembered) {
            Sightings::default()
        } else {
            options.sightings.clone()
        };
        let view = View::new(options.token_remembered, lease_duration, sightings);
        let mut contender = Self {
            session: Session::random(random),
            state: State::Joining(Joining::at(now)),
            since: now,
            began: now,
            view,
            stake: Stake::new(random),
            sweeping: None,
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
            calls: 0,
            now,
            wakeup: Some(now),
            effects: VecDeque::new(),
            options,
        };
        contender.watch_first(now);
        contender
    }

    /// Takes one input at `now` and does all that is due.
    pub fn handle(&mut self, now: BootTime, input: Input, random: &mut dyn Randomness) {
        // A caller that reads the clock before it waits for a lock could go
        // back; time that went by stays gone.
        self.now = self.now.max(now);
        let mut turn = Turn {
            now: self.now,
            random,
        };
        // First of all, whatever the input is: at its deadline a claim has
        // ended, and an acknowledgement that waited in a frozen process is late.
        if planted!(AcknowledgedAfterDeadline) {
            self.apply(input, &mut turn);
            self.expire(&turn);
        } else {
            self.expire(&turn);
            self.apply(input, &mut turn);
        }
        self.wakeup = self.advance(&mut turn);
        self.check_invariants();
    }

    /// The next thing to do, in order. Drain before the next input.
    pub fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When to bring a [`Input::Tick`] if nothing else happens before.
    pub fn next_wakeup(&self) -> Option<BootTime> {
        self.wakeup
    }

    /// What it may do at `now`; `None`: nothing.
    pub fn authority_at(&self, now: BootTime) -> Option<Authority> {
        let State::Holding(holding) = &self.state else {
            return None;
        };
        let authority = holding.authority(&self.options.timings);
        Some(authority).filter(|a| a.valid_until > now)
    }

    /// How it stands. Ask [`Status::at`] before showing it later.
    pub fn status(&self) -> Status {
        let standing = match &self.state {
            State::Joining(_) => Standing::Joining,
            State::Waiting(waiting) => Standing::Waiting {
                position: waiting.position,
                holding: self.view.numbers_ahead(self.stake.claim).0,
                ahead: self.view.ahead(self.stake.claim),
            },
            State::Holding(holding) => Standing::Held(holding.authority(&self.options.timings)),
            State::Lost(loss) => Standing::Lost(*loss),
            State::Leaving(_) => Standing::Leaving,
            State::Ended(end) => Standing::Ended(end.clone()),
        };
        Status {
            standing,
            since: self.since,
            claim: self.stake.claim,
            session: self.session,
            token_highest: self.view.token_highest,
            store_reached: self.reached,
        }
    }

    /// Its claim; new after each join at the tail.
    pub fn claim(&self) -> Claim {
        self.stake.claim
    }

    /// Since when it waits; `None`: it does not.
    pub fn waits_since(&self) -> Option<BootTime> {
        matches!(self.state, State::Waiting(_)).then_some(self.since)
    }

    /// The highest token of this lock that was seen, to be remembered.
    pub fn token_highest(&self) -> Token {
        self.view.token_highest
    }

    /// What was seen of others, to be remembered for the next contender of
    /// this boot: it may end long before anybody that it saw has expired.
    pub fn sightings(&self) -> &Sightings {
        &self.view.sightings
    }

    fn apply(&mut self, input: Input, turn: &mut Turn<'_>) {
        match input {
            Input::Tick => {}
            Input::Reply { call, outcome } => self.reply(call, outcome, turn),
            Input::Hint(hint) => self.hint(hint, turn),
            Input::PrimaryChanged => self.primary_changed(turn.now),
            Input::GiveUp => self.give_up(turn.now),
            Input::Release => match self.state {
                State::Holding(_) | State::Lost(_) => self.give_up(turn.now),
                State::Joining(_) | State::Waiting(_) | State::Leaving(_) | State::Ended(_) => {}
            },
        }
    }

    /// Finds the call that a reply answers. One that nobody waits for any
    /// more has no meaning left, except that its token was used.
    fn reply(&mut self, call: CallId, outcome: Outcome, turn: &mut Turn<'_>) {
        self.reached |= matches!(outcome, Outcome::Applied(_) | Outcome::Rejected);
        if let Outcome::Applied(super::Found::Lock(lock)) = &outcome {
            self.view.heed(lock);
        }
        if self.reading.is_some_and(|reading| reading.call == call) {
            self.read_reply(outcome, turn);
        } else if let Some(attempt) = self.stake.attempt(call) {
            self.attempt_reply(attempt, outcome, turn);
        } else {
            match &self.state {
                State::Joining(_) if self.is_own(call) => self.joining_reply(call, outcome, turn),
                State::Joining(_) => self.late_read(outcome, call, turn),
                State::Leaving(_) => self.leave_reply(call, outcome, turn),
                State::Waiting(_) => self.late_read(outcome, call, turn),
                State::Holding(_) => self.holder_swept(call, outcome, turn),
                State::Lost(_) | State::Ended(_) => {}
            }
        }
    }

    fn hint(&mut self, hint: Hint, turn: &mut Turn<'_>) {
        match hint {
            Hint::Alive => {}
            Hint::Opened => {
                self.watch_open = true;
                // Open first, then read: what changed in between is not missed.
                self.opened_after = self.calls;
                if matches!(self.state, State::Waiting(_)) {
                    self.read_again(turn.now);
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
            Hint::Granted if planted!(HintGrants) && self.stake.is_present() => {
                let token = self.view.token_highest;
                self.acquired(token, (CallId(self.calls), turn.now), turn.now);
            }
            Hint::Granted => self.hinted = Some(self.calls),
            Hint::Next => self.at_the_head(turn),
            Hint::Changed => {
                if matches!(self.state, State::Waiting(_)) {
                    self.read_again(turn.now);
                }
            }
        }
    }

    fn primary_changed(&mut self, now: BootTime) {
        // The cursor of an open stream stays on the member that it was opened
        // on, which may lag behind from now on.
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

    /// Does all that is due and says when to come back.
    fn advance(&mut self, turn: &mut Turn<'_>) -> Option<BootTime> {
        match self.state {
            State::Joining(_) => self.join(turn),
            State::Waiting(_) => self.wait(turn),
            State::Holding(_) => self.hold(turn),
            State::Leaving(_) => self.leave(turn),
            State::Lost(_) | State::Ended(_) => None,
        }
    }

    /// Sends a call.
    fn call(&mut self, operation: Operation) -> CallId {
        self.calls += 1;
        let id = CallId(self.calls);
        self.effects.push_back(Effect::Call { id, operation });
        id
    }

    /// Notes a write that carries a revision of the claim; its call comes next.
    fn attempt(&mut self, kind: Kind, turn: &mut Turn<'_>) -> Revision {
        let fresh = Revision::random(turn.random);
        let revision = match self.stake.mine().last() {
            Some(last) if planted!(RevisionKept) && kind == Kind::Renew => *last,
            Some(_) | None => fresh,
        };
        let call = CallId(self.calls + 1);
        self.stake.send(call, kind, revision, turn.now);
        revision
    }

    fn renew(&mut self, turn: &mut Turn<'_>) {
        let mine = self.stake.mine();
        let revision = self.attempt(Kind::Renew, turn);
        self.call(Operation::Renew {
            claim: self.stake.claim,
            revision,
            mine,
            seen: self.view.token_highest,
        });
    }

    fn notice(&mut self, notice: Notice) {
        self.effects.push_back(Effect::Notice(notice));
    }

    fn enter(&mut self, state: State, now: BootTime) {
        self.state = state;
        self.since = now;
    }

    /// How long this contender waits for others, from `position` in the queue.
    fn patience(&self, position: usize) -> Patience {
        Patience {
            claim_time: self.options.timings.operation_timeout(),
            stagger: wait::stagger(position),
        }
    }

    /// What only a bug can break. A contender that breaks one has no
    /// authority to go on with.
    fn check_invariants(&self) {
        let in_flight = self.stake.in_flight();
        assert!(
            in_flight <= 2,
            "{in_flight} writes of a claim are in flight"
        );
        if let State::Holding(holding) = &self.state {
            let authority = holding.authority(&self.options.timings);
            assert!(
                authority.valid_until > self.now,
                "a lock is held past its deadline"
            );
            assert!(
                authority.token <= self.view.token_highest,
                "a lock is held by a token that nobody saw"
            );
            assert!(self.stake.is_present(), "a lock is held by no entry");
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

fn earliest<const N: usize>(instants: [Option<BootTime>; N]) -> Option<BootTime> {
    instants.into_iter().flatten().min()
}
