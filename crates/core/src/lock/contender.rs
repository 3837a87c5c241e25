#[cfg(proof)]
#[path = "../../../proof/src/model/lock/compared.rs"]
mod compared;
mod contending;
mod exchange;
mod holding;
mod joining;
mod leaving;
mod reads;
mod state;
mod waiting;

use super::claim_writes::WritePurpose;
use super::{
    End, FoundLock, Grant, Hint, LockEffect, LockInput, LockNotice, LockOutcome, LockStatus,
    LockTurn, Loss, MinHold, Observations, Options, WentBack,
};
use crate::claim::{Outbox, Turn};
use crate::election::{Authority, BootTime, CallId, Claim, Randomness, Session, Token};
#[cfg(proof)]
pub(crate) use compared::Form;
use contending::Consequence;
use exchange::Exchange;
use holding::Holding;
use joining::{Joining, Next};
use leaving::Leaving;
use state::State;
use waiting::{Waiting, WaitingPlace, renewal_after};

/// One contender for one lock.
///
/// After each [`handle`](Self::handle), carry out all effects of
/// [`next_effect`](Self::next_effect), and publish [`status`](Self::status). Pass
/// [`LockInput::Tick`] at [`next_wakeup`](Self::next_wakeup). Check
/// [`authority_at`](Self::authority_at) before each external effect of the work. If `now` is
/// earlier than in the previous call, the previous time applies.
#[derive(Debug, Clone)]
pub struct LockContender {
    state: State,
    exchange: Exchange,
    began: BootTime,
    since: BootTime,
    now: BootTime,
    wakeup: Option<BootTime>,
    outbox: Outbox<LockEffect>,
}

impl LockContender {
    /// Creates a contender that has sent nothing yet. The first input, of any kind, starts it.
    pub fn new(options: Options, now: BootTime, random: &mut dyn Randomness) -> Self {
        let mut exchange = Exchange::new(options, now, random);
        let mut outbox = Outbox::default();
        let turn = &mut Turn {
            now,
            random,
            effects: &mut outbox,
        };
        let mut at = now;
        if let Some(WentBack { found, joins_from }) = exchange.view.went_back()
            && joins_from > now
        {
            at = joins_from;
            let (seen, wait) = (exchange.view.marks.token_highest, joins_from.since(now));
            let notice = LockNotice::StoreRolledBack { seen, found, wait };
            turn.effects.notice(notice);
        }
        Self {
            state: State::Joining(Joining::at(at, &mut exchange, turn)),
            exchange,
            outbox,
            began: now,
            since: now,
            now,
            wakeup: Some(now),
        }
    }

    /// Applies one input at `now`, and performs everything that is due.
    pub fn handle(&mut self, now: BootTime, input: LockInput, random: &mut dyn Randomness) {
        // Calls may be out of order, because the first caller to read the clock may get the mutex
        // last.
        self.now = self.now.max(now);
        let now = self.now;
        let mut effects = std::mem::take(&mut self.outbox);
        let turn = &mut Turn {
            now,
            random,
            effects: &mut effects,
        };
        // Expiry comes first, because an acknowledgement delayed by a freeze may be too late.
        self.expire(turn);
        self.apply(input, turn);
        self.wakeup = self.advance(turn);
        self.outbox = effects;
        self.check_invariants();
    }

    /// Returns the next effect. Drain all effects before the next input.
    pub fn next_effect(&mut self) -> Option<LockEffect> {
        self.outbox.pop()
    }

    /// Returns the time at which to pass [`LockInput::Tick`], unless another input comes first.
    pub fn next_wakeup(&self) -> Option<BootTime> {
        self.wakeup
    }

    /// Returns the authority at `now`, if any.
    pub fn authority_at(&self, now: BootTime) -> Option<Authority> {
        let authority = self.state.holding()?.authority;
        Some(authority).filter(|a| a.valid_until > now)
    }

    /// Returns the current status. Call [`LockStatus::at`] before showing the status at a later
    /// time.
    pub fn status(&self) -> LockStatus {
        let holding = self.state.holding();
        LockStatus {
            standing: self.state.standing(&self.exchange),
            since: self.since,
            claim: self.claim(),
            session: self.exchange.session,
            provisional: holding.is_some_and(|holding| holding.provisional),
            slot: holding.and_then(|holding| holding.slot),
            token_highest: self.token_highest(),
            store_reached: self.exchange.view.store_reached,
        }
    }

    /// Returns the current claim. Each join at the tail has a new claim.
    pub fn claim(&self) -> Claim {
        self.exchange.writes.claim
    }

