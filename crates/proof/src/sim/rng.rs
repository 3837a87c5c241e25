//! All random numbers of a run come from one seed.
//!
//! Each purpose has its own stream of random numbers, so that disabling one fault affects the
//! other faults as little as possible.

use crate::election::Randomness;

/// The splitmix64 generator.
#[derive(Clone, Default)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64, purpose: u64) -> Self {
        let mut rng = Self(seed ^ purpose.wrapping_mul(0xa076_1d64_78bd_642f));
        rng.next_u64();
        rng
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next_u64() % n
    }

    /// Returns a number from `least` up to, but not including, `most`.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least)
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn index(&mut self, n: usize) -> usize {
        usize::try_from(self.below(n as u64)).expect("an index")
    }
}

impl Randomness for Rng {
    fn bits(&mut self) -> u128 {
        (u128::from(self.next_u64()) << 64) | u128::from(self.next_u64())
    }
}
