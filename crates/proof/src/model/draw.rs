//! Random numbers of the models. Ids are sequential, and the jitter is constant.

use crate::election::Randomness;

/// Draws sequential ids. The protocols take the jitter as a remainder of a draw, and all draws
/// have equal remainders.
#[derive(Debug)]
pub(crate) struct Draw<'a> {
    pub(crate) drawn: &'a mut u64,
    pub(crate) first: u128,
    /// This is a multiple of every modulus that a protocol uses, so it changes no remainder.
    pub(crate) step: u128,
}

impl Randomness for Draw<'_> {
    fn bits(&mut self) -> u128 {
        *self.drawn += 1;
        self.first + self.step * u128::from(*self.drawn)
    }
}
