//! Holding the lock. An acknowledged write extends authority, counted from just before the write
//! was sent (I2). Until the first acknowledged write, a grant gives provisional authority (see
//! `grant.rs`).

use super::Exchange;
use crate::claim::{IN_FLIGHT_MAX, WriteState, earliest};
use crate::election::{Authority, BootTime, CallId, Timings, Token};
use crate::lock::claim_writes::{SentWrite, WritePurpose};
use crate::lock::grant::{CONFIRM_AFTER, Grant, confirm_at, provisional_until, remaining_min};
use crate::lock::view::EntryPlace;
use crate::lock::{FoundLock, LockDocument, LockOutcome, LockTurn, Loss};

#[derive(Debug, Clone, Hash)]
pub(super) struct Holding {
    pub(super) authority: Authority,
    pub(super) slot: Option<u32>,
    pub(super) provisional: bool,
    /// The newest acknowledged write. Earlier writes no longer extend authority.
    newest: CallId,
    /// Number of calls sent before the acquisition. Replies to these calls may predate the grant.
    sent_before: u64,
    due: BootTime,
    /// True if the next renewal must be sent at once, even while another write is unanswered.
    pub(super) hurry: bool,
}

impl Holding {
    /// Returns the state of a holder with this token and slot. `write` acquired the lock, and
    /// `calls` calls had been sent before the acquisition.
    pub(super) fn acquired(
        (token, slot): (Token, Option<u32>),
        write: &SentWrite,
        calls: u64,
        timings: &Timings,
    ) -> Self {
        let valid_until = write.sent + timings.renew_deadline();
        Self {
            authority: Authority { token, valid_until },
            slot,
            provisional: false,
            newest: write.call,
            sent_before: calls,
            due: write.sent + timings.renew_interval(),
            hurry: false,
        }
    }

    pub(super) fn granted(
        grant: Grant,
        exchange: &mut Exchange,
        turn: &mut LockTurn<'_>,
    ) -> Option<Self> {
        let now = turn.now;
        let timings = &exchange.options.timings;
        let sent = planted!(
            GrantFromEvent,
            now,
            exchange.writes.sent_at(grant.revision)?
        );
        let (whole, provisional) = (timings.renew_deadline(), provisional_until(sent, timings));
        let valid_until = planted!(NeverConfirmed, sent + whole, provisional);
        let in_time = valid_until >= now + remaining_min(timings);
        let usable = exchange.view.is_unused(grant.token) && exchange.options.may_hold_by(&grant);
        if !in_time || !usable {
            return None;
        }
        let calls = turn.effects.calls();
        exchange.writes.seen_present(calls);
        exchange.view.marks.note_used(grant.token);
        let token = grant.token;
        Some(Self {
            authority: Authority { token, valid_until },
            slot: grant.slot,
            provisional: true,
            newest: CallId(0),
            sent_before: calls,
            due: confirm_at(valid_until, now),
            hurry: false,
        })
    }

    pub(super) fn advance(
        &mut self,
        exchange: &mut Exchange,
        turn: &mut LockTurn<'_>,
    ) -> Option<BootTime> {
        let in_flight = exchange.writes.sent.in_flight();
        // A confirmation is sent even if a write from before the grant is unanswered.
        let free = in_flight == 0 || (self.provisional && in_flight < IN_FLIGHT_MAX);
        let next = if self.hurry && in_flight < IN_FLIGHT_MAX {
            Some(turn.now)
        } else {
            free.then_some(self.due)
        };
        if next.is_none_or(|due| due > turn.now) {
            return earliest([Some(self.authority.valid_until), next]);
        }
        let renewal = turn.now + exchange.options.timings.renew_interval();
        self.renew_at(renewal, turn.now);
        self.hurry = false;
        exchange.renew(exchange.min_hold_left(turn.now), turn);
        Some(self.authority.valid_until)
    }

    fn renew_at(&mut self, confirmed: BootTime, now: BootTime) {
        self.due = match self.provisional {
            true => now + CONFIRM_AFTER,
            false => confirmed,
        };
    }

    pub(super) fn reply(
        &mut self,
        write: &SentWrite,
        outcome: LockOutcome,
        exchange: &mut Exchange,
        turn: &mut LockTurn<'_>,
    ) -> Option<Loss> {
        let retry = exchange.retry(turn);
        match outcome {
            // A newer write has already been acknowledged, so this acknowledgement extends nothing.
            LockOutcome::Applied(_) if write.call < self.newest => exchange.writes.open(write.call),
            LockOutcome::Applied(FoundLock::Lock(lock)) => {
                let is_current = match self.acknowledged(write, &lock, exchange, turn.now) {
                    Err(loss) => return Some(loss),
                    Ok(is_current) => is_current,
                };
                exchange.writes.open(write.call);
                if is_current && exchange.view.is_news(write.call) {
                    exchange.take(write.call, lock, turn);
                    exchange.evict_as_holder(turn);
                }
            }
            LockOutcome::Applied(FoundLock::Missing | FoundLock::Foreign(_)) => {
                return Some(Loss::Rejected);
            }
            // Only the newest write proves a loss, because a newer write may have overtaken an
            // older renewal.
            LockOutcome::Rejected
                if write.purpose == WritePurpose::Renew
                    && exchange.writes.sent.is_newest(write.call) =>
            {
                return Some(Loss::Rejected);
            }
            LockOutcome::Rejected => exchange.writes.record(write.call, &outcome),
            LockOutcome::PrimaryOnly | LockOutcome::Failed | LockOutcome::Unknown => {
                exchange.writes.record(write.call, &outcome);
                // The late failure of an abandoned write must not postpone the next renewal.
                if write.purpose == WritePurpose::Renew && write.state == WriteState::Awaited {
                    self.renew_at(retry, turn.now);
                }
            }
        }
        None
    }

    /// Applies the document of a current write. Returns false if the document predates the grant.
    fn acknowledged(
        &mut self,
        write: &SentWrite,
        lock: &LockDocument,
        exchange: &Exchange,
        now: BootTime,
    ) -> Result<bool, Loss> {
        let timings = &exchange.options.timings;
        let place = EntryPlace::of(exchange.writes.claim, lock);
        let token = place.entry().and_then(|entry| entry.token);
        if write.call.0 <= self.sent_before && token != Some(self.authority.token) {
            return Ok(false);
        }
        let EntryPlace::Holder(entry) = place else {
            return Err(Loss::Rejected);
        };
        if lock.token < self.authority.token {
            return Err(Loss::StoreRolledBack);
        }
        if entry.token != Some(self.authority.token) || entry.slot != self.slot {
            return Err(Loss::Rejected);
        }
        if entry.revision == write.revision {
            let from = planted!(RenewalFromReply, now, write.sent);
            self.authority.valid_until = self
                .authority
                .valid_until
                .max(from + timings.renew_deadline());
            self.newest = write.call;
            if std::mem::replace(&mut self.provisional, false) {
                self.due = write.sent + timings.renew_interval();
            }
        }
        Ok(true)
    }
}
