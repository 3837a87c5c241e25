//! Holding the lock: authority, its renewals and its loss.
//!
//! Only an acknowledged write extends authority, counted from before that write was sent (I2).
//! Holders also evict expired entries, because under brisk traffic no contender waits long enough
//! to do it.

use super::{Effect, LockContender, State, Turn, earliest};
use crate::election::{Authority, BootTime, CallId, Timings, Token};
use crate::lock::document::{Found, LockDocument};
use crate::lock::operation::Outcome;
use crate::lock::stake::{Attempt, Kind};
use crate::lock::status::Loss;
use crate::lock::view::Place;

/// Maximum number of unanswered renewals: one, plus a second one after a primary change.
pub(super) const IN_FLIGHT_MAX: usize = 2;

/// A claim with authority.
#[derive(Debug, Clone, Hash)]
pub(super) struct Holding {
    pub(super) token: Token,
    /// The newest acknowledged write. Acknowledgements of earlier writes no longer extend
    /// authority.
    newest: CallId,
    /// When that write was sent.
    renewed_at: BootTime,
    due: BootTime,
    /// Renew as soon as possible, even if another attempt hangs.
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
    /// Starts holding. The write `by`, given as its call and its send time, was acknowledged with
    /// `token`.
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

    /// Handles the reply to a write of the held claim. Replies may be late or out of order.
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
        match outcome {
            Outcome::Applied(_) if call < newest => self.stake.open(call),
            Outcome::Applied(Found::Lock(lock)) => self.held_as_shown(attempt, lock, turn),
            Outcome::Applied(Found::Missing | Found::Foreign(_)) => {
                self.lose(Loss::Rejected, turn.now);
            }
            // The late rejection of a write that a later one overtook proves nothing.
            Outcome::Rejected if attempt.kind == Kind::Renew && self.stake.is_newest(call) => {
                self.lose(Loss::Rejected, turn.now);
            }
            Outcome::Rejected => self.stake.rejected(call),
            Outcome::Failed => {
                self.stake.failed(call);
                self.renew_at(retry_at);
            }
            Outcome::Unknown => {
                self.stake.open(call);
                self.renew_at(retry_at);
            }
        }
    }

    /// Applies the document that a write of this claim left behind. Acknowledgements older than the
    /// newest one do not reach this function.
    fn held_as_shown(&mut self, attempt: Attempt, lock: LockDocument, turn: &mut Turn<'_>) {
        let State::Holding(holding) = &mut self.state else {
            return;
        };
        let Place::Holder(entry) = Place::of(self.stake.claim, &lock) else {
            return self.lose(Loss::Rejected, turn.now);
        };
        if lock.token < holding.token {
            return self.lose(Loss::StoreRolledBack, turn.now);
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

    fn renew_at(&mut self, at: BootTime) {
        if let State::Holding(holding) = &mut self.state {
            holding.due = at;
        }
    }

    /// Ends the claim if its deadline has passed, regardless of the current input.
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

    /// Ends the claim because the lock is lost. The claim is never renewed again, and its leave
    /// waits until nothing runs under it (I6).
    fn lose(&mut self, loss: Loss, now: BootTime) {
        self.effects.push_back(Effect::Lost(loss));
        self.enter(State::Lost(loss), now);
        if planted!(LeaveBeforeWork) {
            self.give_up(now);
        }
    }
}
