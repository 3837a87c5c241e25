//! Reading the document: when to read, which replies to trust, and how to apply a document.
//!
//! Nothing here writes. A reply is not trusted if it shows that this contender's own entry is gone
//! or was changed by another process, or that the document is older than before. A write or a
//! linearizable read must confirm it, because a deposed primary still answers majority reads.

use std::time::Duration;

use super::{Effect, LockContender, Notice, State};
use crate::claim::Turn;
use crate::election::{BootTime, CallId, Claim, Session, Token};
use crate::lock::claim_writes::{ClaimWrites, SentWrite, WritePurpose};
use crate::lock::document::{Found, LockDocument};
use crate::lock::input::AtLeast;
use crate::lock::operation::{Operation, Outcome};
use crate::lock::status::End;
use crate::lock::view::Place;

/// A read in flight.
#[derive(Debug, Clone, Copy, Hash)]
pub(super) struct Reading {
    pub(super) call: CallId,
    confirm: bool,
    /// Token that the document was known to have when the read was sent.
    token_known: Token,
}

/// Guarantee on how current a shown document is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Proof {
    /// A majority read. The document may be older than what is known.
    Plain,
    /// A linearizable read or an acknowledged write.
    Newest,
}

impl Proof {
    /// Returns true if an entry that the document does not show is gone.
    fn is_trusted(self) -> bool {
        match self {
            Self::Newest => true,
            Self::Plain => planted!(PlainReadProvesAbsence),
        }
    }
}

impl LockContender {
    pub(super) fn read_soon(&mut self, at: BootTime) {
        self.read_due = Some(self.read_due.map_or(at, |due| due.min(at)));
    }

    /// Discards the read in flight and schedules another one immediately, because the answer may
    /// predate the latest change.
    pub(super) fn read_again(&mut self, now: BootTime) {
        self.reading = None;
        self.read_due = Some(now);
    }

    /// Blocks writes until a read that is sent from now on is answered. The read is due at `at`.
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

    /// Returns when the next read is due, or `None` if none is planned or one is in flight.
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

    /// Handles the reply to the current read.
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
        // Documents seen after the read was sent may be newer than its answer.
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

    /// Handles the reply to a read that another one replaced. A document that shows the own entry
    /// is applied; any other document is only recorded, and only if it is new.
    pub(super) fn late_read(&mut self, outcome: Outcome, call: CallId, turn: &mut Turn<'_>) {
        let Outcome::Applied(Found::Lock(lock)) = outcome else {
            return;
        };
        if Place::of(self.writes.claim(), &lock) != Place::Absent {
            self.shown(call, lock, Proof::Plain, turn);
        } else if !self.writes.is_present()
            && self.view.is_news(call)
            && lock.token >= self.view.token
        {
            self.take(call, lock, turn);
        }
    }

    /// Calls `act` if the finding is confirmed, and otherwise requests a linearizable read.
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

    /// Handles the reply to a write of the claim, possibly late.
    pub(super) fn attempt_reply(
        &mut self,
        write: SentWrite,
        outcome: Outcome,
        turn: &mut Turn<'_>,
    ) {
        match self.state {
            State::Joining(_) | State::Waiting(_) => self.contending_reply(write, outcome, turn),
            State::Holding(_) => self.holding_reply(write, outcome, turn),
            // The claim is over, so the outcomes of its writes are only recorded.
            State::Lost(_) | State::Leaving(_) | State::Ended(_) => {
                self.writes.record(write.call, &outcome);
                if let WritePurpose::Keep = write.purpose {
                    self.leave_reply(write.call, outcome, turn);
                }
            }
        }
    }

