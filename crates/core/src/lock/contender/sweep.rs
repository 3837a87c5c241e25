//! Evicting entries that have expired, by a contender in any state.

use std::time::Duration;

use super::reading::Proof;
use super::{LockContender, Notice, State};
use crate::claim::Turn;
use crate::election::{BootTime, CallId, Claim};
use crate::lock::claim_writes::WritePurpose;
use crate::lock::document::{Found, LockDocument};
use crate::lock::observations::{Observation, Patience};
use crate::lock::operation::{Ending, Operation, Outcome, Writer};
use crate::lock::view::Place;

/// Delay of each waiter's sweep after the sweep of the waiter before it, so that not all waiters
/// sweep. The value covers some round trips to a nearby store.
const STAGGER: Duration = Duration::from_millis(200);
/// Last position that increases the delay, so that the time to evict an expired entry stays
/// bounded.
const STAGGERED_MAX: usize = 8;
/// Number of sweeps of unknown outcome whose late replies are awaited.
const UNANSWERED_MAX: usize = 4;

/// A sweep that was sent.
#[derive(Debug, Clone, Hash)]
pub(super) struct Sweeping {
    call: CallId,
    /// The entries to evict, as observed when the sweep was sent. A read may show that they are
    /// gone before the sweep is answered.
    entries: Vec<(Claim, Observation)>,
}

impl LockContender {
    /// Evicts all entries that have expired, or returns when the next one expires.
    pub(super) fn sweep_if_due(
        &mut self,
        position: usize,
        turn: &mut Turn<'_>,
    ) -> Option<BootTime> {
        let patience = self.patience(position);
        let expired = self.view.observations.expired(patience, turn.now);
        if expired.is_empty() {
            return self.view.observations.next_expiry(patience);
        }
        let me = self.writes.is_present().then(|| {
            let revision = self.attempt(WritePurpose::Evict, turn);
            self.writes.writer(revision)
        });
        self.send_sweep(expired, me);
        None
    }

    /// Evicts entries that the current reply shows to be unchanged for too long.
    ///
    /// Triggered by a reply instead of a timer: among many holders, the first one to receive a
    /// reply in time evicts, and the replies to the others show that it is done.
    pub(super) fn sweep_as_holder(&mut self, turn: &mut Turn<'_>) {
        if self.sweeping.is_none() {
            let expired = self.view.observations.expired(self.patience(0), turn.now);
            if !expired.is_empty() {
                // A holder needs no grant, so this write carries no revision of its claim.
                self.send_sweep(expired, None);
            }
        }
    }

    pub(super) fn any_expired(&self, now: BootTime) -> bool {
        let death = self.view.observations.next_expiry(self.patience(0));
        death.is_some_and(|at| at <= now)
    }

    /// Returns how long this contender waits before it evicts others, given its `position` in the
    /// queue.
    pub(super) fn patience(&self, position: usize) -> Patience {
        let places = u32::try_from(position.min(STAGGERED_MAX)).unwrap_or(0);
        Patience {
            claim_time: self.options.timings.operation_timeout(),
            stagger: STAGGER * places,
        }
    }

    pub(super) fn send_sweep(&mut self, expired: Vec<(Claim, Observation)>, me: Option<Writer>) {
        let call = self.call(Operation::Evict {
            entries: expired.iter().map(|(claim, o)| o.seen(*claim)).collect(),
            me,
            ending: Ending::Expired,
            seen: self.view.token_highest,
        });
        self.sweeping = Some(Sweeping {
            call,
            entries: expired,
        });
    }

    /// Records the outcome of a sweep, in any state and possibly late. Returns true if the call is
    /// the sweep in flight, so that another one may follow.
    pub(super) fn sweep_reply(&mut self, call: CallId, outcome: &Outcome, now: BootTime) -> bool {
        let in_flight = self.sweeping.take_if(|sweep| sweep.call == call);
        let current = in_flight.is_some();
        let late = self.unanswered.iter().position(|s| s.call == call);
        let Some(sweep) = in_flight.or_else(|| self.unanswered.remove(late?)) else {
            return false;
        };
        match outcome {
            Outcome::Applied(Found::Lock(lock)) => self.swept(sweep, lock, now),
            // None of the entries matched, so the wait for each of them restarts.
            Outcome::Rejected if current => {
                let claims = sweep.entries.iter().map(|(claim, _)| *claim);
                self.view.observations.forget(claims);
            }
            Outcome::Unknown => self.await_late(sweep),
            Outcome::Applied(_) | Outcome::Rejected | Outcome::Failed => {}
        }
        current
    }

    fn await_late(&mut self, sweep: Sweeping) {
        if self.unanswered.len() == UNANSWERED_MAX {
            self.unanswered.pop_front();
        }
        self.unanswered.push_back(sweep);
    }

    /// Stops waiting for the sweep in flight, because its claim is over.
    pub(super) fn abandon_sweep(&mut self) {
        if let Some(sweep) = self.sweeping.take() {
            self.await_late(sweep);
        }
    }

    /// Reports the entries that an applied sweep removed from the document.
    fn swept(&mut self, sweep: Sweeping, lock: &LockDocument, now: BootTime) {
        if let State::Ended(_) = self.state {
            return;
        }
        for (claim, observation) in sweep.entries {
            if Place::of(claim, lock) == Place::Absent {
                self.notice(Notice::Swept {
                    identity: observation.identity,
                    token: observation.token,
                    state: observation.state,
                    silent: now.since(observation.since),
                });
            }
        }
    }

    /// Records the document in the reply to a holder's sweep, or to a read from before it held. A
    /// later sweep must not use older revisions than shown.
    pub(super) fn shown_to_holder(&mut self, call: CallId, outcome: Outcome, turn: &mut Turn<'_>) {
        if let Outcome::Applied(Found::Lock(lock)) = outcome
            && self.view.is_news(call)
            && lock.token >= self.view.token
        {
            self.take(call, lock, turn);
        }
    }

    /// Continues a contender without a place in the document after its sweep was answered.
    pub(super) fn joining_swept(&mut self, call: CallId, outcome: Outcome, turn: &mut Turn<'_>) {
        match outcome {
            Outcome::Applied(Found::Lock(lock)) => self.shown(call, lock, Proof::Newest, turn),
            Outcome::Rejected => self.fall_behind(turn.now),
            Outcome::Applied(_) | Outcome::Failed | Outcome::Unknown => self.look_later(turn),
        }
    }
}
