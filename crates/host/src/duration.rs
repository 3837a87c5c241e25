//! Parses durations in the configuration, flags and HTTP requests.

use std::time::Duration;

pub use leasehold_clock::duration::{short, shown};

/// Parses a duration with its unit, between two bounds. The error describes the accepted values.
pub fn parse_duration(text: &str, min: Duration, max: Duration) -> Result<Duration, String> {
    // A longer text or number is a mistake, and could overflow the sum that the parser computes.
    const LENGTH_MAX: usize = 32;
    const DIGITS_MAX: usize = 9;
    const EXPECTED: &str = "expected a duration such as \"500ms\", \"18s\" or \"1m30s\"";

    let text = text.trim();
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    if text.len() > LENGTH_MAX || numbers.any(|digits| digits.len() > DIGITS_MAX) {
        return Err(EXPECTED.to_owned());
    }
    if !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || c == '.') {
        return Err(unit_is_missing(text, min, max));
    }
    let duration = humantime::parse_duration(text).map_err(|_| EXPECTED.to_owned())?;
    if duration.subsec_nanos() % 1_000_000 != 0 {
        return Err("expected whole milliseconds".to_owned());
    }
    if duration < min || duration > max {
        return Err(format!("expected a duration {}", range(min, max)));
    }
    Ok(duration)
}

/// Returns the error for a number without a unit.
pub fn unit_is_missing(number: &str, min: Duration, max: Duration) -> String {
    let seconds = format!("{number}s");
    if parse_duration(&seconds, min, max).is_ok() {
        format!("expected a duration with its unit: write \"{seconds}\" for seconds")
    } else {
        format!("expected a duration with its unit, {}", range(min, max))
    }
}

fn range(min: Duration, max: Duration) -> String {
    let [min, max] = [min, max].map(shown);
    format!("between {min} and {max}")
}
