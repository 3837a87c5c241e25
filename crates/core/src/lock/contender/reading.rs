//! Reading the document: when, what is believed, and what any reply shows.
//!
//! Nothing here writes. What a reply claims of this contender's own entry, or
//! of a store that went back, is not believed before a write or a
//! linearizable read says the same: a deposed primary answers majority reads.

use super::{Effect, LockContender, Notice, State, Turn};
use crate::election::{BootTime, CallId, Session, Token};
use crate::lock::document::{Found, LockDocument};
use crate::lock::operation::{Operation, Outcome};
use crate::lock::stake::{Attempt, Kind, Stake};
use crate::lock::status::End;
use crate::lock::view::Place;

/// A read under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading {
    pub(super) call: CallId,
    confirm: bool,
    /// The token that the document was known to have when it was sent.
    token_known: Token,
}

/// How far what a reply shows can be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Proof {
    /// A majority read: it may be older than what is known.
    Plain,
    /// A linearizable read, or an acknowledged write.
    Newest,
}

impl Proof {
    /// Whether an entry that it does not show is gone.
    fn is_believed(self) -> bool {
        match self {
            Self::Newest => true,
            Self::Plain if planted!(OldReplyProvesAbsence) => true,
            Self::Plain => planted!(PlainReadProvesAbsence),
        }
    }
}

impl LockContender {
    pub(super) fn read_soon(&mut self, at: BootTime) {
        self.read_due = Some(self.read_due.map_or(at, |due| due.min(at)));
    }

    /// Something changed: a read under way may have been answered before.
    pub(super) fn read_again(&mut self, now: BootTime) {
        self.reading = None;
        self.read_due = Some(now);
    }

    /// No write before a read that is sent from now on.
    pub(super) fn fall_behind(&mut self, at: BootTime) {
        self.behind = true;
        self.reading = None;
        self.read_due = Some(at);
    }

    pub(super) fn read_nothing(&mut self) {
        self.reading = None;
        self.read_due = None;
        self.suspicious = false;
        self.behind = false;
        self.hinted = None;
    }

    /// When to come back for a read; `None` while one is under way.
    pub(super) fn next_read(&self) -> Option<BootTime> {
        self.read_due.filter(|_| self.reading.is_none())
    }

    pub(super) fn read_if_due(&mut self, turn: &Turn<'_>) {
        if self.next_read().is_some_and(|due| due <= turn.now) {
            let confirm = self.suspicious;
            let call = self.call(Operation::Read { confirm });
            self.reading = Some(Reading {
                call,
                confirm,
                token_known: self.view.token,
            });
            self.read_due = None;
        }
    }

    /// A read came back.
    pub(super) fn read_reply(&mut self, outcome: Outcome, turn: &mut Turn<'_>) {
        let Some(reading) = self.reading.take() else {
            return;
        };
        let found = match outcome {
            Outcome::Applied(found) => found,
            Outcome::Rejected | Outcome::Failed | Outcome::Unknown => {
                let retry = turn.now + turn.jittered(self.options.timings.retry_interval());
                return self.read_soon(retry);
            }
        };
        let proof = if reading.confirm {
            Proof::Newest
        } else {
            Proof::Plain
        };
        // What was seen after the read was sent may be newer than its answer.
        let conclusive = reading.confirm && reading.token_known == self.view.token;
        match found {
            Found::Lock(lock) if lock.token < self.view.token => {
                self.doubt_or(conclusive, turn, |contender, turn| {
                    contender.went_back(Some(lock.token), turn);
                });
            }
            Found::Missing if self.view.exists => {
                self.doubt_or(conclusive, turn, |contender, turn| {
                    contender.went_back(None, turn);
                });
            }
            Found::Foreign(why) => {
                self.doubt_or(reading.confirm, turn, |contender, turn| {
                    contender.finish(End::Foreign { why }, turn.now);
                });
            }
            Found::Missing => {
                self.behind = false;
                self.suspicious = false;
                self.create_next(turn.now);
            }
            Found::Lock(lock) => {
                self.behind = false;
                self.suspicious = false;
                self.shown(reading.call, lock, proof, turn);
            }
        }
    }

    /// A read that another one replaced: what it shows is news all the same,
    /// but nothing is decided by it.
    pub(super) fn late_read(&mut self, outcome: Outcome, call: CallId, turn: &mut Turn<'_>) {
        let Outcome::Applied(Found::Lock(lock)) = outcome else {
            return;
        };
        if Place::of(self.stake.claim, &lock) != Place::Absent {
            self.shown(call, lock, Proof::Plain, turn);
        } else if !self.stake.is_present()
            && self.view.is_news(call)
            && lock.token >= self.view.token
        {
            self.take(call, lock, turn);
        }
    }

