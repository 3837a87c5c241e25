//! Random draws other than ids, checked to the nanosecond: the jitter of retries, and the spread of
//! candidates that wake at the same time.

use std::time::Duration;

use super::harness::*;
use crate::claim::{Outbox, Turn};
use crate::election::*;

struct Always(u128);

impl Randomness for Always {
    fn bits(&mut self) -> u128 {
        self.0
    }
}

fn in_turn<T>(bits: u128, run: impl FnOnce(&mut Turn<'_>) -> T) -> T {
    run(&mut Turn {
        now: at(0),
        random: &mut Always(bits),
        effects: &mut Outbox::default(),
    })
}

fn jittered(bits: u128, duration: Duration) -> Duration {
    in_turn(bits, |turn| turn.jittered(duration))
}

fn up_to(bits: u128, most: Duration) -> Duration {
    in_turn(bits, |turn| turn.up_to(most))
}

#[test]
fn jitter_is_twenty_percent_on_either_side_and_reaches_both_ends() {
    // The jitter has 401 values, one thousandth of the duration apart. The draw 401 yields the
    // first value again.
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

/// Returns a follower with this spread that has sent an acquisition.
fn acquiring_with(spread: Duration) -> (Node, Stored) {
    let (mut b, stored) = acquiring();
    b.election.contender.waits().jitter_max = spread;
    (b, stored)
}

#[test]
fn the_spread_doubles_with_each_race_lost_and_halves_with_each_won() {
    let changes = [
        (0, 5_000, 0),
        (5_000, 10_000, 0),
        (10_000, 20_000, 5_000),
        (20_000, 40_000, 10_000),
        (40_000, 40_000, 20_000),
    ];
    for (before, lost, won) in changes.map(|(a, b, c)| {
        let micros = Duration::from_micros;
        (micros(a), micros(b), micros(c))
    }) {
        let (mut b, _) = acquiring_with(before);
        b.answer_with(at(1), Outcome::Rejected);
        assert_eq!(
            b.election.contender.waits().jitter_max,
            lost,
            "lost at {before:?}"
        );
        let (mut b, mut stored) = acquiring_with(before);
        b.serve(at(1), &mut stored);
        assert!(b.leads(at(1)));
        assert_eq!(
            b.election.contender.waits().jitter_max,
            won,
            "won at {before:?}"
        );
    }
}

#[test]
fn a_rejected_takeover_is_not_a_race() {
    let (mut b, _) = taking_over();
    b.answer_with(at(24), Outcome::Rejected);
    assert_eq!(b.election.contender.waits().jitter_max, Duration::ZERO);
}

#[test]
fn candidates_that_lost_a_race_wait_a_drawn_time_for_the_next() {
    let (mut b, mut stored) = follower_of_vanished();
    b.election.contender.waits().jitter_max = millis(40);
    stored.vacate();
    b.event(at(1), &stored);
    assert_eq!(b.waiting(), [""; 0]);
    let turn = b.wake();
    assert!(turn > at(1) && turn <= at(1) + millis(40));
    assert_eq!(b.waiting(), ["acquire"]);
}