    /// Returns the loss of acknowledged writes that later contenders should remember, if any.
    pub fn went_back(&self) -> Option<WentBack> {
        self.exchange.view.went_back()
    }

    /// Returns the highest token of this lock seen so far, which later contenders should remember.
    pub fn token_highest(&self) -> Token {
        self.exchange.view.marks.token_highest
    }

    /// Returns the observations of other entries, for the next contender in this boot.
    pub fn observations(&self) -> &Observations {
        &self.exchange.view.observations
    }

    fn apply(&mut self, input: LockInput, turn: &mut LockTurn<'_>) {
        match input {
            LockInput::Tick => {}
            LockInput::Reply { call, outcome } => self.reply(call, outcome, turn),
            LockInput::Hint(hint) => self.hint(hint, turn),
            LockInput::PrimaryChanged => self.primary_changed(turn),
            LockInput::GiveUp => {
                // No work has begun, so the minimum hold does not apply, even if the lock was lost.
                if !matches!(self.state, State::Leaving(_)) {
                    self.exchange.keeps_until = None;
                }
                self.give_up(turn);
            }
            LockInput::Abandoned => self.give_up(turn),
            LockInput::Release => self.release(turn),
            LockInput::Succeeded => {
                if self.state.holding().is_some() {
                    self.exchange.succeeded = true;
                }
                self.release(turn);
            }
        }
    }

    fn hint(&mut self, hint: Hint, turn: &mut LockTurn<'_>) {
        let exchange = &mut self.exchange;
        match (hint, &mut self.state) {
            (Hint::Opened { since_join }, state) => {
                exchange.stream.opened(since_join, turn.effects.calls());
                if let Some(joining) = state.joining() {
                    joining.stream_awaited = None;
                } else if state.is_waiting() && !since_join {
                    exchange.reads.again(turn.now);
                } else if let State::Waiting(waiting) = state
                    && exchange.reads.is_idle()
                {
                    waiting.plan_read(exchange, turn);
                }
            }
            (Hint::Lost, state) => {
                exchange.stream.open = false;
                if let Some(joining) = state.joining() {
                    joining.stream_awaited = None;
                } else if state.is_waiting() {
                    exchange.reads.read_at(exchange.retry(turn));
                }
            }
            (Hint::Granted(grant), _) => {
                if !grant.is_some_and(|grant| self.hold_by(grant, turn)) {
                    self.exchange.stream.granted_after = Some(turn.effects.calls());
                }
            }
            (Hint::Next, State::Waiting(waiting)) => waiting.at_the_head(exchange, turn),
            (Hint::Changed, State::Waiting(_)) => exchange.reads.again(turn.now),
            (Hint::Alive | Hint::Next | Hint::Changed, _) => {}
        }
    }

    fn primary_changed(&mut self, turn: &mut LockTurn<'_>) {
        let exchange = &mut self.exchange;
        // The open cursor stays on its member, which may lag behind the new primary.
        if exchange.stream.requested && exchange.stream.open {
            exchange.follow(turn);
        }
        match &mut self.state {
            State::Holding(holding) => holding.hurry = true,
            State::Waiting(waiting) => {
                waiting.hurry(exchange);
                exchange.retry_at = turn.now;
                exchange.reads.read_at(turn.now);
            }
            State::Joining(_) => exchange.retry_at = turn.now,
            State::Leaving(leaving) => leaving.again(turn.now),
            State::Lost(_) | State::Ended(_) => {}
        }
    }

