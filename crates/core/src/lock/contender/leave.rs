//! Giving up a place or a lock: the leave, repeated until it is resolved.
//!
//! From here on the claim has ended: nothing renews it, and nothing that is
//! found of it is adopted.

use super::{Effect, LockContender, State, Turn, earliest};
use crate::election::{BootTime, CallId};
use crate::lock::operation::{Operation, Outcome};
use crate::lock::status::{End, Loss};

#[derive(Debug, Clone)]
pub(super) struct Leaving {
    /// How it ends when the leave is resolved.
    end: End,
    /// How many calls were sent before the first leave.
    after: u64,
    /// The leave that nobody has answered.
    awaited: Option<CallId>,
    due: BootTime,
    /// From then on the entry is dead to everybody: no need to stay for it.
    until: BootTime,
}

impl LockContender {
    /// Leaves, whatever it was doing.
    pub(super) fn give_up(&mut self, now: BootTime) {
        match &self.state {
            State::Joining(_) | State::Waiting(_) if planted!(NoLeaveAtGivingUp) => {
                self.end(End::GaveUp, now);
            }
            State::Joining(_) | State::Waiting(_) => self.finish(End::GaveUp, now),
            State::Holding(_) => self.finish(End::Released, now),
            State::Lost(Loss::Deadline) if planted!(NoLeaveAfterLoss) => {
                self.end(End::Lost(Loss::Deadline), now);
            }
            State::Lost(Loss::Deadline) => self.finish(End::Lost(Loss::Deadline), now),
            // The entry is gone, or a forked machine's twin renews it and
            // would be dethroned while it holds.
            State::Lost(loss @ (Loss::Rejected | Loss::StoreWentBack)) => {
                self.end(End::Lost(*loss), now);
            }
            State::Leaving(_) | State::Ended(_) => {}
        }
    }

    /// Ends the claim, and takes its entry out if there may be one.
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
        // A leave that overtakes its own join would leave a ghost behind, and a
        // join is answered within operation_timeout.
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

    /// A new primary: the leave that hangs on the old one is joined by another.
    pub(super) fn leave_again(&mut self, now: BootTime) {
        if let State::Leaving(leaving) = &mut self.state {
            leaving.awaited = None;
            leaving.due = now;
        }
    }

    /// A leave was answered, maybe late.
    pub(super) fn leave_reply(&mut self, call: CallId, outcome: Outcome, turn: &mut Turn<'_>) {
        let due = turn.now + turn.jittered(self.options.timings.retry_interval());
        let State::Leaving(leaving) = &mut self.state else {
            return;
        };
        match outcome {
            // What was sent before the first leave tells nothing of the entry.
            _ if call.0 <= leaving.after => {}
            Outcome::Applied(_) | Outcome::Rejected => {
                let end = leaving.end.clone();
                self.end(end, turn.now);
            }
            Outcome::Unknown if planted!(LeaveNotRepeated) => {
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
