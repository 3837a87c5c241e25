//! Generates random bytes and random mutations of valid inputs, from a seed.

/// A source of mutated inputs. Equal seeds produce equal inputs.
#[derive(Debug, Clone)]
pub struct Mutator(u64);

impl Mutator {
    const CHANGES_MAX: usize = 4;
    /// Maximum number of random bytes in a row.
    const BYTES_MAX: usize = 24;
    const REPEATS_MAX: usize = 200;

    /// Creates a source from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the seed in the environment variable `HOSTILE_SEED`, or a fixed seed if the variable
    /// is not set. The seed of a failed run reproduces that run.
    ///
    /// # Panics
    /// If the variable is not a number.
    pub fn seed() -> u64 {
        match std::env::var("HOSTILE_SEED") {
            Ok(seed) => seed.parse().expect("HOSTILE_SEED is a number"),
            Err(_) => 1,
        }
    }

    /// Returns 64 random bits (splitmix64).
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Returns a number below `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        let end = end.max(1) as u64;
        usize::try_from(self.bits() % end).expect("below a usize")
    }

    /// Chooses one of several values.
    ///
    /// # Panics
    /// If there are no values.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    /// Returns up to `max` random bytes.
    pub fn bytes(&mut self, max: usize) -> Vec<u8> {
        let length = self.below(max + 1);
        std::iter::repeat_with(|| self.bits().to_le_bytes()[0])
            .take(length)
            .collect()
    }

    /// Picks an input and changes it in one to four places. `tokens` are texts to insert: parts of
    /// valid inputs, and similar texts.
    ///
    /// # Panics
    /// If there are no inputs or no tokens.
    pub fn mutated(&mut self, inputs: &[Vec<u8>], tokens: &[&[u8]]) -> Vec<u8> {
        let mut input = self.pick(inputs).clone();
        for _ in 0..=self.below(Self::CHANGES_MAX) {
            self.change(&mut input, inputs, tokens);
        }
        input
    }

    fn change(&mut self, input: &mut Vec<u8>, inputs: &[Vec<u8>], tokens: &[&[u8]]) {
        let at = self.below(input.len() + 1);
        let end = at + self.below((input.len() - at).min(Self::BYTES_MAX) + 1);
        let part = match self.below(8) {
            0 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << (self.bits() % 8);
                }
                return;
            }
            1 => return input.truncate(at),
            2 => Vec::new(),
            3 => self.bytes(Self::BYTES_MAX),
            4 => input[at..end].repeat(2),
            5 => {
                let times = self.below(Self::REPEATS_MAX);
                input[at..end].repeat(times)
            }
            6 => {
                let other = self.pick(inputs);
                other[self.below(other.len())..].to_vec()
            }
            _ => self.pick(tokens).to_vec(),
        };
        input.splice(at..end, part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_inputs_and_another_one_others() {
        let inputs = [b"GET / HTTP/1.1\r\n\r\n".to_vec(), b"{}".to_vec()];
        let drawn = |seed| {
            let mut mutator = Mutator::new(seed);
            let mutated = std::iter::repeat_with(|| mutator.mutated(&inputs, &[b"\0"]));
            mutated.take(100).collect::<Vec<_>>()
        };
        assert_eq!(drawn(1), drawn(1));
        let (one, other) = (drawn(1), drawn(2));
        assert_ne!(one, other);
        let unchanged = one.iter().filter(|input| inputs.contains(input)).count();
        assert!(unchanged < 30, "{unchanged} of 100 are unchanged");
    }
}
