//! The ids of a process. As in `KernelRandomness` of leasehold-mongodb, an id depends on three
//! inputs: a generator, the time of the draw, and a counter. A copy of the machine continues with
//! the same generator.
//!
//! Unlike the program, the simulation does not mix in the wall clock. Delays come from this source
//! too, and a run with other wall clocks must make the same decisions (I9).

use super::rng::Rng;
use crate::election::{BootTime, Randomness};
use crate::{election, lock};

/// Maximum time in nanoseconds from an input to the draw of an id. The time varies, because
/// machines differ in speed.
const WORK_MAX: u64 = 1 << 20;

#[derive(Clone)]
pub(crate) struct Ids {
    generator: Rng,
    /// The speed of the machine, the only field that differs in a copy of the machine.
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

    pub(crate) fn copied(&mut self, work: Rng) {
        self.work = work;
    }

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
