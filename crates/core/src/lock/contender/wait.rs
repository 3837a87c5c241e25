//! Waiting in the queue: keeping the place, confirming a grant.

use std::time::Duration;

use super::{LockContender, State};
use crate::claim::{IN_FLIGHT_MAX, Turn, earliest};
use crate::election::{BootTime, CallId};
use crate::lock::claim_writes::WritePurpose;
use crate::lock::input::AtLeast;

#[derive(Debug, Clone, Hash)]
pub(super) struct Waiting {
    pub(super) position: usize,
    /// True if the entry is among the holders, without authority, and must be confirmed
    /// immediately.
    pub(super) granted: bool,
    pub(super) renew_due: BootTime,
    /// True if the document leaves a place for the head of the queue, which is this contender.
    overlooked: bool,
    /// True if a confirmation found no free slot, so that another holder must leave or be evicted.
    pub(super) lacks_slot: bool,
    /// Confirm even if another attempt hangs.
    pub(super) hurry: bool,
}

impl LockContender {
    /// Handles a reply to `call` that showed the claim in the document.
    pub(super) fn placed(
        &mut self,
        call: CallId,
        position: usize,
        granted: bool,
        turn: &mut Turn<'_>,
    ) {
        let renew = turn.shortened(self.options.timings.lease_duration() / 3);
        let overlooked = !granted && self.view.is_overlooked(self.writes.claim());
        match &mut self.state {
            State::Joining(_) if self.options.non_blocking && !granted => {
                return self.finish(self.busy(), turn.now);
            }
            State::Joining(_) => {
                let waiting = Waiting {
                    position,
                    granted,
                    renew_due: turn.now + renew,
                    overlooked,
                    lacks_slot: false,
                    hurry: false,
                };
                self.enter(State::Waiting(waiting), turn.now);
                // A place with a least time is usually granted at once, and only to be declared.
                let declares = granted && self.options.at_least != AtLeast::NONE;
                if !self.watching && !declares {
                    self.follow();
                }
            }
            State::Waiting(waiting) => {
                (waiting.position, waiting.granted) = (position, granted);
                waiting.overlooked = overlooked;
            }
            State::Holding(_) | State::Lost(_) | State::Leaving(_) | State::Ended(_) => return,
        }
        // The reply includes everything that the stream reported before the call was sent.
        self.hinted = self.hinted.filter(|calls| !granted && call.0 <= *calls);
        self.read_due = None;
        let at = if self.watch_open && call.0 <= self.opened_after {
            turn.now
        } else {
            turn.now + self.pace(position, turn)
        };
        self.read_soon(at);
    }

    /// Reads as rarely as a stream permits from now on.
    pub(super) fn keep_pace(&mut self, turn: &mut Turn<'_>) {
        if let State::Waiting(waiting) = &self.state
            && self.reading.is_none()
            && !self.behind
        {
            let at = turn.now + self.pace(waiting.position, turn);
            self.read_due = Some(at);
        }
    }

    /// Returns the time until the next read.
    fn pace(&self, position: usize, turn: &mut Turn<'_>) -> Duration {
        let timings = &self.options.timings;
        if !self.watch_open {
            return turn.jittered(timings.retry_interval());
        }
        let places = u32::try_from(position)
            .unwrap_or(u32::MAX)
            .saturating_add(1);
        let pace = timings.operation_timeout().saturating_mul(places);
        turn.shortened(pace.min(timings.lease_duration() / 3))
    }

    /// Returns a claim past its deadline to the waiting state as if it had only been granted. Only
    /// for the planted bug `RenewedAfterDeadline`.
    pub(super) fn wait_again(&mut self, now: BootTime) {
        let waiting = Waiting {
            position: 0,
            granted: true,
            renew_due: now,
            overlooked: false,
            lacks_slot: false,
            hurry: false,
        };
        self.enter(State::Waiting(waiting), now);
        self.read_soon(now);
    }

    /// Handles the stream event that this claim is at the head of the queue.
    pub(super) fn at_the_head(&mut self, turn: &mut Turn<'_>) {
        if let State::Waiting(waiting) = &mut self.state {
            waiting.position = 0;
            let at = turn.now + self.pace(0, turn);
            self.read_soon(at);
        }
    }

    pub(super) fn wait(&mut self, turn: &mut Turn<'_>) -> Option<BootTime> {
        self.write_while_waiting(turn);
        self.read_if_due(turn);
        let State::Waiting(waiting) = &self.state else {
            return None;
        };
        if self.behind || self.writes.in_flight() > 0 || self.sweeping.is_some() {
            return self.next_read();
        }
        let patience = self.patience(waiting.position);
        let write = if waiting.granted || waiting.overlooked || self.hinted.is_some() {
            Some(turn.now)
        } else {
            let death = self.view.observations.next_expiry(patience);
            earliest([Some(waiting.renew_due), death])
        };
        let write = write.map(|at| at.max(self.retry_at));
        earliest([self.next_read(), write])
    }

    fn write_while_waiting(&mut self, turn: &mut Turn<'_>) {
        let renew = turn.shortened(self.options.timings.lease_duration() / 3);
        let in_flight = self.writes.in_flight();
        let hinted = self.hinted.is_some();
        let State::Waiting(waiting) = &mut self.state else {
            return;
        };
        let granted = waiting.granted || hinted;
        let beside = waiting.hurry && granted && in_flight < IN_FLIGHT_MAX;
        let free = in_flight == 0 && self.sweeping.is_none();
        if self.behind || self.retry_at > turn.now || !(free || beside) {
            return;
        }
        let position = waiting.position;
        if !granted && std::mem::take(&mut waiting.overlooked) {
            let revision = self.attempt(WritePurpose::Evict, turn);
            self.send_sweep(Vec::new(), Some(self.writes.writer(revision)));
            // Not again at once, if the reply does not show a grant.
            return self.pause_writes(turn);
        }
        let (lacks_slot, renew_due) = (waiting.lacks_slot, waiting.renew_due);
        let evicts = lacks_slot && self.any_expired(turn.now);
        if evicts || (!granted && renew_due > turn.now) {
            self.sweep_if_due(position, turn);
            return;
        }
        if let State::Waiting(waiting) = &mut self.state {
            waiting.renew_due = turn.now + renew;
            waiting.hurry = false;
        }
        self.renew(turn);
    }
}