    fn contending_reply(&mut self, write: SentWrite, outcome: Outcome, turn: &mut Turn<'_>) {
        let call = write.call;
        #[cfg(proof)]
        if planted!(AnchorAtReply) {
            self.writes.sent_again(call, turn.now);
        }
        match outcome {
            Outcome::Applied(Found::Lock(lock)) => {
                self.written(write, lock, turn);
            }
            Outcome::Applied(Found::Missing | Found::Foreign(_)) => {
                self.writes.open(call);
                self.fall_behind(turn.now);
            }
            Outcome::Rejected => {
                let newest = self.writes.is_newest(call);
                self.writes.record(call, &Outcome::Rejected);
                match write.purpose {
                    WritePurpose::Join => self.join_refused(turn.now),
                    WritePurpose::Evict | WritePurpose::Keep => self.fall_behind(turn.now),
                    // A later renewal may have overtaken this one, and its reply will decide.
                    WritePurpose::Renew if planted!(RejectionRepeated) => self.retry_later(turn),
                    WritePurpose::Renew if !newest => {}
                    WritePurpose::Renew => {
                        self.suspicious = true;
                        self.hinted = None;
                        self.fall_behind(turn.now);
                    }
                }
            }
            Outcome::Failed => {
                self.writes.failed(call);
                self.retry_later(turn);
            }
            Outcome::Unknown => {
                if planted!(UnknownAsFailed) {
                    self.writes.failed(call);
                }
                if planted!(JoinedAnew) && write.purpose == WritePurpose::Join {
                    return self.join_anew(turn.now, turn);
                }
                if planted!(UnknownGrants) {
                    let token = self.view.token_highest;
                    self.writes.seen_present(self.outbox.calls());
                    return self.acquired((token, Some(0)), (call, write.sent), turn.now);
                }
                self.writes.open(call);
                self.retry_later(turn);
                if write.purpose == WritePurpose::Join {
                    self.join_unanswered();
                }
            }
        }
    }

    /// Delays the next write of a contender without authority.
    pub(super) fn pause_writes(&mut self, turn: &mut Turn<'_>) {
        self.retry_at = turn.now + turn.jittered(self.options.timings.retry_interval());
    }

    fn retry_later(&mut self, turn: &mut Turn<'_>) {
        self.pause_writes(turn);
        if let State::Waiting(waiting) = &mut self.state {
            waiting.renew_due = turn.now;
        }
    }

    /// Applies the document left behind by an acknowledged write of the claim.
    fn written(&mut self, write: SentWrite, lock: LockDocument, turn: &mut Turn<'_>) {
        let call = write.call;
        let timings = self.options.timings;
        let place = Place::of(self.writes.claim(), &lock);
        // The own entry, only if it has the revision that this very write carried.
        let own = place.entry().filter(|e| e.revision == write.revision);
        let sent = write.sent;
        let slot = own.and_then(|entry| entry.slot);
        let has_slot = self.has_slot(slot);
        let done_ago = self.done_ago(&lock);
        let declared = self.options.at_least == AtLeast::NONE
            || own.is_some_and(|entry| entry.at_least > Duration::ZERO)
            || planted!(LeastTimeUndeclared);
        match (place, own.map(|entry| entry.token)) {
            // The document's token was lowered since, so this token would be issued again.
            (Place::Holder(_), Some(Some(token))) if token > lock.token => {
                self.writes.open(call);
                self.view.token = self.view.token.max(token);
                self.went_back(Some(lock.token), turn);
            }
            (Place::Holder(_), Some(Some(token)))
                if has_slot && declared && sent + timings.renew_deadline() > turn.now =>
            {
                self.writes.seen_present(self.outbox.calls());
                self.writes.open(call);
                let is_news = self.view.is_news(call);
                if is_news {
                    self.take(call, lock, turn);
                }
                if let Some(ago) = done_ago {
                    return self.finish(End::Skipped { ago }, turn.now);
                }
                self.acquired((token, slot), (call, sent), turn.now);
                // A late reply may show later revisions than the ones observed.
                if is_news {
                    self.sweep_as_holder(turn);
                }
            }
            (Place::Holder(_), Some(None)) => {
                self.writes.seen_present(self.outbox.calls());
                self.writes.open(call);
                self.notice(Notice::TokensExhausted);
                self.finish(End::TokensExhausted, turn.now);
            }
            (_, own) => {
                self.writes.open(call);
                if own.is_some() {
                    self.writes.seen_present(self.outbox.calls());
                    if !self.view.is_news(call) {
                        // A document of a newer call is known already, so only a read can show the
                        // current place.
                        return self.fall_behind(turn.now);
                    }
                    if !has_slot && !planted!(ConfirmedWithoutPause) {
                        // Confirmed, but no slot is free: an edit, or an older version.
                        self.pause_writes(turn);
                    }
                }
                let lacks_slot = own.is_some() && !has_slot;
                self.shown(call, lock, Proof::Newest, turn);
                if let State::Waiting(waiting) = &mut self.state {
                    waiting.lacks_slot |= lacks_slot && waiting.granted;
                }
            }
        }
    }

