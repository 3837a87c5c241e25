//! Holding the lock: authority, its renewals and its loss.
//!
//! Only an acknowledged write extends authority, counted from before that write was sent (I2). A
//! grant by another contender gives some provisional authority before that, see `grant.rs`.
//! Holders also evict expired entries, because under brisk traffic no contender waits long enough
//! to do it.

use std::time::Duration;

use super::{Effect, LockContender, State};
use crate::claim::{IN_FLIGHT_MAX, Turn, earliest};
use crate::election::{Authority, BootTime, CallId, Token};
use crate::lock::claim_writes::{SentWrite, WritePurpose};
use crate::lock::document::{Found, LockDocument};
use crate::lock::grant::{CONFIRM_AFTER, Grant, confirm_at, provisional_until, remaining_min};
use crate::lock::input::AtLeast;
use crate::lock::operation::Outcome;
use crate::lock::status::Loss;
use crate::lock::view::Place;

/// A claim with authority.
#[derive(Debug, Clone, Hash)]
pub(super) struct Holding {
    pub(super) token: Token,
    pub(super) slot: Option<u32>,
    valid_until: BootTime,
    /// True until a write is acknowledged that confirms the grant.
    pub(super) provisional: bool,
    /// The newest acknowledged write. Acknowledgements of earlier writes no longer extend
    /// authority.
    newest: CallId,
    /// Number of calls sent before the lock was acquired. The store may have performed these calls
    /// before the grant, whatever the order of sending and answers.
    sent_before: u64,
    due: BootTime,
    /// Renew as soon as possible, even if another attempt hangs.
    pub(super) hurry: bool,
}

impl Holding {
    pub(super) fn authority(&self) -> Authority {
        Authority {
            token: self.token,
            valid_until: self.valid_until,
        }
    }
}

impl LockContender {
    /// Starts holding. The write `by`, given as its call and its send time, was acknowledged with
    /// the token and the slot of `given`.
    pub(super) fn acquired(
        &mut self,
        given: (Token, Option<u32>),
        by: (CallId, BootTime),
        now: BootTime,
    ) {
        let timings = self.options.timings;
        let ((token, slot), (newest, sent)) = (given, by);
        let holding = Holding {
            token,
            slot,
            valid_until: sent + timings.renew_deadline(),
            provisional: false,
            newest,
            sent_before: self.outbox.calls(),
            due: sent + timings.renew_interval(),
            hurry: false,
        };
        self.holds(holding, now);
    }

    /// Handles a grant that the stream reports, or that an older version does not report in full.
    pub(super) fn granted(&mut self, grant: Option<Grant>, now: BootTime) {
        if !grant.is_some_and(|grant| self.holds_by(grant, now)) {
            self.hinted = Some(self.outbox.calls());
        }
    }

    /// Starts holding by a grant, provisionally, if that leaves enough time. Returns false if the
    /// grant must be confirmed first.
    pub(super) fn holds_by(&mut self, grant: Grant, now: BootTime) -> bool {
        let timings = self.options.timings;
        let contends = matches!(self.state, State::Joining(_) | State::Waiting(_));
        let sent = match planted!(GrantFromEvent) {
            true => Some(now),
            false => self.writes.sent_at(grant.revision),
        };
        // An event does not show the successes, and the grant declares no minimum hold.
        let shown = self.options.once_per.is_none() || planted!(GrantWithoutSuccesses);
        let declared = self.options.at_least == AtLeast::NONE;
        let usable = grant.token > self.view.token_floor && self.has_slot(grant.slot);
        let usable = usable && shown && declared;
        let Some(sent) = sent.filter(|_| contends && usable) else {
            return false;
        };
        let valid_until = match planted!(NeverConfirmed) {
            true => sent + timings.renew_deadline(),
            false => provisional_until(sent, &timings),
        };
        if valid_until < now + remaining_min(&timings) {
            return false;
        }
        self.writes.seen_present(self.outbox.calls());
        self.view.token_highest = self.view.token_highest.max(grant.token);
        let holding = Holding {
            token: grant.token,
            slot: grant.slot,
            valid_until,
            provisional: true,
            newest: CallId(0),
            sent_before: self.outbox.calls(),
            due: confirm_at(valid_until, now),
            hurry: false,
        };
        self.holds(holding, now);
        true
    }

    /// Returns true unless the lock has slots and an older version granted without a slot.
    pub(super) fn has_slot(&self, slot: Option<u32>) -> bool {
        self.options.want.slots() == 0 || slot.is_some()
    }

    fn holds(&mut self, holding: Holding, now: BootTime) {
        self.outbox.push(Effect::Acquired {
            token: holding.token,
            slot: holding.slot,
            valid_until: holding.valid_until,
            waited: now.since(self.began),
        });
        let at_least = self.options.at_least.get();
        self.keeps_until = (at_least > Duration::ZERO).then(|| now + at_least);
        self.enter(State::Holding(holding), now);
        self.read_nothing();
        self.unwatch();
    }

