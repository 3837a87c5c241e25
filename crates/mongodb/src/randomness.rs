//! Random ids that do not repeat in a copy of this machine.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

use sha2::{Digest, Sha256};

use leasehold_core::election::Randomness;

/// Random ids from the kernel's generator, the clocks and a counter.
///
/// The twins of a forked machine (a snapshot that is started twice) continue one generator. Both
/// draw the same numbers until the kernel reseeds it, and not every hypervisor triggers that. The
/// nanosecond of each draw is different on the twins, so the ids are different too.
#[derive(Debug, Clone, Copy, Default)]
pub struct KernelRandomness;

impl Randomness for KernelRandomness {
    fn bits(&mut self) -> u128 {
        let mut bytes = [0; 16];
        // Linux fails here only before the pool is first filled, at boot, or if the system call is
        // forbidden. A panic is better than an id that repeats.
        getrandom::fill(&mut bytes).expect("the kernel gives random bytes");
        mixed(u128::from_be_bytes(bytes), Moment::now())
    }
}

/// The moment of a draw. The wall clock makes ids different and decides nothing (I9).
#[derive(Debug, Clone, Copy)]
struct Moment {
    wall_nanos: u128,
    boot_nanos: u64,
    /// Number of earlier draws in this process, since a clock may not advance between two draws.
    drawn: u64,
}

impl Moment {
    fn now() -> Self {
        static DRAWN: AtomicU64 = AtomicU64::new(0);
        let wall = leasehold_clock::wall_now().duration_since(UNIX_EPOCH);
        Self {
            wall_nanos: wall.unwrap_or_default().as_nanos(),
            boot_nanos: leasehold_clock::boot_now().as_nanos(),
            drawn: DRAWN.fetch_add(1, Ordering::Relaxed),
        }
    }
}

/// Mixes a moment into random bits. The exclusive or maps different random bits to different
/// results, so the result has all the entropy of the bits even if the moment is known.
fn mixed(random: u128, moment: Moment) -> u128 {
    let mut hash = Sha256::new();
    hash.update(moment.wall_nanos.to_be_bytes());
    hash.update(moment.boot_nanos.to_be_bytes());
    hash.update(moment.drawn.to_be_bytes());
    let mut half = [0; 16];
    half.copy_from_slice(&hash.finalize()[..16]);
    random ^ u128::from_be_bytes(half)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: Moment = Moment {
        wall_nanos: 1_790_000_000_000_000_000,
        boot_nanos: 5_000_000_000,
        drawn: 7,
    };

    /// Twins continue one generator. Each part of the moment alone makes their ids different.
    #[test]
    fn one_generator_gives_different_ids_at_different_moments() {
        let others = [
            Moment {
                wall_nanos: MOMENT.wall_nanos + 1,
                ..MOMENT
            },
            Moment {
                boot_nanos: MOMENT.boot_nanos + 1,
                ..MOMENT
            },
            Moment {
                drawn: MOMENT.drawn + 1,
                ..MOMENT
            },
        ];
        for other in others {
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
        let (first, second) = (Moment::now(), Moment::now());
        assert!(second.drawn > first.drawn);
        assert!(second.boot_nanos >= first.boot_nanos);
        assert!(first.wall_nanos > MOMENT.wall_nanos / 2);
    }
}
