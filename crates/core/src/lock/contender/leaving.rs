//! Giving up a place or a lock: the leave, repeated until it is resolved.
//!
//! The claim ends here: it is never renewed again, and its entry is not adopted if found later.
//! If the place must stay taken for a minimum hold, the entry is marked, and others remove it later.

use std::time::Duration;

use super::exchange::Exchange;
use super::work::LockedWork;
use crate::claim::earliest;
use crate::election::{BootTime, CallId};
use crate::lock::document::FoundLock;
use crate::lock::effect::LockTurn;
use crate::lock::operation::LockOutcome;
use crate::lock::status::{End, Loss};

#[derive(Debug, Clone, Hash)]
pub(super) struct Leaving {
    /// End to report when the leave is resolved.
    end: End,
    /// Number of calls sent before the first leave.
    after: u64,
    awaited: Option<CallId>,
    /// True if an earlier leave may have been applied.
    unanswered: bool,
    due: BootTime,
    /// From this instant on every contender considers the entry expired, so the leave is no longer
    /// needed.
    until: BootTime,
}

impl Leaving {
    /// Creates the state of a contender that leaves now, and reports `end` then.
    pub(super) fn new(
        end: End,
        work: &LockedWork,
        exchange: &Exchange,
        turn: &LockTurn<'_>,
    ) -> Self {
        let options = &exchange.options;
        // A minimum hold that was declared and is not to be kept takes the place until a leave is
        // applied.
        let in_vain = exchange.writes.declared && !work.keeps_place();
        let taken_for = match in_vain {
            true => options.min_hold.get(),
            false => Duration::ZERO,
        };
        Self {
            end,
            after: turn.effects.calls(),
            awaited: None,
            unanswered: false,
            due: turn.now,
            until: turn.now + options.timings.lease_duration().max(taken_for),
        }
    }

    /// Sends a leave if it is due, and returns the next wake-up; or the end if no leave is needed
    /// any longer.
    pub(super) fn advance(
        &mut self,
        work: &LockedWork,
        exchange: &mut Exchange,
        turn: &mut LockTurn<'_>,
    ) -> Result<Option<BootTime>, End> {
        if self.until <= turn.now || !exchange.writes.may_be_stored() {
            return Err(match self.end == End::Released {
                true => End::Unconfirmed,
                false => self.end.clone(),
            });
        }
        // A leave that overtakes its own join would leave a ghost entry behind. The wait for the
        // join is short, because a join is answered within `operation_timeout`.
        if self.awaited.is_some() || exchange.writes.is_joining() {
            return Ok(Some(self.until));
        }
        if self.due > turn.now {
            return Ok(earliest([Some(self.due), Some(self.until)]));
        }
        let success = work.success(exchange.options.once_per.as_ref());
        self.awaited = Some(match work.kept_for(turn.now) {
            Some(rest) => exchange.keep(rest, success, turn),
            None => exchange.leave(success, turn),
        });
        Ok(Some(self.until))
    }

    /// Sends another leave to the new primary while the first hangs on the old primary.
    pub(super) fn again(&mut self, now: BootTime) {
        self.unanswered |= self.awaited.take().is_some();
        self.due = now;
    }

    /// Handles the reply to a leave, possibly late. Returns the end if the leave is resolved; the
    /// next leave is due at `retry` otherwise.
    pub(super) fn reply(
        &mut self,
        call: CallId,
        outcome: LockOutcome,
        work: &LockedWork,
        exchange: &mut Exchange,
        retry: BootTime,
        now: BootTime,
    ) -> Option<End> {
        // Replies to calls sent before the first leave prove nothing about the entry.
        if call.0 <= self.after {
            return None;
        }
        match outcome {
            LockOutcome::Applied(found) => {
                if let (FoundLock::Lock(lock), true) = (found, exchange.view.is_news(call)) {
                    // The next contender of this machine recognizes its kept place.
                    exchange.view.observe(&lock, now);
                }
                Some(self.end.clone())
            }
            LockOutcome::Rejected => {
                let success = work.success(exchange.options.once_per.as_ref());
                Some(self.end_without_entry(success.is_some()))
            }
            LockOutcome::Failed | LockOutcome::Unknown => {
                if self.awaited.take_if(|awaited| *awaited == call).is_some() {
                    self.unanswered |= outcome == LockOutcome::Unknown;
                    self.due = retry;
                }
                None
            }
        }
    }

    /// Returns the end of a claim whose leave found no entry of it.
    fn end_without_entry(&self, records_success: bool) -> End {
        if self.end != End::Released {
            return self.end.clone();
        }
        match (self.unanswered, records_success) {
            // Only another contender or an operator can have removed it.
            (false, _) => End::Lost(Loss::Rejected),
            // Another contender has removed it, or the previous leave was applied and recorded the
            // success.
            (true, true) => End::Unconfirmed,
            (true, false) => End::Released,
        }
    }
}
