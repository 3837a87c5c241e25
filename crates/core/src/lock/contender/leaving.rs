//! Leaving the queue or releasing the lock. The claim is never renewed again. A leave is repeated
//! until its outcome is known. During its minimum hold, this contender only marks the entry
//! (`keep`); other contenders remove the entry after the minimum hold.

use std::time::Duration;

use super::Exchange;
use crate::claim::earliest;
use crate::election::{BootTime, CallId};
use crate::lock::{End, FoundLock, LockOutcome, LockTurn, Loss};

#[derive(Debug, Clone, Hash)]
pub(super) struct Leaving {
    end: End,
    /// Number of calls sent before the first leave. Their replies prove nothing about the entry.
    after: u64,
    awaited: Option<CallId>,
    /// True if an earlier leave may have been applied.
    unanswered: bool,
    due: BootTime,
    /// Instant at which every contender considers the entry expired, so that no leave is needed.
    until: BootTime,
}

impl Leaving {
    pub(super) fn new(end: End, exchange: &Exchange, turn: &LockTurn<'_>) -> Self {
        let options = &exchange.options;
        // Without a leave, other contenders keep the entry for its declared minimum hold.
        let in_vain = exchange.writes.declared && exchange.min_hold_left(turn.now).is_none();
        let taken_for = in_vain.then(|| options.min_hold.get());
        let lease_duration = options.timings.lease_duration();
        Self {
            end,
            after: turn.effects.calls(),
            awaited: None,
            unanswered: false,
            due: turn.now,
            until: turn.now + lease_duration.max(taken_for.unwrap_or_default()),
        }
    }

    pub(super) fn advance(
        &mut self,
        exchange: &mut Exchange,
        turn: &mut LockTurn<'_>,
    ) -> Result<Option<BootTime>, End> {
        if self.until <= turn.now || !exchange.writes.may_be_stored() {
            return Err(match self.end == End::Released {
                true => End::Unconfirmed,
                false => self.end.clone(),
            });
        }
        // If a leave overtook the join, the late join would add an entry without an owner.
        if self.awaited.is_some() || exchange.writes.is_joining() {
            return Ok(Some(self.until));
        }
        if self.due > turn.now {
            return Ok(earliest([Some(self.due), Some(self.until)]));
        }
        let min_hold_left = exchange.min_hold_left(turn.now);
        self.awaited = Some(match min_hold_left.filter(|rest| *rest > Duration::ZERO) {
            Some(rest) => exchange.keep(rest, turn),
            None => exchange.leave(turn),
        });
        Ok(Some(self.until))
    }

    pub(super) fn again(&mut self, now: BootTime) {
        self.unanswered |= self.awaited.take().is_some();
        self.due = now;
    }

    pub(super) fn reply(
        &mut self,
        call: CallId,
        outcome: LockOutcome,
        exchange: &mut Exchange,
        retry: BootTime,
        now: BootTime,
    ) -> Option<End> {
        if call.0 <= self.after {
            return None;
        }
        match outcome {
            LockOutcome::Applied(found) => {
                if let (FoundLock::Lock(lock), true) = (found, exchange.view.is_news(call)) {
                    // The next contender on this machine can then recognize the kept entry.
                    exchange.view.observations.note(&lock, None, now);
                }
                Some(self.end.clone())
            }
            LockOutcome::Rejected => Some(self.end_without_entry(exchange.success().is_some())),
            LockOutcome::PrimaryOnly | LockOutcome::Failed | LockOutcome::Unknown => {
                if self.awaited.take_if(|awaited| *awaited == call).is_some() {
                    self.unanswered |= outcome != LockOutcome::Failed;
                    self.due = retry;
                }
                None
            }
        }
    }

    fn end_without_entry(&self, records_success: bool) -> End {
        if self.end != End::Released {
            return self.end.clone();
        }
        match (self.unanswered, records_success) {
            // Another contender or an operator has removed the entry.
            (false, _) => End::Lost(Loss::Rejected),
            // Another contender, or an earlier leave that recorded the success, removed the entry.
            (true, true) => End::Unconfirmed,
            (true, false) => End::Released,
        }
    }
}
