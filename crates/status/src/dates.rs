//! Formats dates for humans and for JSON.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::election::WallMillis;
use leasehold_host::duration::short;

/// The last second of the year 9999, the latest that RFC 3339 can represent. Dates are clamped to
/// 1970–9999, because humantime panics outside this range, and a clock may never have been set.
pub(crate) const DATE_LAST: Duration = Duration::from_secs(253_402_300_799);

/// A date at least this far in the future shows that two clocks differ.
const SKEW_MIN: Duration = Duration::from_secs(1);

/// Formats a date of a document in RFC 3339 with milliseconds.
pub fn date(at: WallMillis) -> String {
    formatted(since_epoch(at))
}

/// Formats a date in RFC 3339 with seconds, for tables with a separate column for the age.
pub fn date_in_seconds(at: WallMillis) -> String {
    in_seconds(since_epoch(at))
}

/// Formats a date for humans, with its age: `2026-11-22T03:00:41Z (6m12s ago)`.
pub fn dated(at: WallMillis, now: SystemTime) -> String {
    with_age(since_epoch(at), now, "")
}

/// Like [`dated`], for a date on a holder's clock, which may be wrong:
/// `2026-11-22T03:00:41Z (6m12s ago by its clock)`.
pub fn dated_by_holder(at: WallMillis, now: SystemTime) -> String {
    with_age(since_epoch(at), now, " by its clock")
}

/// Formats a date from JSON like [`dated`]. Returns the text unchanged if the text is not a date.
pub fn with_its_age(date: &str, now: SystemTime) -> String {
    let at = humantime::parse_rfc3339(date).ok();
    let at = at.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    at.map_or_else(|| date.to_owned(), |at| with_age(at, now, ""))
}

pub(crate) fn with_age(at: Duration, now: SystemTime, clock: &str) -> String {
    if at.is_zero() {
        return "an unknown time".to_owned();
    }
    let date = in_seconds(at);
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let ahead = at.saturating_sub(now);
    if ahead >= SKEW_MIN {
        let ahead = short(ahead);
        return format!("{date} ({ahead} in the future, so the clocks differ)");
    }
    let age = short(now.saturating_sub(at));
    format!("{date} ({age} ago{clock})")
}

pub(crate) fn formatted(since_epoch: Duration) -> String {
    humantime::format_rfc3339_millis(UNIX_EPOCH + since_epoch.min(DATE_LAST)).to_string()
}

fn in_seconds(since_epoch: Duration) -> String {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + since_epoch.min(DATE_LAST)).to_string()
}

fn since_epoch(at: WallMillis) -> Duration {
    Duration::from_millis(u64::try_from(at.0).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_has_its_age_unless_the_clocks_differ() {
        let now = UNIX_EPOCH + Duration::from_secs(1_000_000_372);
        for (at, shown) in [
            (1_000_000_000_000, "2001-09-09T01:46:40Z (6m12s ago)"),
            (1_000_000_371_600, "2001-09-09T01:52:51Z (0.4s ago)"),
            (1_000_000_372_999, "2001-09-09T01:52:52Z (0.0s ago)"),
            (
                1_000_000_377_000,
                "2001-09-09T01:52:57Z (5s in the future, so the clocks differ)",
            ),
            (0, "an unknown time"),
            (-5, "an unknown time"),
        ] {
            assert_eq!(dated(WallMillis(at), now), shown);
            let of_holder = shown.replace(" ago)", " ago by its clock)");
            assert_eq!(dated_by_holder(WallMillis(at), now), of_holder);
        }
        assert_eq!(date(WallMillis(i64::MAX)), "9999-12-31T23:59:59.000Z");
        let last = "9999-12-31T23:59:59Z (";
        assert!(dated(WallMillis(i64::MAX), now).starts_with(last));
    }
}
