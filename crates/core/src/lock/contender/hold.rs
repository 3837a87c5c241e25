//! Holding the lock: authority, its renewals and its loss.
//!
//! Nothing but an acknowledged write extends authority, and it counts from
//! before that write was sent (I2). Holders also evict who has expired: under
//! brisk traffic nobody waits for long enough to do it.

use super::{Effect, LockContender, State, Turn, earliest};
use crate::election::{Authority, BootTime, CallId, Timings, Token};
use crate::lock::document::{Found, LockDocument};
use crate::lock::operation::Outcome;
use crate::lock::stake::{Attempt, Kind};
use crate::lock::status::Loss;
use crate::lock::view::Place;

/// Renewals without an answer at a time: one, and one beside it when the
/// primary changed.
pub(super) const IN_FLIGHT_MAX: usize = 2;

/// A claim with authority.
#[derive(Debug, Clone)]
pub(super) struct Holding {
    pub(super) token: Token,
    /// The last acknowledged write: what was sent before it means nothing any more.
    newest: CallId,
    /// When it was sent.
    renewed_at: BootTime,
    due: BootTime,
    /// Renew as soon as may be, also beside an attempt that hangs.
    pub(super) hurry: bool,
}

impl Holding {
    pub(super) fn authority(&self, timings: &Timings) -> Authority {
        Authority {
            token: self.token,
            valid_until: self.renewed_at + timings.renew_deadline(),
        }
    }
}

impl LockContender {
    /// A write, and when it was sent, is acknowledged with this token.
    pub(super) fn acquired(&mut self, token: Token, by: (CallId, BootTime), now: BootTime) {
        let timings = self.options.timings;
        let (newest, sent) = by;
        let holding = Holding {
            token,
            newest,
            renewed_at: sent,
            due: sent + timings.renew_interval(),
            hurry: false,
        };
        self.effects.push_back(Effect::Acquired {
            token,
            valid_until: holding.authority(&timings).valid_until,
            waited: now.since(self.began),
        });
        self.enter(State::Holding(holding), now);
        self.read_nothing();
        self.unwatch();
    }

    pub(super) fn hold(&mut self, turn: &mut Turn<'_>) -> Option<BootTime> {
        let in_flight = self.stake.in_flight();
        let State::Holding(holding) = &mut self.state else {
            return None;
        };
        let next = if holding.hurry && in_flight < IN_FLIGHT_MAX {
            Some(turn.now)
        } else {
            (in_flight == 0).then_some(holding.due)
        };
        let valid_until = holding.authority(&self.options.timings).valid_until;
        if next.is_some_and(|due| due <= turn.now) {
            holding.due = turn.now + self.options.timings.renew_interval();
            holding.hurry = false;
            self.renew(turn);
            return Some(valid_until);
        }
        earliest([Some(valid_until), next])
    }

    /// A write of the claim that holds came back, maybe late or out of order.
    pub(super) fn holding_reply(
        &mut self,
        attempt: Attempt,
        outcome: Outcome,
        turn: &mut Turn<'_>,
    ) {
        let retry_at = turn.now + turn.jittered(self.options.timings.retry_interval());
        let call = attempt.call;
        let State::Holding(Holding { newest, .. }) = self.state else {
            return;
        };
        match &outcome {
            Outcome::Applied(Found::Lock(lock)) => self.swept(call, lock, turn.now),
            Outcome::Rejected => self.sweep_refused(call),
            Outcome::Applied(_) | Outcome::Failed | Outcome::Unknown => {
                self.sweep_over(call);
            }
        }
        match outcome {
            Outcome::Applied(_) if call < newest => self.stake.open(call),
            Outcome::Applied(Found::Lock(lock)) => self.held_as_shown(attempt, lock, turn),
            Outcome::Applied(Found::Missing | Found::Foreign(_)) => {
                self.lose(Loss::Rejected, turn.now);
            }
            // The late rejection of a write that a later one overtook means nothing.
            Outcome::Rejected
                if attempt.kind == Kind::Renew
                    && (self.stake.is_newest(call) || planted!(OvertakenRejectionObeyed)) =>
            {
                self.lose(Loss::Rejected, turn.now);
            }
            Outcome::Rejected => self.stake.rejected(call),
            Outcome::Failed => {
                self.stake.failed(call);
                self.renew_at(retry_at);
            }
            Outcome::Unknown => {
                self.stake.open(call);
                if let (true, State::Holding(holding)) = (planted!(UnknownExtends), &mut self.state)
                {
                    holding.renewed_at = attempt.sent;
                }
                self.renew_at(retry_at);
            }
        }
    }

