//! Calls in flight between one process and the store. Calls of a process that has exited stay in
//! flight and may still reach the store.

use std::hash::{Hash, Hasher};

use crate::election::{BootTime, CallId};
use crate::proof::model::canonical::Canonical;

pub(crate) trait Payload: Clone + Hash {
    type Outcome: Clone + Hash;

    /// Returns true if a process uses the answer even after the call timed out.
    fn may_be_late(&self) -> bool;

    fn writes(&self) -> bool;
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Call<O, R> {
    /// The id of the call in the process that sent it; `None` once the process has exited.
    pub(crate) id: Option<CallId>,
    pub(crate) operation: O,
    /// The sender's clock when it sent the call.
    pub(crate) sent: BootTime,
    /// False once the process has received an answer or has exited.
    pub(crate) waiting: bool,
    pub(crate) place: Place<R>,
    /// Identifies the call in actions. Unique across all processes of a machine.
    pub(crate) number: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Place<R> {
    /// Time cannot pass before this call has reached the store.
    Sent,
    Delayed,
    /// The primary has applied the write, but a majority does not have it yet, so the write is not
    /// acknowledged.
    Lagging(R),
    /// The store has answered. The answer may arrive late or never.
    Answered(R),
    Lost,
}

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

    pub(crate) fn get(&self, number: u64) -> &Call<O, O::Outcome> {
        let call = self.0.iter().find(|call| call.number == number);
        call.expect("the call of the action is in flight")
    }

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

    pub(crate) fn duplicate(&mut self, number: u64, as_number: u64) {
        let mut copy = self.get(number).clone();
        (copy.number, copy.waiting, copy.place) = (as_number, false, Place::Delayed);
        self.0.push(copy);
    }

    /// Removes a call whose answer the process receives. From then on, the process ignores the
    /// answers to copies of the call.
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

    pub(crate) fn lag(&self) -> bool {
        self.0.iter().any(|c| matches!(c.place, Place::Lagging(_)))
    }

    pub(crate) fn acknowledge(&mut self) {
        for call in &mut self.0 {
            if let Place::Lagging(outcome) = &call.place {
                call.place = Place::Answered(outcome.clone());
            }
        }
        self.tidy();
    }

    /// Drops the answers to lagging writes, because a failover rolled the writes back.
    pub(crate) fn roll_back(&mut self) {
        for call in &mut self.0 {
            if matches!(call.place, Place::Lagging(_)) {
                call.place = Place::Lost;
            }
        }
        self.tidy();
    }

    /// Detaches the calls from their process, which has exited. The store may still apply them.
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

    /// Removes the calls that `is_over` selects, because they can have no further effect.
    pub(crate) fn forget(&mut self, is_over: impl Fn(&Call<O, O::Outcome>) -> bool) {
        self.0.retain(|call| !is_over(call));
    }

    /// Returns true if time must wait for a call, because the call has not reached the store, or
    /// because the call is `due` and its process is not `frozen`.
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
