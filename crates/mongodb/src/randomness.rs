//! Random ids that remain unique even among copies of a virtual machine.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

use sha2::{Digest, Sha256};

use leasehold_core::election::Randomness;

/// Random ids from the kernel's generator, the clocks and a counter. Two machines started from one
/// snapshot share the generator's state, but draw ids at different nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct KernelRandomness;

impl Randomness for KernelRandomness {
    fn bits(&mut self) -> u128 {
        let mut bytes = [0; 16];
        // Early in the boot process, the system call waits. In a sandbox, the call may fail; then a
        // panic is better than repeated ids.
        getrandom::fill(&mut bytes).expect("the kernel provides random bytes");
        mixed(u128::from_be_bytes(bytes), moment())
    }
}

/// Returns the nanoseconds of both clocks and the number of earlier draws. The count matters
/// because a clock may not advance between two draws. No decision depends on the wall clock (I9).
fn moment() -> [u128; 3] {
    static DRAWN: AtomicU64 = AtomicU64::new(0);
    let wall = leasehold_clock::wall_now().duration_since(UNIX_EPOCH);
    [
        wall.unwrap_or_default().as_nanos(),
        leasehold_clock::boot_now().as_nanos().into(),
        DRAWN.fetch_add(1, Ordering::Relaxed).into(),
    ]
}

/// Mixes the parts of a moment into random bits. XOR preserves all entropy of the bits.
fn mixed(random: u128, moment: [u128; 3]) -> u128 {
    let mut hash = Sha256::new();
    for part in moment {
        hash.update(part.to_be_bytes());
    }
    let mut half = [0; 16];
    half.copy_from_slice(&hash.finalize()[..16]);
    random ^ u128::from_be_bytes(half)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: [u128; 3] = [1_790_000_000_000_000_000, 5_000_000_000, 7];

    #[test]
    fn one_generator_gives_different_ids_at_different_moments() {
        for part in 0..MOMENT.len() {
            let mut other = MOMENT;
            other[part] += 1;
            assert_ne!(mixed(0, MOMENT), mixed(0, other), "{other:?}");
        }
    }

    #[test]
    fn no_entropy_is_lost() {
        for bit in 0..128 {
            let changed = mixed(0, MOMENT) ^ mixed(1 << bit, MOMENT);
            assert_eq!(changed, 1 << bit);
        }
    }

    #[test]
    fn the_moment_advances_with_each_draw() {
        let ([wall, boot, drawn], [_, later, next]) = (moment(), moment());
        assert!(next > drawn);
        assert!(later >= boot);
        assert!(wall > MOMENT[0] / 2);
    }
}
