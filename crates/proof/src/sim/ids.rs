//! The ids of a process, drawn like `KernelRandomness` of leasehold-mongodb: from a generator that
//! a copy of the machine continues, the time of the draw, and a counter.
//!
//! The wall clock is left out, although the program mixes it in: a run with other wall clocks must
//! make the same decisions (I9), and delays are drawn from the same source.

use super::rng::Rng;
use crate::election::{BootTime, Randomness};
use crate::{election, lock};

/// Machines differ in speed: a draw happens up to this many nanoseconds after its input.
const WORK_MAX: u64 = 1 << 20;

/// The source of ids of one process, or of the processes of one machine.
#[derive(Clone)]
pub(crate) struct Ids {
    generator: Rng,
    /// Speed of the machine, the only field that a copy does not share.
    work: Rng,
    now: BootTime,
    drawn: u64,
}

impl Ids {
    pub(crate) fn new(generator: Rng) -> Self {
        Self {
            generator,
            work: Rng::default(),
            now: BootTime::default(),
            drawn: 0,
        }
    }

    /// Moves the process to a copy of its machine.
    pub(crate) fn copied(&mut self, work: Rng) {
        self.work = work;
    }

    /// Returns the source for an input that is handled at `now`.
    pub(crate) fn at(&mut self, now: BootTime) -> &mut Self {
        self.now = now;
        self
    }
}

impl Randomness for Ids {
    fn bits(&mut self) -> u128 {
        let random = self.generator.bits();
        if election::mutation::planted!(IdsOfGenerator) || lock::mutation::planted!(IdsOfGenerator)
        {
            return random;
        }
        self.drawn += 1;
        let moment = self.now.as_nanos() + self.work.below(WORK_MAX);
        random ^ Rng::new(moment, self.drawn).bits()
    }
}
