//! Work does not begin within its period after a success was recorded, and only successes are. A
//! success that is dated in the future skips the work for at most one period before and after.

use std::ops::Range;
use std::time::Duration;

use super::{Violation, explain, require};

/// Checks work that begins `since` the last success of its key was recorded.
pub(crate) fn begun(since: Duration, period: Duration) -> Option<Violation> {
    // The clock of the store has milliseconds.
    let whole = since + Duration::from_millis(1);
    explain(whole >= period, "once per period", || {
        format!("begun {since:?} after a success, of {period:?}")
    })
}

/// Checks work that is skipped because of a success `ago`.
pub(crate) fn skipped(recorded: bool, ago: Duration, period: Duration) -> Option<Violation> {
    explain(recorded && ago < period, "skips are due", || {
        format!("skipped {ago:?} after a success, of {period:?}; recorded: {recorded}")
    })
}

/// A success that a majority has, in true time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recorded {
    /// Its time by the clock of the store, which may have been ahead.
    pub(crate) dated: Duration,
    /// Time at which a majority had it.
    pub(crate) at: Duration,
}

/// Checks work that is skipped by a process that `ran` while the clock of the store was right: the
/// date of a success is less than one period away, before or after.
pub(crate) fn dated(
    successes: &[Recorded],
    ran: Range<Duration>,
    period: Duration,
) -> Option<Violation> {
    let near =
        |success: &Recorded| success.dated + period > ran.start && success.dated < ran.end + period;
    explain(successes.iter().any(near), "skips end", || {
        format!("skipped in {ran:?}, of {period:?}: {successes:?}")
    })
}

/// Checks a claim whose success is recorded.
pub(crate) fn recorded(succeeded: bool) -> Option<Violation> {
    require(succeeded, "only successes are recorded", &succeeded)
}

#[test]
fn work_that_begins_again_within_its_period_is_found() {
    let period = Duration::from_secs(60);
    assert_eq!(begun(period, period), None);
    assert!(begun(period - Duration::from_millis(2), period).is_some());
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
    let seconds = Duration::from_secs;
    let found = |date: u64| {
        let success = Recorded {
            dated: seconds(date),
            at: seconds(10),
        };
        dated(&[success], seconds(100)..seconds(110), seconds(60))
    };
    let [early, first, last, late] = [40, 41, 169, 170].map(found);
    assert!(first.is_none() && last.is_none());
    assert!(early.is_some() && late.is_some());
}

#[test]
fn a_failure_that_is_recorded_is_found() {
    assert_eq!(recorded(true), None);
    assert!(recorded(false).is_some());
}