    fn reply(&mut self, call: CallId, outcome: LockOutcome, turn: &mut LockTurn<'_>) {
        let exchange = &mut self.exchange;
        let reports = !matches!(self.state, State::Ended(_));
        let was_eviction = exchange.note(call, &outcome, reports, turn);
        if let Some(reading) = exchange.reads.answered(call) {
            let verdict = contending::read_reply(exchange, reading, outcome, turn);
            return self.conclude(verdict, turn);
        }
        let write = exchange.writes.sent.get(call);
        match (&mut self.state, write) {
            (state @ (State::Joining(_) | State::Waiting(_)), Some(write)) => {
                let verdict = contending::write_reply(state, exchange, write, outcome, turn);
                self.conclude(verdict, turn);
            }
            (State::Joining(_), None) if was_eviction => {
                let verdict = contending::eviction_reply(exchange, call, outcome, turn);
                self.conclude(verdict, turn);
            }
            (State::Joining(joining), None) if joining.creating == Some(call) => {
                joining.created(&outcome, exchange, turn);
            }
            (State::Joining(_) | State::Waiting(_), None) => {
                let verdict = contending::late_read(exchange, call, outcome, turn);
                self.conclude(verdict, turn);
            }
            (State::Holding(holding), Some(write)) => {
                if let Some(loss) = holding.reply(&write, outcome, exchange, turn) {
                    self.lose(loss, turn);
                }
            }
            // The reply to an eviction, or a late reply to a read. A later eviction needs the
            // revisions in the reply.
            (State::Holding(_), None) => {
                if let LockOutcome::Applied(FoundLock::Lock(lock)) = outcome {
                    exchange.take_news(call, lock, turn);
                }
            }
            // The claim has ended, so only the outcome of a leave matters.
            (State::Lost(_) | State::Leaving(_) | State::Ended(_), Some(write)) => {
                exchange.writes.record(call, &outcome);
                if write.purpose == WritePurpose::Keep {
                    self.leave_reply(call, outcome, turn);
                }
            }
            (State::Leaving(_), None) => self.leave_reply(call, outcome, turn),
            (State::Lost(_) | State::Ended(_), None) => {}
        }
    }

    fn leave_reply(&mut self, call: CallId, outcome: LockOutcome, turn: &mut LockTurn<'_>) {
        let (retry, now) = (self.exchange.retry(turn), turn.now);
        let State::Leaving(leaving) = &mut self.state else {
            return;
        };
        let exchange = &mut self.exchange;
        if let Some(end) = leaving.reply(call, outcome, exchange, retry, now) {
            self.end(end, turn);
        }
    }

    fn conclude(&mut self, verdict: Consequence, turn: &mut LockTurn<'_>) {
        let (exchange, now) = (&mut self.exchange, turn.now);
        match verdict {
            Consequence::Unchanged => {}
            Consequence::NoDocument => {
                if let Some(joining) = self.state.joining() {
                    joining.next(Next::Create, now);
                }
            }
            Consequence::Absent(proof) => {
                let joining = self.state.joining();
                if let Some(end) = joining.and_then(|it| it.absent(proof, exchange, turn)) {
                    self.finish(end, turn);
                }
            }
            Consequence::Placed(call, place, grant) => {
                if !grant.is_some_and(|grant| self.hold_by(grant, turn)) {
                    self.take_place(call, place, turn);
                }
            }
            Consequence::Acquired { holding, news } => {
                self.begin(holding, turn);
                if news {
                    self.exchange.evict_as_holder(turn);
                }
            }
            Consequence::PlaceLost => {
                turn.effects.notice(LockNotice::PlaceLost);
                self.join_anew(now, turn);
            }
            // Sends no leave, because the other process may hold the lock with this entry.
            Consequence::Duplicated => {
                let session = exchange.session;
                turn.effects.notice(LockNotice::Duplicate { session });
                exchange.session = Session::random(turn.random);
                self.join_anew(now, turn);
            }
            Consequence::RolledBack(found) => {
                let (seen, wait) = exchange.view.roll_back(found, now);
                let notice = LockNotice::StoreRolledBack { seen, found, wait };
                turn.effects.notice(notice);
                self.join_anew(now + wait, turn);
            }
            Consequence::Finished(end) => self.finish(end, turn),
            #[cfg(proof)]
            Consequence::JoinedAnew => self.join_anew(now, turn),
        }
    }

    fn advance(&mut self, turn: &mut LockTurn<'_>) -> Option<BootTime> {
        let exchange = &mut self.exchange;
        match &mut self.state {
            State::Joining(joining) => joining.advance(exchange, turn),
            State::Waiting(waiting) => waiting.advance(exchange, turn),
            State::Holding(holding) => holding.advance(exchange, turn),
            State::Leaving(leaving) => match leaving.advance(exchange, turn) {
                Ok(next) => next,
                Err(end) => {
                    self.end(end, turn);
                    None
                }
            },
            State::Lost(_) | State::Ended(_) => None,
        }
    }

    fn join_anew(&mut self, at: BootTime, turn: &mut LockTurn<'_>) {
        self.exchange.claim_anew(turn);
        let joining = Joining::at(at, &mut self.exchange, turn);
        self.enter(State::Joining(joining), turn.now);
    }