    /// Applies the document in the reply to `call`, unless a newer call has shown one.
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
        let place = Place::of(self.writes.claim(), &lock);
        match place.entry() {
            None if self.writes.proves_absent(call) && proof.is_trusted() => {
                self.take(call, lock, turn);
                return self.place_lost(turn);
            }
            None if self.writes.proves_absent(call) => {
                self.suspicious = true;
                return self.fall_behind(turn.now);
            }
            // The call was sent before the claim was known to be in the document.
            None if self.writes.is_present() => return self.read_again(turn.now),
            Some(entry) if proof == Proof::Newest && !self.writes.sent(entry.revision) => {
                self.take(call, lock, turn);
                return self.duplicated(turn);
            }
            Some(_) => self.writes.seen_present(self.outbox.calls()),
            None => {}
        }
        let (placed, grant) = match place {
            Place::Absent => (None, None),
            Place::Queue(position, _) => (Some((position, false)), None),
            Place::Holder(entry) => (Some((0, true)), entry.unconfirmed_grant()),
        };
        let done_ago = self.done_ago(&lock);
        self.take(call, lock, turn);
        // A success that was recorded stays true, however old the reply.
        if let Some(ago) = done_ago {
            return self.finish(End::Skipped { ago }, turn.now);
        }
        if grant.is_some_and(|grant| self.holds_by(grant, turn.now)) {
            return;
        }
        match placed {
            Some((position, granted)) => self.placed(call, position, granted, turn),
            None => self.decide_join(proof, turn),
        }
    }

    /// Returns how long ago the work succeeded, if that is too short to do it again.
    fn done_ago(&self, lock: &LockDocument) -> Option<Duration> {
        self.options.once_per.as_ref()?.done_ago(lock)
    }

    pub(super) fn take(&mut self, call: CallId, lock: LockDocument, turn: &Turn<'_>) {
        let absurd = self.view.take(call, lock, self.writes.claim(), turn.now);
        for (identity, millis) in absurd {
            self.notice(Notice::InvalidLeaseDuration { identity, millis });
        }
    }

    /// Joins at the tail with a new claim, because the entry was evicted.
    fn place_lost(&mut self, turn: &mut Turn<'_>) {
        self.notice(Notice::PlaceLost);
        self.join_anew(turn.now, turn);
    }

    /// Abandons the entry to another process that renews it. A leave would remove the entry while
    /// that process holds the lock.
    fn duplicated(&mut self, turn: &mut Turn<'_>) {
        // After many unanswered sent, the revision may be a forgotten one of this contender.
        if self.writes.has_forgotten() {
            return self.place_lost(turn);
        }
        let session = self.session;
        self.notice(Notice::Duplicate { session });
        self.session = Session::random(turn.random);
        self.join_anew(turn.now, turn);
    }

    fn went_back(&mut self, found: Option<Token>, turn: &mut Turn<'_>) {
        let (seen, wait) = (self.view.token, self.view.lease_longest);
        self.notice(Notice::StoreRolledBack { seen, found, wait });
        self.view.went_back(found);
        self.join_anew(turn.now + wait, turn);
    }

    /// Joins with a new claim, not before `at`.
    fn join_anew(&mut self, at: BootTime, turn: &mut Turn<'_>) {
        let fresh = Claim::random(turn.random);
        let claim = if planted!(ClaimReused) {
            self.writes.claim()
        } else {
            fresh
        };
        self.writes = ClaimWrites::new(claim);
        self.declared = false;
        self.view.claims_anew();
        self.abandon_sweep();
        self.read_nothing();
        // The stream follows the previous claim.
        self.unwatch();
        self.enter(State::Joining(super::Joining::at(at)), turn.now);
        self.watch_first(turn.now);
    }

    pub(super) fn follow(&mut self) {
        self.watching = true;
        self.watch_open = false;
        let claim = Some(self.writes.claim());
        self.outbox.push(Effect::Watch(claim));
    }

    pub(super) fn unwatch(&mut self) {
        self.watch_open = false;
        if std::mem::replace(&mut self.watching, false) {
            self.outbox.push(Effect::Watch(None));
        }
    }
}
