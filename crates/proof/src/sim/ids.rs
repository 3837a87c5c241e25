//! The ids of a process, drawn as in `KernelRandomness` of leasehold-mongodb from three inputs: a
//! generator that continues in a copy of the machine, the time of the draw, and a counter.
//!
//! Unlike the program, the source does not mix in the wall clock. Delays come from this source too,
//! and a run with other wall clocks must make the same decisions (I9).

use super::rng::Rng;
use crate::election::{BootTime, Randomness};
use crate::{election, lock};

/// Maximum delay of a draw after its input, in nanoseconds, because machines differ in speed.
const WORK_MAX: u64 = 1 << 20;

/// The source of ids of one process, or of the processes of one machine.
#[derive(Clone)]
pub(crate) struct Ids {
    generator: Rng,
    /// Speed of the machine. It is the only field that a copy of the machine does not share.
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
