//! Random numbers of the models: ids are sequential, and the jitter is constant.

use crate::election::Randomness;

/// Source of sequential ids. A protocol draws jitter as a remainder; all draws leave equal
/// remainders.
#[derive(Debug)]
pub(crate) struct Draw<'a> {
    /// Number of draws so far.
    pub(crate) drawn: &'a mut u64,
    /// The first number.
    pub(crate) first: u128,
    /// A multiple of all these moduli.
    pub(crate) step: u128,
}

impl Randomness for Draw<'_> {
    fn bits(&mut self) -> u128 {
        *self.drawn += 1;
        self.first + self.step * u128::from(*self.drawn)
    }
}
