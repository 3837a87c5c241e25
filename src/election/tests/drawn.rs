//! What is drawn at random besides ids, to the nanosecond: the spread of retries
//! and that of candidates that were woken together.

use std::time::Duration;

use super::harness::*;
use crate::election::{Randomness, Turn};

/// A source that always draws the same.
struct Always(u128);

impl Randomness for Always {
    fn bits(&mut self) -> u128 {
        self.0
    }
}

fn jittered(bits: u128, duration: Duration) -> Duration {
    let mut random = Always(bits);
    let mut turn = Turn {
        now: at(0),
        random: &mut random,
    };
    turn.jittered(duration)
}

fn up_to(bits: u128, most: Duration) -> Duration {
    let mut random = Always(bits);
    let mut turn = Turn {
        now: at(0),
        random: &mut random,
    };
    turn.up_to(most)
}

#[test]
fn jitter_is_twenty_percent_on_either_side_and_reaches_both_ends() {
    // 401 steps of a thousandth, then over again.
    let drawn = [
        (0, 800),
        (1, 801),
        (200, 1000),
        (400, 1200),
        (401, 800),
        (401 + 400, 1200),
    ];
    for (bits, expected) in drawn {
        assert_eq!(jittered(bits, seconds(1)), millis(expected), "{bits}");
        assert_eq!(jittered(bits, seconds(3)), 3 * millis(expected), "{bits}");
    }
    for bits in (0..1000).chain([u128::MAX - 1, u128::MAX]) {
        let drawn = jittered(bits, seconds(1));
        assert!((millis(800)..=millis(1200)).contains(&drawn), "{drawn:?}");
    }
}

#[test]
fn a_spread_is_between_nothing_and_the_most_both_included() {
    let most = Duration::from_nanos(7);
    let drawn: Vec<_> = (0..9).map(|bits| up_to(bits, most).as_nanos()).collect();
    assert_eq!(drawn, [0, 1, 2, 3, 4, 5, 6, 7, 0]);
    assert_eq!(up_to(u128::MAX, Duration::ZERO), Duration::ZERO);
}