    /// Believes what a linearizable read said; else asks for one.
    pub(super) fn doubt_or(
        &mut self,
        believed: bool,
        turn: &mut Turn<'_>,
        act: impl FnOnce(&mut Self, &mut Turn<'_>),
    ) {
        if believed {
            self.suspicious = false;
            act(self, turn);
        } else {
            self.suspicious = true;
            self.fall_behind(turn.now);
        }
    }

    /// A write of the claim came back, maybe late.
    pub(super) fn attempt_reply(
        &mut self,
        attempt: Attempt,
        outcome: Outcome,
        turn: &mut Turn<'_>,
    ) {
        match self.state {
            State::Joining(_) | State::Waiting(_) => self.contending_reply(attempt, outcome, turn),
            State::Holding(_) => self.holding_reply(attempt, outcome, turn),
            // The claim has ended: its writes mean nothing any more.
            State::Lost(_) | State::Leaving(_) | State::Ended(_) => match outcome {
                Outcome::Applied(_) | Outcome::Unknown => self.stake.open(attempt.call),
                Outcome::Rejected => self.stake.rejected(attempt.call),
                Outcome::Failed => self.stake.failed(attempt.call),
            },
        }
    }

    fn contending_reply(&mut self, attempt: Attempt, outcome: Outcome, turn: &mut Turn<'_>) {
        let call = attempt.call;
        match outcome {
            Outcome::Applied(Found::Lock(lock)) => {
                self.swept(call, &lock, turn.now);
                self.written(attempt, lock, turn);
            }
            Outcome::Applied(Found::Missing | Found::Foreign(_)) => {
                self.stake.open(call);
                self.fall_behind(turn.now);
            }
            Outcome::Rejected => {
                let newest = self.stake.is_newest(call);
                self.stake.rejected(call);
                self.sweep_refused(call);
                match attempt.kind {
                    Kind::Join => self.join_refused(turn.now),
                    Kind::Sweep => self.fall_behind(turn.now),
                    // A later renewal may have overtaken it: that one will tell.
                    Kind::Renew if planted!(RejectionRepeated) => self.retry_later(turn),
                    Kind::Renew if !newest => {}
                    Kind::Renew => {
                        self.suspicious = true;
                        self.hinted = None;
                        self.fall_behind(turn.now);
                    }
                }
            }
            Outcome::Failed => {
                self.stake.failed(call);
                self.sweep_over(call);
                self.retry_later(turn);
            }
            Outcome::Unknown => {
                if planted!(UnknownAsFailed) {
                    self.stake.failed(call);
                }
                if planted!(JoinedAnew) && attempt.kind == Kind::Join {
                    return self.join_anew(turn.now, turn);
                }
                if planted!(UnknownGrants) {
                    let token = self.view.token_highest;
                    self.stake.seen_present(self.calls);
                    return self.acquired(token, (call, attempt.sent), turn.now);
                }
                self.stake.open(call);
                self.sweep_over(call);
                self.retry_later(turn);
                if attempt.kind == Kind::Join {
                    self.join_unanswered();
                }
            }
        }
    }

    fn retry_later(&mut self, turn: &mut Turn<'_>) {
        self.retry_at = turn.now + turn.jittered(self.options.timings.retry_interval());
        if let State::Waiting(waiting) = &mut self.state {
            waiting.renew_due = turn.now;
        }
    }

    /// A write of the claim was acknowledged and left this behind.
    fn written(&mut self, attempt: Attempt, lock: LockDocument, turn: &mut Turn<'_>) {
        let call = attempt.call;
        let timings = self.options.timings;
        let place = Place::of(self.stake.claim, &lock);
        // Its own: the revision that this very write carried.
        let own = place.entry().filter(|e| e.revision == attempt.revision);
        let sent = if planted!(AcquisitionFromReply) {
            turn.now
        } else {
            attempt.sent
        };
        match (place, own.map(|entry| entry.token)) {
            // Somebody lowered the token since: it would be given out again.
            (Place::Holder(_), Some(Some(token))) if token > lock.token => {
                self.stake.open(call);
                self.view.token = self.view.token.max(token);
                self.went_back(Some(lock.token), turn);
            }
            (Place::Holder(_), Some(Some(token))) if sent + timings.renew_deadline() > turn.now => {
                self.stake.seen_present(self.calls);
                self.stake.open(call);
                if self.view.is_news(call) {
                    self.take(call, lock, turn);
                }
                self.acquired(token, (call, sent), turn.now);
                self.sweep_as_holder(turn);
            }
            (Place::Holder(_), Some(Some(token))) if planted!(LateReplyGrants) => {
                self.stake.seen_present(self.calls);
                self.acquired(token, (call, turn.now), turn.now);
            }
            (Place::Holder(_), Some(None)) => {
                self.stake.seen_present(self.calls);
                self.stake.open(call);
                self.notice(Notice::TokensExhausted);
                self.finish(End::TokensExhausted, turn.now);
            }
            (_, own) => {
                self.stake.open(call);
                if own.is_some() {
                    self.stake.seen_present(self.calls);
                    if !self.view.is_news(call) {
                        // It landed after what was shown since: where it
                        // stands now, a read tells.
                        return self.fall_behind(turn.now);
                    }
                }
                self.shown(call, lock, Proof::Newest, turn);
            }
        }
    }

    /// Takes what a reply to `call` shows, unless something newer was shown.
    pub(super) fn shown(
        &mut self,
        call: CallId,
        lock: LockDocument,
        proof: Proof,
        turn: &mut Turn<'_>,
    ) {
        if !self.view.is_news(call) {
            return;
        }
        if lock.token < self.view.token {
            self.suspicious = true;
            return self.fall_behind(turn.now);
        }
        let place = Place::of(self.stake.claim, &lock);
        match place.entry() {
            None if self.stake.proves_absent(call) && proof.is_believed() => {
                self.take(call, lock, turn);
                return self.place_lost(turn);
            }
            None if self.stake.proves_absent(call) => {
                self.suspicious = true;
                return self.fall_behind(turn.now);
            }
            // It was asked before the claim was known to be there.
            None if self.stake.is_present() => return self.read_again(turn.now),
            Some(entry) if proof == Proof::Newest && !self.stake.sent(entry.revision) => {
                self.take(call, lock, turn);
                return self.duplicated(turn);
            }
            Some(_) => self.stake.seen_present(self.calls),
            None => {}
        }
        if let Place::Holder(entry) = place {
            let counts = match entry.token {
                None => planted!(GrantCountsAsHeld),
                Some(_) => planted!(FoundCountsAsHeld),
            };
            if counts {
                let token = entry.token.unwrap_or(lock.token);
                return self.acquired(token, (call, turn.now), turn.now);
            }
        }
        let placed = match place {
            Place::Absent => None,
            Place::Queue(position, _) => Some((position, false)),
            Place::Holder(_) => Some((0, true)),
        };
        self.take(call, lock, turn);
        match placed {
            Some((position, granted)) => self.placed(call, position, granted, turn),
            None => self.decide_join(proof, turn),
        }
    }

    pub(super) fn take(&mut self, call: CallId, lock: LockDocument, turn: &Turn<'_>) {
        let absurd = self.view.take(call, lock, self.stake.claim, turn.now);
        for (identity, millis) in absurd {
            self.notice(Notice::AbsurdDuration { identity, millis });
        }
    }

    /// My entry was swept: the claim has ended, and a new one joins at the tail.
    fn place_lost(&mut self, turn: &mut Turn<'_>) {
        self.notice(Notice::PlaceLost);
        self.join_anew(turn.now, turn);
    }

    /// Somebody else renews my entry. It is left to him: a leave would
    /// dethrone him while he holds.
    fn duplicated(&mut self, turn: &mut Turn<'_>) {
        // After many attempts without an answer it may be one of those.
        if self.stake.forgotten {
            return self.place_lost(turn);
        }
        let session = self.session;
        self.notice(Notice::Duplicate { session });
        self.session = Session::random(turn.random);
        self.join_anew(turn.now, turn);
    }

    fn went_back(&mut self, found: Option<Token>, turn: &mut Turn<'_>) {
        let (seen, wait) = (self.view.token, self.view.lease_longest);
        self.notice(Notice::StoreWentBack { seen, found, wait });
        self.view.went_back(found);
        self.join_anew(turn.now + wait, turn);
    }

    /// Joins with a new claim, not before `at`.
    fn join_anew(&mut self, at: BootTime, turn: &mut Turn<'_>) {
        let before = self.stake.claim;
        self.stake = Stake::new(turn.random);
        if planted!(ClaimReused) {
            self.stake.claim = before;
        }
        self.sweeping = None;
        self.read_nothing();
        self.enter(State::Joining(super::Joining::at(at)), turn.now);
        self.watch_first(turn.now);
    }

    pub(super) fn follow(&mut self) {
        self.watching = true;
        self.watch_open = false;
        let claim = Some(self.stake.claim);
        self.effects.push_back(Effect::Watch(claim));
    }

    pub(super) fn unwatch(&mut self) {
        self.watch_open = false;
        if std::mem::replace(&mut self.watching, false) {
            self.effects.push_back(Effect::Watch(None));
        }
    }
}
