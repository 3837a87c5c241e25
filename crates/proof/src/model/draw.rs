//! Random numbers of the models.

use crate::election::Randomness;

/// Draws sequential ids. The jitter is constant, because a protocol computes the jitter as the
/// remainder of a draw, and all draws have equal remainders.
#[derive(Debug)]
pub(crate) struct Draw<'a> {
    pub(crate) drawn: &'a mut u64,
    pub(crate) first: u128,
    /// A multiple of every modulus that a protocol uses, so that all draws have equal remainders.
    pub(crate) step: u128,
}

impl Randomness for Draw<'_> {
    fn bits(&mut self) -> u128 {
        *self.drawn += 1;
        self.first + self.step * u128::from(*self.drawn)
    }
}
