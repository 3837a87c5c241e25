//! After a recorded success, the work does not begin again within its period. Only a success of the
//! work is recorded. If a success is dated in the future, the work is skipped only within one
//! period before or after that date.
//!
//! The checks do not know which of several readings of the store's clock a reply used. They accept
//! the age of a success at any of these readings.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::{Violation, explain, require};

/// Readings of the store's clock, as ranges in which the clock did not jump.
pub(crate) type Readings = [RangeInclusive<Duration>];

/// The clock of the store has a resolution of milliseconds.
const TICK: Duration = Duration::from_millis(1);

/// Checks that the period since a success with this date had passed at one of these readings.
pub(crate) fn begun(dated: Duration, readings: &Readings, period: Duration) -> Option<Violation> {
    let mut ends = readings.iter().flat_map(|it| [*it.start(), *it.end()]);
    let fits = ends.any(|reading| reading.abs_diff(dated) + TICK >= period);
    explain(fits, "once per period", || {
        format!("work began at {readings:?} after a success at {dated:?}, with period {period:?}")
    })
}

/// Checks that work may be skipped because of a success of age `ago`.
pub(crate) fn skipped(recorded: bool, ago: Duration, period: Duration) -> Option<Violation> {
    explain(recorded && ago < period, "skips are due", || {
        format!(
            "work skipped {ago:?} after a success, with period {period:?}; recorded: {recorded}"
        )
    })
}

/// Returns true if a success with this date justifies a skip at one of these readings.
pub(crate) fn skips(dated: Duration, readings: &Readings, period: Duration) -> bool {
    readings.iter().any(|it| {
        let nearest = dated.clamp(*it.start(), *it.end());
        nearest.abs_diff(dated) < period + TICK
    })
}

/// Checks that a skip is justified. `due` is true if a recorded success justifies the skip.
pub(crate) fn ends(due: bool, period: Duration) -> Option<Violation> {
    explain(due, "skips end", || {
        format!("work skipped without a success within the period {period:?}")
    })
}

pub(crate) fn recorded(succeeded: bool) -> Option<Violation> {
    require(succeeded, "only successes are recorded", &succeeded)
}

fn seconds<const N: usize>(readings: [(u64, u64); N]) -> [RangeInclusive<Duration>; N] {
    readings.map(|(from, to)| Duration::from_secs(from)..=Duration::from_secs(to))
}

#[test]
fn work_that_begins_again_within_its_period_is_found() {
    let (success, period) = (Duration::from_secs(100), Duration::from_secs(60));
    for fine in [(160, 160), (40, 40), (150, 160), (40, 150), (300, 300)] {
        assert_eq!(begun(success, &seconds([fine]), period), None, "{fine:?}");
    }
    for early in [(159, 159), (41, 41), (41, 159), (100, 100)] {
        assert!(begun(success, &seconds([early]), period).is_some());
    }
    assert_eq!(
        begun(success, &seconds([(50, 70), (500, 520)]), period),
        None
    );
}

#[test]
fn work_that_is_skipped_without_a_recent_success_is_found() {
    let (period, ago) = (Duration::from_secs(60), Duration::from_secs(59));
    assert_eq!(skipped(true, ago, period), None);
    assert!(skipped(false, ago, period).is_some());
    assert!(skipped(true, period, period).is_some());
}

#[test]
fn work_that_is_skipped_because_of_a_date_far_away_is_found() {
    let skips = |date| {
        let readings = seconds([(100, 110), (500, 500)]);
        skips(
            Duration::from_secs(date),
            &readings,
            Duration::from_secs(60),
        )
    };
    assert!([41, 105, 169, 441, 559].into_iter().all(skips));
    assert!(![39, 172, 438, 562].into_iter().any(skips));
    assert_eq!(ends(true, Duration::from_secs(60)), None);
    assert!(ends(false, Duration::from_secs(60)).is_some());
}

#[test]
fn a_failure_that_is_recorded_is_found() {
    assert_eq!(recorded(true), None);
    assert!(recorded(false).is_some());
}
