//! Formats durations for humans, and parses them in the configuration, flags and HTTP requests.

use std::time::Duration;

/// Parses a duration with its unit, between two bounds. The error describes the accepted values.
pub fn parse_duration(text: &str, min: Duration, max: Duration) -> Result<Duration, String> {
    // Longer texts or numbers are mistakes, and could overflow the parser's sum.
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
        format!("expected a duration with its unit: write \"{seconds}\" if seconds are meant")
    } else {
        format!("expected a duration with its unit, {}", range(min, max))
    }
}

fn range(min: Duration, max: Duration) -> String {
    let [min, max] = [min, max].map(humantime::format_duration);
    format!("between {min} and {max}")
}

/// Returns a duration in milliseconds, with three digits after the point.
pub fn rounded_millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

/// Formats a duration for humans: "0.42 ms", "18 ms", "2.5 s".
pub fn shown(duration: Duration) -> String {
    let millis = rounded_millis(duration);
    match millis {
        ..10.0 => format!("{millis:.2} ms"),
        ..1000.0 => format!("{millis:.0} ms"),
        _ => format!("{} s", (millis / 100.0).round() / 10.0),
    }
}