    pub(super) fn hold(&mut self, turn: &mut Turn<'_>) -> Option<BootTime> {
        let in_flight = self.writes.in_flight();
        let State::Holding(holding) = &mut self.state else {
            return None;
        };
        // A confirmation does not wait for a write that was sent before the grant.
        let free = in_flight == 0 || (holding.provisional && in_flight < IN_FLIGHT_MAX);
        let next = if holding.hurry && in_flight < IN_FLIGHT_MAX {
            Some(turn.now)
        } else {
            free.then_some(holding.due)
        };
        let valid_until = holding.valid_until;
        if next.is_some_and(|due| due <= turn.now) {
            holding.due = match holding.provisional {
                true => turn.now + CONFIRM_AFTER,
                false => turn.now + self.options.timings.renew_interval(),
            };
            holding.hurry = false;
            self.renew(turn);
            return Some(valid_until);
        }
        earliest([Some(valid_until), next])
    }

    /// Handles the reply to a write of the held claim. Replies may be late or out of order.
    pub(super) fn holding_reply(
        &mut self,
        write: SentWrite,
        outcome: Outcome,
        turn: &mut Turn<'_>,
    ) {
        let retry_at = turn.now + turn.jittered(self.options.timings.retry_interval());
        let call = write.call;
        let State::Holding(Holding {
            newest,
            provisional,
            ..
        }) = self.state
        else {
            return;
        };
        let retry_at = match provisional {
            true => turn.now + CONFIRM_AFTER,
            false => retry_at,
        };
        match outcome {
            Outcome::Applied(_) if call < newest => self.writes.open(call),
            Outcome::Applied(Found::Lock(lock)) => self.held_as_shown(write, lock, turn),
            Outcome::Applied(Found::Missing | Found::Foreign(_)) => {
                self.lose(Loss::Rejected, turn.now);
            }
            // The late rejection of a write that a later one overtook proves nothing.
            Outcome::Rejected
                if write.purpose == WritePurpose::Renew && self.writes.is_newest(call) =>
            {
                self.lose(Loss::Rejected, turn.now);
            }
            Outcome::Rejected => self.writes.record(call, &Outcome::Rejected),
            Outcome::Failed => {
                self.writes.failed(call);
                self.renew_at(retry_at);
            }
            Outcome::Unknown => {
                self.writes.open(call);
                self.renew_at(retry_at);
            }
        }
    }

    /// Applies the document that a write of this claim left behind. Acknowledgements older than the
    /// newest one do not reach this function.
    fn held_as_shown(&mut self, write: SentWrite, lock: LockDocument, turn: &mut Turn<'_>) {
        let State::Holding(holding) = &mut self.state else {
            return;
        };
        let place = Place::of(self.writes.claim(), &lock);
        let is_held = place
            .entry()
            .is_some_and(|e| e.token == Some(holding.token));
        if write.call.0 <= holding.sent_before && !is_held {
            return self.writes.open(write.call);
        }
        let Place::Holder(entry) = place else {
            return self.lose(Loss::Rejected, turn.now);
        };
        if lock.token < holding.token {
            return self.lose(Loss::StoreRolledBack, turn.now);
        }
        if entry.token != Some(holding.token) || entry.slot != holding.slot {
            return self.lose(Loss::Rejected, turn.now);
        }
        if entry.revision == write.revision {
            let from = if planted!(RenewalFromReply) {
                turn.now
            } else {
                write.sent
            };
            let timings = self.options.timings;
            let valid_until = from + timings.renew_deadline();
            holding.valid_until = holding.valid_until.max(valid_until);
            holding.newest = write.call;
            if std::mem::replace(&mut holding.provisional, false) {
                holding.due = write.sent + timings.renew_interval();
            }
        }
        self.writes.open(write.call);
        if self.view.is_news(write.call) {
            self.take(write.call, lock, turn);
            self.sweep_as_holder(turn);
        }
    }

    fn renew_at(&mut self, at: BootTime) {
        if let State::Holding(holding) = &mut self.state {
            holding.due = at;
        }
    }

    /// Ends the claim if its deadline has passed, regardless of the current input.
    pub(super) fn expire(&mut self, turn: &Turn<'_>) {
        if let State::Holding(holding) = &self.state
            && holding.valid_until <= turn.now
        {
            if planted!(RenewedAfterDeadline) {
                return self.wait_again(turn.now);
            }
            self.lose(Loss::Deadline, turn.now);
        }
    }

    /// Ends the claim because the lock is lost. The claim is never renewed again, and its leave
    /// waits until nothing runs under it (I6).
    fn lose(&mut self, loss: Loss, now: BootTime) {
        self.outbox.push(Effect::Lost(loss));
        self.enter(State::Lost(loss), now);
        if planted!(LeaveBeforeWork) {
            self.give_up(now);
        }
    }
}
