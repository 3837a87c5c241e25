//! Context of one input: its time, random delays, and the effects that it requests.

use std::time::Duration;

use super::Outbox;
use crate::election::{BootTime, Effect, JITTER_PERCENT, Randomness};

/// Context of one call of a state machine's `handle`.
pub(crate) struct Turn<'a, E = Effect> {
    pub(crate) now: BootTime,
    pub(crate) random: &'a mut dyn Randomness,
    pub(crate) effects: &'a mut Outbox<E>,
}

impl<E> Turn<'_, E> {
    /// Returns `duration` with a jitter of up to 20 % in either direction.
    pub(crate) fn jittered(&mut self, duration: Duration) -> Duration {
        self.scaled(duration, 2 * JITTER_PERCENT * 10)
    }

    /// Returns `duration` shortened by up to 20 %, for delays that must not exceed a bound.
    pub(crate) fn shortened(&mut self, duration: Duration) -> Duration {
        self.scaled(duration, JITTER_PERCENT * 10)
    }

    /// Returns a random duration between zero and `most`, both included.
    pub(crate) fn up_to(&mut self, most: Duration) -> Duration {
        let nanos = most.as_nanos() + 1;
        Duration::from_nanos(u64::try_from(self.random.bits() % nanos).unwrap_or(0))
    }

    /// Returns `duration` times 80 %, plus up to `spread` per mille.
    fn scaled(&mut self, duration: Duration, spread: u32) -> Duration {
        let drawn = self.random.bits() % (u128::from(spread) + 1);
        let per_mille = 1000 - JITTER_PERCENT * 10 + u32::try_from(drawn).unwrap_or(0);
        duration.saturating_mul(per_mille) / 1000
    }
}

pub(crate) fn earliest<const N: usize>(instants: [Option<BootTime>; N]) -> Option<BootTime> {
    instants.into_iter().flatten().min()
}