    fn take_place(&mut self, call: CallId, place: WaitingPlace, turn: &mut LockTurn<'_>) {
        let exchange = &mut self.exchange;
        let renew_due = renewal_after(exchange, turn);
        let overlooked = !place.granted && exchange.view.is_overlooked(exchange.writes.claim);
        if let State::Waiting(waiting) = &mut self.state {
            waiting.move_to(place, overlooked);
        } else if exchange.options.non_blocking && !place.granted {
            let busy = exchange.busy();
            return self.finish(busy, turn);
        } else {
            // A granted entry that only has to declare its minimum hold needs no stream.
            let declares = place.granted && exchange.options.min_hold != MinHold::NONE;
            if !exchange.stream.requested && !declares {
                exchange.follow(turn);
            }
            let waiting = Waiting::at(place, overlooked, renew_due);
            self.enter(State::Waiting(waiting), turn.now);
        }
        if let State::Waiting(waiting) = &self.state {
            waiting.shown_by(call, &mut self.exchange, turn);
        }
    }

    fn hold_by(&mut self, grant: Grant, turn: &mut LockTurn<'_>) -> bool {
        if !self.state.contends() {
            return false;
        }
        let holding = Holding::granted(grant, &mut self.exchange, turn);
        holding.map(|holding| self.begin(holding, turn)).is_some()
    }

    fn begin(&mut self, holding: Holding, turn: &mut LockTurn<'_>) {
        let Authority { token, valid_until } = holding.authority;
        turn.effects.push(LockEffect::Acquired {
            token,
            slot: holding.slot,
            valid_until,
            waited: turn.now.since(self.began),
        });
        self.exchange.begin_work(turn.now);
        self.enter(State::Holding(holding), turn.now);
        self.exchange.stop_watching(turn);
    }

    fn expire(&mut self, turn: &mut LockTurn<'_>) {
        let holding = self.state.holding();
        if holding.is_some_and(|holding| holding.authority.valid_until <= turn.now) {
            if planted!(RenewedAfterDeadline) {
                let waiting = Waiting::at(WaitingPlace::GRANTED, false, turn.now);
                self.enter(State::Waiting(waiting), turn.now);
                return self.exchange.reads.read_at(turn.now);
            }
            self.lose(Loss::Deadline, turn);
        }
    }

    /// Ends the claim, because the lock is lost. The leave waits until the work has ended (I6).
    fn lose(&mut self, loss: Loss, turn: &mut LockTurn<'_>) {
        turn.effects.push(LockEffect::Lost(loss));
        self.enter(State::Lost(loss), turn.now);
    }

    fn give_up(&mut self, turn: &mut LockTurn<'_>) {
        match &self.state {
            State::Joining(_) | State::Waiting(_) => self.finish(End::GaveUp, turn),
            State::Holding(_) => self.finish(End::Released, turn),
            State::Lost(Loss::Deadline) => self.finish(End::Lost(Loss::Deadline), turn),
            // Sends no leave, because the entry is gone or a forked VM renews it.
            State::Lost(loss @ (Loss::Rejected | Loss::StoreRolledBack)) => {
                self.end(End::Lost(*loss), turn);
            }
            State::Leaving(_) | State::Ended(_) => {}
        }
    }

    fn release(&mut self, turn: &mut LockTurn<'_>) {
        if matches!(self.state, State::Holding(_) | State::Lost(_)) {
            self.give_up(turn);
        }
    }

    fn finish(&mut self, end: End, turn: &mut LockTurn<'_>) {
        if !self.exchange.writes.may_be_stored() {
            return self.end(end, turn);
        }
        let leaving = Leaving::new(end, &self.exchange, turn);
        self.enter(State::Leaving(leaving), turn.now);
        self.exchange.stop_watching(turn);
    }

    fn end(&mut self, end: End, turn: &mut LockTurn<'_>) {
        self.exchange.stop_watching(turn);
        turn.effects.push(LockEffect::Exit(end.clone()));
        self.enter(State::Ended(end), turn.now);
    }

    fn enter(&mut self, state: State, now: BootTime) {
        self.state = state;
        self.since = now;
    }

    fn check_invariants(&self) {
        self.exchange.check_invariants();
        if let Some(holding) = self.state.holding() {
            let Authority { token, valid_until } = holding.authority;
            assert!(valid_until > self.now, "a lock is held past its deadline");
            let is_known = token <= self.token_highest();
            assert!(is_known, "a lock is held with a token that was never seen");
            let is_present = self.exchange.writes.is_present();
            assert!(is_present, "a lock is held by no entry");
        }
        if let State::Ended(_) = self.state {
            assert!(self.wakeup.is_none(), "an ended contender has a wakeup");
        }
    }
}
