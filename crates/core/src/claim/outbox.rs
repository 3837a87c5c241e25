//! Effects that a state machine has requested, and the ids of its store calls.

use std::collections::VecDeque;

use crate::election::CallId;

/// Requested effects that the host has not taken yet, and the number of calls among all of them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Outbox<E> {
    effects: VecDeque<E>,
    calls: u64,
}

impl<E> Default for Outbox<E> {
    fn default() -> Self {
        Self {
            effects: VecDeque::new(),
            calls: 0,
        }
    }
}

impl<E> Outbox<E> {
    pub(crate) fn calls(&self) -> u64 {
        self.calls
    }

    pub(crate) fn next_call(&self) -> CallId {
        CallId(self.calls + 1)
    }

    /// Requests a store call, given as the effect for its id.
    pub(crate) fn call(&mut self, effect: impl FnOnce(CallId) -> E) -> CallId {
        let id = self.next_call();
        self.calls = id.0;
        self.push(effect(id));
        id
    }

    pub(crate) fn push(&mut self, effect: E) {
        self.effects.push_back(effect);
    }

    pub(crate) fn extend(&mut self, effects: impl IntoIterator<Item = E>) {
        self.effects.extend(effects);
    }

    pub(crate) fn pop(&mut self) -> Option<E> {
        self.effects.pop_front()
    }
}
