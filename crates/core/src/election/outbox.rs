//! What the host is to do next: effects in order, and the instant of the next tick.

use std::collections::VecDeque;

use super::effect::{CallId, Effect, Notice, Operation};
use super::time::BootTime;

/// Effects that the host has not taken yet, and the next wakeup.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Outbox {
    effects: VecDeque<Effect>,
    wakeup: Option<BootTime>,
    /// Number of calls so far. The last field, because the model's canonical form leaves out a
    /// counter that stands before an instant.
    calls: u64,
}

impl Outbox {
    pub(super) fn new(wakeup: BootTime) -> Self {
        Self {
            effects: VecDeque::new(),
            wakeup: Some(wakeup),
            calls: 0,
        }
    }

    /// Queues a store call and returns its id.
    pub(super) fn call(&mut self, operation: Operation) -> CallId {
        self.calls += 1;
        let id = CallId(self.calls);
        self.push(Effect::Call { id, operation });
        id
    }

    pub(super) fn notice(&mut self, notice: Notice) {
        self.push(Effect::Notice(notice));
    }

    pub(super) fn push(&mut self, effect: Effect) {
        self.effects.push_back(effect);
    }

    pub(super) fn extend(&mut self, effects: impl IntoIterator<Item = Effect>) {
        self.effects.extend(effects);
    }

    pub(super) fn pop(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    pub(super) fn wake_at(&mut self, wakeup: Option<BootTime>) {
        self.wakeup = wakeup;
    }

    pub(super) fn wakeup(&self) -> Option<BootTime> {
        self.wakeup
    }
}
