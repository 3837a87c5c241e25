//! Waiting in the queue: keeping the place, confirming a grant, and evicting expired entries.

use std::time::Duration;

use super::hold::IN_FLIGHT_MAX;
use super::{LockContender, Notice, State, Sweeping, Turn, earliest};
use crate::election::{BootTime, CallId};
use crate::lock::document::LockDocument;
use crate::lock::observations::Observation;
use crate::lock::operation::{Ending, Operation, Seen, Writer};
use crate::lock::stake::Kind;
use crate::lock::view::Place;

/// Additional delay of each waiter's sweep over that of the waiter before it, so that not all of
/// them sweep. The value covers some round trips to a nearby store.
const STAGGER: Duration = Duration::from_millis(200);
/// Position from which on the delay no longer grows, so that the time to evict an expired entry
/// stays bounded.
const STAGGERED_MAX: usize = 8;

#[derive(Debug, Clone)]
pub(super) struct Waiting {
    pub(super) position: usize,
    /// True if the entry is among the holders, without authority, and must be confirmed
    /// immediately.
    pub(super) granted: bool,
    pub(super) renew_due: BootTime,
    /// Confirm even if another attempt hangs.
    pub(super) hurry: bool,
}

/// Returns how much longer than the head of the queue a waiter at `position` waits before it
/// sweeps.
pub(super) fn stagger(position: usize) -> Duration {
    let places = u32::try_from(position.min(STAGGERED_MAX)).unwrap_or(0);
    STAGGER * places
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
        match &mut self.state {
            State::Joining(_) if self.options.non_blocking && !granted => {
                return self.finish(self.busy(), turn.now);
            }
            State::Joining(_) => {
                let waiting = Waiting {
                    position,
                    granted,
                    renew_due: turn.now + renew,
                    hurry: false,
                };
                self.enter(State::Waiting(waiting), turn.now);
                if !self.watching {
                    self.follow();
                }
            }
            State::Waiting(waiting) => {
                (waiting.position, waiting.granted) = (position, granted);
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
        if self.behind || self.stake.in_flight() > 0 || self.sweeping.is_some() {
            return self.next_read();
        }
        let patience = self.patience(waiting.position);
        let write = if waiting.granted || self.hinted.is_some() {
            Some(turn.now)
        } else {
            let death = self.view.observations.next_death(patience);
            earliest([Some(waiting.renew_due), death])
        };
        let write = write.map(|at| at.max(self.retry_at));
        earliest([self.next_read(), write])
    }

    fn write_while_waiting(&mut self, turn: &mut Turn<'_>) {
        let renew = turn.shortened(self.options.timings.lease_duration() / 3);
        let in_flight = self.stake.in_flight();
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
        if !granted && waiting.renew_due > turn.now {
            self.sweep_if_due(position, turn);
            return;
        }
        waiting.renew_due = turn.now + renew;
        waiting.hurry = false;
        self.renew(turn);
    }

    /// Evicts all entries that have expired, or returns when the next one expires.
    pub(super) fn sweep_if_due(
        &mut self,
        position: usize,
        turn: &mut Turn<'_>,
    ) -> Option<BootTime> {
        let patience = self.patience(position);
        let pairs = self.view.observations.dead(patience, turn.now);
        if pairs.is_empty() {
            return self.view.observations.next_death(patience);
        }
        let me = self.stake.is_present().then(|| {
            let revision = self.attempt(Kind::Evict, turn);
            self.stake.writer(revision)
        });
        self.send_sweep(pairs, me);
        None
    }

    pub(super) fn send_sweep(&mut self, pairs: Vec<Seen>, me: Option<Writer>) {
        let call = self.call(Operation::Evict {
            entries: pairs.clone(),
            me,
            ending: Ending::Expired,
            seen: self.view.token_highest,
        });
        self.sweeping = Some(Sweeping { call, pairs });
    }

    pub(super) fn is_sweeping(&self, call: CallId) -> bool {
        self.sweeping.as_ref().is_some_and(|s| s.call == call)
    }

    pub(super) fn anybody_dead(&self, now: BootTime) -> bool {
        let death = self.view.observations.next_death(self.patience(0));
        death.is_some_and(|at| at <= now)
    }

    /// Clears the sweep in flight if it is this call, so that another one may follow. Returns its
    /// entries.
    pub(super) fn sweep_over(&mut self, call: CallId) -> Option<Vec<Seen>> {
        if self.is_sweeping(call) {
            self.sweeping.take().map(|sweeping| sweeping.pairs)
        } else {
            None
        }
    }

    /// Handles a rejected sweep. None of its entries matched, so the wait for each of them
    /// restarts.
    pub(super) fn sweep_refused(&mut self, call: CallId) {
        if let Some(pairs) = self.sweep_over(call) {
            self.view.observations.forget(&pairs);
        }
    }

    /// Reports the entries that an applied sweep removed from the document.
    pub(super) fn swept(&mut self, call: CallId, lock: &LockDocument, now: BootTime) {
        for pair in self.sweep_over(call).unwrap_or_default() {
            let gone = Place::of(pair.claim, lock) == Place::Absent;
            let observation = self.view.observations.get(pair.claim);
            if let Some(observation) = observation.filter(|_| gone) {
                let Observation {
                    identity,
                    state,
                    token,
                    since,
                    revision: _,
                    lease_duration: _,
                } = observation.clone();
                self.notice(Notice::Swept {
                    identity,
                    token,
                    state,
                    silent: now.since(since),
                });
            }
        }
    }
}
