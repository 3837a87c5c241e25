//! The calls inside the driver of one process. The driver answers a call even after the call timed
//! out.

use crate::election::CallId;

#[derive(Debug, Clone)]
pub(super) struct Driver<K>(Vec<Driven<K>>);

#[derive(Debug, Clone, Copy)]
pub(super) struct Driven<K> {
    pub(super) call: CallId,
    pub(super) kind: K,
    pub(super) timed_out: bool,
}

impl<K: Copy> Driver<K> {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn calls(&self) -> Vec<CallId> {
        self.0.iter().map(|driven| driven.call).collect()
    }

    pub(super) fn sends(&mut self, call: CallId, kind: K) {
        let timed_out = false;
        self.0.push(Driven {
            call,
            kind,
            timed_out,
        });
    }

    /// Removes a call that is answered now, or returns `None` if the driver has already answered
    /// it.
    pub(super) fn returned(&mut self, call: CallId) -> Option<Driven<K>> {
        let index = self.0.iter().position(|driven| driven.call == call)?;
        Some(self.0.remove(index))
    }

    /// Marks a call as timed out, and returns its kind if the process still waited for the answer.
    pub(super) fn timed_out(&mut self, call: CallId) -> Option<K> {
        let driven = self.0.iter_mut().find(|driven| driven.call == call)?;
        (!std::mem::replace(&mut driven.timed_out, true)).then_some(driven.kind)
    }

    pub(super) fn is_awaited(&self) -> bool {
        self.0.iter().any(|driven| !driven.timed_out)
    }

    pub(super) fn gave_up(&self, call: CallId) -> bool {
        let driven = self.0.iter().find(|driven| driven.call == call);
        driven.is_none_or(|driven| driven.timed_out)
    }
}
