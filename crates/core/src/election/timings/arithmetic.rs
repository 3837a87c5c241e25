//! The rules of [`Timings::new`] in exact arithmetic.
//!
//! `tests/proofs/timings.py` proves with z3 that these rules imply I1 and I5. This module checks
//! that the code accepts durations if and only if the rules hold. A change to a rule must be made
//! in all three places.

use proptest::prelude::*;
use proptest::strategy::ValueTree;

use super::*;
use crate::election::{BootTime, HEAD_START, HEAD_STARTS_MAX, RESERVATION_MAX};

const MILLISECOND: u128 = 1_000_000;
const SECOND: u128 = 1_000 * MILLISECOND;

/// Durations in nanoseconds, in the order of the fields.
type Nanos = [u128; 6];

fn budget([_, _, renew, retry, operation, _]: Nanos) -> u128 {
    (renew + retry) * 120 / 100 + 2 * operation
}

fn chain([_, deadline, .., grace]: Nanos) -> u128 {
    (deadline + grace) * 11 / 10 + SECOND / 2
}

fn keeps_the_rules(durations: Nanos) -> bool {
    let [lease, deadline, renew, retry, operation, _] = durations;
    let intervals = [renew, retry, operation];
    intervals.iter().all(|d| *d >= 50 * MILLISECOND)
        && (SECOND..=3600 * SECOND).contains(&lease)
        && budget(durations) <= deadline
        && chain(durations) <= lease
}

fn settings(durations: Nanos) -> TimingSettings {
    let [lease, deadline, renew, retry, operation, grace] = durations.map(|nanos| {
        let seconds = u64::try_from(nanos / SECOND).unwrap_or(u64::MAX);
        let rest = u32::try_from(nanos % SECOND).expect("below a second");
        Duration::new(seconds, rest)
    });
    TimingSettings {
        lease_duration: lease,
        renew_deadline: deadline,
        renew_interval: renew,
        retry_interval: retry,
        operation_timeout: operation,
        loss_grace: grace,
    }
}

/// Returns a random value near a bound: equal to it, a nanosecond away, or a little further.
fn near(bound: u128) -> impl Strategy<Value = u128> {
    let other = 0..=2 * bound + 1;
    prop_oneof![
        Just(bound),
        Just(bound.saturating_sub(1)),
        Just(bound + 1),
        other
    ]
}

/// Returns durations near the limits. Many exceed a limit by a nanosecond.
fn near_the_rules() -> impl Strategy<Value = Nanos> {
    let interval = || prop_oneof![near(50 * MILLISECOND), 0..=400 * SECOND];
    let rest = (interval(), interval(), interval(), 0..=400 * SECOND);
    rest.prop_flat_map(|(renew, retry, operation, grace)| {
        let durations = [0, 0, renew, retry, operation, grace];
        (Just(durations), near(budget(durations)))
    })
    .prop_flat_map(|(durations, deadline)| {
        let [_, _, renew, retry, operation, grace] = durations;
        let durations = [0, deadline, renew, retry, operation, grace];
        let lease = prop_oneof![
            3 => near(chain(durations)),
            1 => near(SECOND),
            1 => near(3600 * SECOND)
        ];
        (Just(durations), lease)
    })
    .prop_map(|([_, rest @ ..], lease)| {
        let [deadline, renew, retry, operation, grace] = rest;
        [lease, deadline, renew, retry, operation, grace]
    })
}

fn any_durations() -> impl Strategy<Value = Nanos> {
    let longest = Duration::MAX.as_nanos();
    let one = || prop_oneof![0..=longest, 0..=100 * SECOND, Just(longest)];
    [one(), one(), one(), one(), one(), one()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn durations_are_accepted_if_the_rules_hold(durations in near_the_rules()) {
        let accepted = Timings::new(settings(durations)).is_ok();
        prop_assert_eq!(accepted, keeps_the_rules(durations));
    }

    #[test]
    fn no_durations_overflow(durations in any_durations()) {
        let accepted = Timings::new(settings(durations)).is_ok();
        prop_assert_eq!(accepted, keeps_the_rules(durations));
    }

    #[test]
    fn no_sum_with_accepted_durations_saturates(
        nanos in SECOND..=3600 * SECOND,
        now in 0..=u64::MAX / 4,
    ) {
        // Every other accepted duration is shorter than the lease duration.
        let lease = settings([nanos; 6]).lease_duration;
        let more = RESERVATION_MAX + HEAD_START * HEAD_STARTS_MAX + Duration::from_millis(40);
        prop_assert!(more < Duration::from_secs(61), "as the proof assumes");
        let sum = BootTime::from_nanos(now) + lease + lease + lease + more;
        let exact = u128::from(now) + 3 * nanos + more.as_nanos();
        prop_assert_eq!(u128::from(sum.as_nanos()), exact);
    }

    #[test]
    fn a_later_send_has_no_earlier_deadline(sends: [u64; 2], duration in 0..=u64::MAX) {
        let [first, second] = [sends[0].min(sends[1]), sends[0].max(sends[1])];
        let until = |sent| BootTime::from_nanos(sent) + Duration::from_nanos(duration);
        prop_assert!(until(first) <= until(second));
    }
}

#[test]
fn the_strategies_reach_both_sides() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut accepted = 0;
    for _ in 0..1_000 {
        let drawn = near_the_rules().new_tree(&mut runner).expect("a value");
        accepted += u32::from(keeps_the_rules(drawn.current()));
    }
    assert!((100..900).contains(&accepted), "{accepted} of 1000");
}
