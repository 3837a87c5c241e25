//! Input and output of one call of [`Election::handle`](super::Election::handle): the time and
//! random numbers; effects, and the instant of the next tick.

use std::collections::VecDeque;
use std::time::Duration;

use super::effect::{CallId, Effect, Notice, Operation};
use super::lease::Randomness;
use super::time::BootTime;
use super::timings::JITTER_PERCENT;

/// Context of one call of [`Election::handle`](super::Election::handle).
pub(super) struct Turn<'a> {
    pub(super) now: BootTime,
    pub(super) random: &'a mut dyn Randomness,
}

impl Turn<'_> {
    /// Returns `duration` with a random jitter of up to 20 % either way.
    pub(super) fn jittered(&mut self, duration: Duration) -> Duration {
        let spread = 2 * u128::from(JITTER_PERCENT) * 10 + 1;
        let per_mille = u32::try_from(self.random.bits() % spread).unwrap_or(0);
        duration.saturating_mul(1000 - JITTER_PERCENT * 10 + per_mille) / 1000
    }

    /// Returns a random duration between zero and `most`, both included.
    pub(super) fn up_to(&mut self, most: Duration) -> Duration {
        let nanos = most.as_nanos() + 1;
        Duration::from_nanos(u64::try_from(self.random.bits() % nanos).unwrap_or(0))
    }
}

/// Returns the earliest of some instants.
pub(super) fn earliest<const N: usize>(instants: [Option<BootTime>; N]) -> Option<BootTime> {
    instants.into_iter().flatten().min()
}

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

    /// Checks that a tick is not due after everything that was due was done.
    pub(super) fn check_invariants(&self, now: BootTime) {
        let awake = self.wakeup.is_none_or(|at| at > now);
        assert!(awake, "due at once again after all that was due was done");
    }
}
