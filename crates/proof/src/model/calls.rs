//! Calls in flight between one process and the store, including calls of processes that have
//! exited. The world decides when each call advances.

use std::hash::{Hash, Hasher};

use crate::election::{BootTime, CallId};
use crate::proof::model::canonical::Canonical;

/// An operation of a protocol.
pub(crate) trait Payload: Clone + Hash {
    /// Outcome of the operation.
    type Outcome: Clone + Hash;

    /// Returns true if a process uses the answer even after the call timed out.
    fn may_be_late(&self) -> bool;

    /// Returns true if the operation can change the document.
    fn writes(&self) -> bool;
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Call<O, R> {
    /// Id of the call in the waiting process; `None` once that process has exited.
    pub(crate) id: Option<CallId>,
    /// Requested operation.
    pub(crate) operation: O,
    /// Time of sending, by the sender's clock.
    pub(crate) sent: BootTime,
    /// True if the process has not received an answer.
    pub(crate) waiting: bool,
    /// Progress of the call.
    pub(crate) place: Place<R>,
    /// Number that identifies the call in actions, unique across the processes of a machine.
    pub(crate) number: u64,
}

/// Progress of a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Place<R> {
    /// The call is on its way and must be served promptly.
    Sent,
    /// The call is on its way, and may arrive late or never.
    Delayed,
    /// Applied only on the primary. The outcome becomes valid when a majority has the write.
    Lagging(R),
    /// The answer is on its way, and may arrive late or never.
    Answered(R),
    /// No answer will come.
    Lost,
}

/// Calls of one machine, oldest first.
#[derive(Debug, Clone)]
pub(crate) struct Calls<O: Payload>(Vec<Call<O, O::Outcome>>);

impl<O: Payload> Default for Calls<O> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<O: Payload> Calls<O> {
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Call<O, O::Outcome>> {
        self.0.iter()
    }

    /// Returns the call that an action names.
    pub(crate) fn get(&self, number: u64) -> &Call<O, O::Outcome> {
        let call = self.0.iter().find(|call| call.number == number);
        call.expect("the action names a call")
    }

    /// Adds a call that the process sends now.
    pub(crate) fn send(&mut self, id: CallId, operation: O, now: BootTime, number: u64) {
        self.0.push(Call {
            id: Some(id),
            operation,
            sent: now,
            waiting: true,
            place: Place::Sent,
            number,
        });
    }

    pub(crate) fn change(&mut self, number: u64, change: impl FnOnce(&mut Call<O, O::Outcome>)) {
        self.0
            .iter_mut()
            .find(|call| call.number == number)
            .map(change);
        self.tidy();
    }

    /// Adds a copy of a call that lands later, if at all.
    pub(crate) fn duplicate(&mut self, number: u64, as_number: u64) {
        let mut copy = self.get(number).clone();
        (copy.number, copy.waiting, copy.place) = (as_number, false, Place::Delayed);
        self.0.push(copy);
    }

    /// Removes a call whose answer the process receives. The process does not wait for copies of
    /// the call.
    pub(crate) fn take(&mut self, number: u64) -> Call<O, O::Outcome> {
        let call = self.get(number).clone();
        self.0.retain(|c| c.number != number);
        for copy in &mut self.0 {
            if copy.id == call.id {
                copy.waiting = false;
            }
        }
        self.tidy();
        call
    }

    /// Returns true if a call was applied on the primary only.
    pub(crate) fn lag(&self) -> bool {
        self.0.iter().any(|c| matches!(c.place, Place::Lagging(_)))
    }

    /// Acknowledges the lagging writes, because a majority has them.
    pub(crate) fn acknowledge(&mut self) {
        for call in &mut self.0 {
            if let Place::Lagging(outcome) = &call.place {
                call.place = Place::Answered(outcome.clone());
            }
        }
        self.tidy();
    }

    /// Leaves the lagging writes without an answer, because they were rolled back.
    pub(crate) fn roll_back(&mut self) {
        for call in &mut self.0 {
            if matches!(call.place, Place::Lagging(_)) {
                call.place = Place::Lost;
            }
        }
        self.tidy();
    }

    /// Detaches the calls from their process, which has exited. The calls may still land.
    pub(crate) fn abandon(&mut self) {
        for call in &mut self.0 {
            call.id = None;
            call.waiting = false;
            call.sent = BootTime::default();
            if matches!(call.place, Place::Sent) {
                call.place = Place::Delayed;
            }
        }
        self.tidy();
    }

    /// Removes the calls that `is_over` selects, because they have no further effect.
    pub(crate) fn forget(&mut self, is_over: impl Fn(&Call<O, O::Outcome>) -> bool) {
        self.0.retain(|call| !is_over(call));
    }

    /// Returns true if a call must be served, answered or given up before time passes. The process
    /// must act on a call that it waits for once the call is `due`, unless the process is `frozen`.
    pub(crate) fn are_prompt(&self, frozen: bool, due: impl Fn(BootTime) -> bool) -> bool {
        let prompt = |call: &Call<O, O::Outcome>| {
            matches!(call.place, Place::Sent) || (call.waiting && !frozen && due(call.sent))
        };
        self.0.iter().any(prompt)
    }

    /// Removes calls that can have no further effect: answers for processes that have exited, and
    /// reads whose answer no process uses.
    fn tidy(&mut self) {
        self.0.retain(|call| {
            let useful = call.waiting || call.operation.may_be_late();
            match call.place {
                Place::Sent | Place::Lagging(_) => true,
                Place::Delayed => call.operation.writes() || (call.id.is_some() && useful),
                Place::Answered(_) => call.id.is_some() && useful,
                Place::Lost => call.waiting,
            }
        });
    }

    /// Writes the canonical form of the calls. `operation` writes the form of an operation.
    pub(crate) fn canonicalise<H: Hasher>(
        &self,
        to: &mut Canonical<'_, H>,
        operation: impl Fn(&O, &mut Canonical<'_, H>),
    ) {
        to.put(&self.0.len());
        for call in &self.0 {
            to.put(&call.id);
            operation(&call.operation, to);
            to.put(&(call.sent, call.waiting, &call.place));
        }
    }
}
