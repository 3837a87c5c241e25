//! Giving up a place or a lock: the leave, repeated until it is resolved.
//!
//! The claim ends here. Nothing renews it, and an entry of it that is found later is not adopted.

use super::{Effect, LockContender, State, Turn, earliest};
use crate::election::{BootTime, CallId};
use crate::lock::operation::{Operation, Outcome};
use crate::lock::status::{End, Loss};

#[derive(Debug, Clone, Hash)]
pub(super) struct Leaving {
    /// End to report when the leave is resolved.
    end: End,
    /// Number of calls sent before the first leave.
    after: u64,
    /// The leave that awaits a reply, if any.
    awaited: Option<CallId>,
    due: BootTime,
    /// From this instant on every contender considers the entry expired, so the leave is no longer
    /// needed.
    until: BootTime,
}

impl LockContender {
    /// Leaves, from any state.
    pub(super) fn give_up(&mut self, now: BootTime) {
        match &self.state {
            State::Joining(_) | State::Waiting(_) => self.finish(End::GaveUp, now),
            State::Holding(_) => self.finish(End::Released, now),
            State::Lost(Loss::Deadline) => self.finish(End::Lost(Loss::Deadline), now),
            // The entry is gone, or the twin of a forked machine renews it. A leave would remove
            // the entry while the twin holds the lock.
            State::Lost(loss @ (Loss::Rejected | Loss::StoreRolledBack)) => {
                self.end(End::Lost(*loss), now);
            }
            State::Leaving(_) | State::Ended(_) => {}
        }
    }

    /// Ends the claim, with a leave if its entry may be stored.
    pub(super) fn finish(&mut self, end: End, now: BootTime) {
        if !self.stake.may_be_stored() {
            return self.end(end, now);
        }
        let leaving = Leaving {
            end,
            after: self.calls,
            awaited: None,
            due: now,
            until: now + self.options.timings.lease_duration(),
        };
        self.enter(State::Leaving(leaving), now);
        self.read_nothing();
        self.unwatch();
    }

    fn end(&mut self, end: End, now: BootTime) {
        self.read_nothing();
        self.unwatch();
        self.effects.push_back(Effect::Exit(end.clone()));
        self.enter(State::Ended(end), now);
    }

    pub(super) fn leave(&mut self, turn: &mut Turn<'_>) -> Option<BootTime> {
        // A leave that overtakes its own join would leave a ghost entry behind. The wait for the
        // join is short, because a join is answered within `operation_timeout`.
        let joining = self.stake.is_joining();
        let State::Leaving(leaving) = &self.state else {
            return None;
        };
        if leaving.until <= turn.now || !self.stake.may_be_stored() {
            let end = leaving.end.clone();
            self.end(end, turn.now);
            return None;
        }
        if leaving.awaited.is_some() || joining {
            return Some(leaving.until);
        }
        if leaving.due > turn.now {
            return earliest([Some(leaving.due), Some(leaving.until)]);
        }
        let until = leaving.until;
        let call = self.call(Operation::Leave {
            claim: self.stake.claim,
            seen: self.view.token_highest,
        });
        if let State::Leaving(leaving) = &mut self.state {
            leaving.awaited = Some(call);
        }
        Some(until)
    }

    /// Sends another leave to the new primary, concurrently with one that hangs on the old primary.
    pub(super) fn leave_again(&mut self, now: BootTime) {
        if let State::Leaving(leaving) = &mut self.state {
            leaving.awaited = None;
            leaving.due = now;
        }
    }

    /// Handles the reply to a leave, possibly late.
    pub(super) fn leave_reply(&mut self, call: CallId, outcome: Outcome, turn: &mut Turn<'_>) {
        let due = turn.now + turn.jittered(self.options.timings.retry_interval());
        let State::Leaving(leaving) = &mut self.state else {
            return;
        };
        match outcome {
            // Replies to calls sent before the first leave prove nothing about the entry.
            _ if call.0 <= leaving.after => {}
            Outcome::Applied(_) | Outcome::Rejected => {
                let end = leaving.end.clone();
                self.end(end, turn.now);
            }
            Outcome::Failed | Outcome::Unknown if leaving.awaited == Some(call) => {
                leaving.awaited = None;
                leaving.due = due;
            }
            Outcome::Failed | Outcome::Unknown => {}
        }
    }
}
