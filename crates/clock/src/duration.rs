//! Formats durations for humans, with at most two units, such as `1m30s`.

use std::time::Duration;

/// Formats an age or a waiting time. Shows tenths of a second below ten seconds.
pub fn short(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let two = |first: u64, unit: &str, second: u64, lesser: &str| match second {
        0 => format!("{first}{unit}"),
        second => format!("{first}{unit}{second}{lesser}"),
    };
    let tenths = (duration.as_secs_f64() * 10.0).round() / 10.0;
    match seconds {
        _ if tenths < 1.0 => format!("{tenths:.1}s"),
        0..10 => format!("{tenths}s"),
        10..60 => format!("{seconds}s"),
        60..3600 => two(seconds / 60, "m", seconds % 60, "s"),
        3600..86_400 => two(seconds / 3600, "h", seconds % 3600 / 60, "m"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3600, "h"),
    }
}

/// Formats a measured or configured duration: like [`short`], but in milliseconds below a second,
/// and with tenths of a second below a minute.
pub fn shown(duration: Duration) -> String {
    let millis = duration.as_secs_f64() * 1e3;
    match millis {
        _ if duration.is_zero() => "0s".to_owned(),
        ..10.0 => format!("{}ms", (millis * 1e2).round() / 1e2),
        ..100.0 => format!("{}ms", (millis * 1e1).round() / 1e1),
        ..999.5 => format!("{millis:.0}ms"),
        ..59_950.0 => format!("{}s", (millis / 100.0).round() / 10.0),
        _ => short(Duration::from_secs_f64((millis / 1e3).round())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_at_most_two_units() {
        for (millis, text) in [
            (0, "0.0s"),
            (420, "0.4s"),
            (3_000, "3s"),
            (3_260, "3.3s"),
            (8_999, "9s"),
            (9_990, "10s"),
            (24_000, "24s"),
            (60_000, "1m"),
            (192_000, "3m12s"),
            (11_520_000, "3h12m"),
            (90_000_000, "1d1h"),
        ] {
            assert_eq!(short(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn measured_durations_keep_two_significant_digits() {
        for (micros, text) in [
            (0, "0s"),
            (420, "0.42ms"),
            (9_400, "9.4ms"),
            (13_640, "13.6ms"),
            (250_000, "250ms"),
            (999_700, "1s"),
            (2_020_000, "2s"),
            (16_800_000, "16.8s"),
            (59_980_000, "1m"),
            (90_000_000, "1m30s"),
            (31 * 86_400_000_000, "31d"),
        ] {
            assert_eq!(shown(Duration::from_micros(micros)), text);
        }
    }
}