    /// What a write of this claim, sent after the one that gave it authority,
    /// left in the document.
    fn held_as_shown(&mut self, attempt: Attempt, lock: LockDocument, turn: &mut Turn<'_>) {
        let State::Holding(holding) = &mut self.state else {
            return;
        };
        let Place::Holder(entry) = Place::of(self.stake.claim, &lock) else {
            return self.lose(Loss::Rejected, turn.now);
        };
        if lock.token < holding.token {
            return self.lose(Loss::StoreWentBack, turn.now);
        }
        if entry.token != Some(holding.token) {
            return self.lose(Loss::Rejected, turn.now);
        }
        if entry.revision == attempt.revision {
            let from = if planted!(RenewalFromReply) {
                turn.now
            } else {
                attempt.sent
            };
            holding.renewed_at = holding.renewed_at.max(from);
            holding.newest = attempt.call;
        }
        self.stake.open(attempt.call);
        if self.view.is_news(attempt.call) {
            self.take(attempt.call, lock, turn);
            self.sweep_as_holder(turn);
        }
    }

    /// Evicts whom the reply that came just now shows unchanged for too long.
    ///
    /// Not by a timer: of many holders the first one that is answered in time
    /// does it, and the replies to the others show that it was done.
    pub(super) fn sweep_as_holder(&mut self, turn: &mut Turn<'_>) {
        if self.sweeping.is_none() && !planted!(HoldersDoNotSweep) {
            let pairs = self.view.sightings.dead(self.patience(0), turn.now);
            if !pairs.is_empty() {
                // It needs no grant, so the write is none of its claim.
                self.send_sweep(pairs, None);
            }
        }
    }

    /// A call of a holder that was no write of its claim came back.
    pub(super) fn holder_swept(&mut self, call: CallId, outcome: Outcome, turn: &mut Turn<'_>) {
        match outcome {
            Outcome::Applied(Found::Lock(lock)) if self.is_sweeping(call) => {
                self.swept(call, &lock, turn.now);
                if self.view.is_news(call) {
                    self.take(call, lock, turn);
                }
            }
            Outcome::Rejected => self.sweep_refused(call),
            Outcome::Applied(_) | Outcome::Failed | Outcome::Unknown => {
                self.sweep_over(call);
            }
        }
    }

    fn renew_at(&mut self, at: BootTime) {
        if let State::Holding(holding) = &mut self.state {
            holding.due = at;
        }
    }

    /// At its deadline a claim has ended, whatever else is going on.
    pub(super) fn expire(&mut self, turn: &Turn<'_>) {
        if let State::Holding(holding) = &self.state
            && holding.authority(&self.options.timings).valid_until <= turn.now
        {
            if planted!(RenewedAfterDeadline) {
                return self.wait_again(turn.now);
            }
            self.lose(Loss::Deadline, turn.now);
        }
    }

    /// The lock is gone. The claim is ended and never renewed again; its leave
    /// waits until nothing runs under it (I6).
    fn lose(&mut self, loss: Loss, now: BootTime) {
        self.effects.push_back(Effect::Lost(loss));
        self.enter(State::Lost(loss), now);
        if planted!(LeaveBeforeWork) {
            self.give_up(now);
        }
    }
}
