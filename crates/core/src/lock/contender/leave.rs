//! Giving up a place or a lock: the leave, repeated until it is resolved.
//!
//! The claim ends here. Nothing renews it, and an entry of it that is found later is not adopted.
//! If the place must stay taken for longer, its entry is marked instead, and others remove it.

use std::time::Duration;

use super::{Effect, LockContender, State};
use crate::claim::{Turn, earliest};
use crate::election::{BootTime, CallId};
use crate::lock::claim_writes::WritePurpose;
use crate::lock::document::Found;
use crate::lock::operation::{Operation, Outcome};
use crate::lock::status::{End, Loss};
use crate::lock::success::WorkKey;

#[derive(Debug, Clone, Hash)]
pub(super) struct Leaving {
    /// End to report when the leave is resolved.
    end: End,
    /// Number of calls sent before the first leave.
    after: u64,
    /// The leave that awaits a reply, if any.
    awaited: Option<CallId>,
    /// True if an earlier leave may have been applied.
    unanswered: bool,
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
            // The entry is gone, or the twin of a forked machine renews it.
            State::Lost(loss @ (Loss::Rejected | Loss::StoreRolledBack)) => {
                self.end(End::Lost(*loss), now);
            }
            State::Leaving(_) | State::Ended(_) => {}
        }
    }

    /// Leaves a lock that is or was held.
    pub(super) fn release(&mut self, now: BootTime) {
        match self.state {
            State::Holding(_) | State::Lost(_) => self.give_up(now),
            State::Joining(_) | State::Waiting(_) | State::Leaving(_) | State::Ended(_) => {}
        }
    }

    /// Returns the key to record with the end of the claim, if any.
    fn success(&self) -> Option<WorkKey> {
        let succeeded = self.succeeded || planted!(AnyEndIsASuccess);
        let once_per = self.options.once_per.as_ref().filter(|_| succeeded);
        once_per.map(|once_per| once_per.key.clone())
    }

    /// Ends the claim, with a leave if its entry may be stored.
    pub(super) fn finish(&mut self, end: End, now: BootTime) {
        if !self.writes.may_be_stored() {
            return self.end(end, now);
        }
        // A least time that was declared and is not to be kept takes the place until a leave is
        // applied.
        let declared = match self.keeps_until {
            None if self.declared => self.options.at_least.get(),
            Some(_) | None => Duration::ZERO,
        };
        let leaving = Leaving {
            end,
            after: self.outbox.calls(),
            awaited: None,
            unanswered: false,
            due: now,
            until: now + self.options.timings.lease_duration().max(declared),
        };
        self.enter(State::Leaving(leaving), now);
        self.read_nothing();
        self.unwatch();
    }

    fn end(&mut self, end: End, now: BootTime) {
        self.read_nothing();
        self.unwatch();
        self.outbox.push(Effect::Exit(end.clone()));
        self.enter(State::Ended(end), now);
    }

    pub(super) fn leave(&mut self, turn: &mut Turn<'_>) -> Option<BootTime> {
        // A leave that overtakes its own join would leave a ghost entry behind. The wait for the
        // join is short, because a join is answered within `operation_timeout`.
        let joining = self.writes.is_joining();
        let State::Leaving(leaving) = &self.state else {
            return None;
        };
        if leaving.until <= turn.now || !self.writes.may_be_stored() {
            let assumed = leaving.end != End::Released || planted!(ReleaseAssumed);
            let end = match assumed {
                true => leaving.end.clone(),
                false => End::Unconfirmed,
            };
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
        let rest = self.keeps_until.filter(|_| !planted!(LeaveBeforeLeastTime));
        let call = match rest.filter(|until| *until > turn.now) {
            Some(until) => self.keep(until.since(turn.now), turn),
            None => self.call(Operation::Leave {
                claim: self.writes.claim(),
                mine: self.writes.mine(),
                seen: self.view.token_highest,
                success: self.success(),
                slots: self.options.want.slots(),
            }),
        };
        if let State::Leaving(leaving) = &mut self.state {
            leaving.awaited = Some(call);
        }
        Some(until)
    }

    /// Marks the entry as one whose work has ended, while its place stays taken for `rest`.
    fn keep(&mut self, rest: Duration, turn: &mut Turn<'_>) -> CallId {
        let mine = self.writes.mine();
        let revision = self.attempt(WritePurpose::Keep, turn);
        let call = self.call(Operation::Keep {
            claim: self.writes.claim(),
            revision,
            mine,
            at_least: rest,
            success: self.success(),
        });
        // Nothing waits for it as for a renewal.
        self.writes.open(call);
        call
    }

    /// Sends another leave to the new primary, concurrently with one that hangs on the old primary.
    pub(super) fn leave_again(&mut self, now: BootTime) {
        if let State::Leaving(leaving) = &mut self.state {
            leaving.unanswered |= leaving.awaited.take().is_some();
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
            Outcome::Applied(found) => {
                let end = leaving.end.clone();
                if let (Found::Lock(lock), true) = (found, self.view.is_news(call)) {
                    // The next contender of this machine knows an own place that is kept.
                    self.view.observations.note(&lock, None, turn.now);
                }
                self.end(end, turn.now);
            }
            Outcome::Rejected => {
                let (end, unanswered) = (leaving.end.clone(), leaving.unanswered);
                let end = self.end_without_entry(end, unanswered);
                self.end(end, turn.now);
            }
            Outcome::Failed | Outcome::Unknown if leaving.awaited == Some(call) => {
                leaving.awaited = None;
                leaving.unanswered |= outcome == Outcome::Unknown;
                leaving.due = due;
            }
            Outcome::Failed | Outcome::Unknown => {}
        }
    }

    /// Returns the end of a claim whose leave found no entry of it.
    fn end_without_entry(&self, end: End, unanswered: bool) -> End {
        if end != End::Released {
            return end;
        }
        match unanswered {
            // Only another contender or an operator can have removed it.
            false => End::Lost(Loss::Rejected),
            // Either that, or the leave before was applied and recorded the success.
            true if self.success().is_some() => End::Unconfirmed,
            true => End::Released,
        }
    }
}
