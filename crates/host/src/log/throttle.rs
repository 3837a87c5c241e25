//! Limits the log lines about a lasting error to growing intervals.

use std::time::Duration;

use leasehold_core::election::BootTime;

/// The second line about an error follows the first one after this interval, by default.
const REPEAT_MIN: Duration = Duration::from_secs(2);
const REPEAT_MAX: Duration = Duration::from_secs(300);

/// At most this many kinds of failures are remembered. Later new kinds are not logged immediately.
const KINDS_MAX: usize = 64;

/// Returns a duration as a field of a log line.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Decides which failures of one operation are logged.
#[derive(Debug)]
pub struct ErrorThrottle {
    first_interval: Duration,
    since: Option<BootTime>,
    failures: u64,
    said: bool,
    speak_at: BootTime,
    interval: Duration,
    /// Failures already logged, by kind and server code. A new kind is logged immediately.
    kinds: Vec<(&'static str, Option<i32>)>,
}

impl Default for ErrorThrottle {
    fn default() -> Self {
        Self::starting_with(REPEAT_MIN)
    }
}

impl ErrorThrottle {
    /// Sets the interval from the first line to the second.
    pub const fn starting_with(first_interval: Duration) -> Self {
        Self {
            first_interval,
            since: None,
            failures: 0,
            said: false,
            speak_at: BootTime::from_nanos(0),
            interval: Duration::ZERO,
            kinds: Vec::new(),
        }
    }

    /// Counts a failure. Returns true if it should be logged.
    pub fn failed(&mut self, kind: &'static str, now: BootTime) -> bool {
        self.failed_with(kind, None, now)
    }

    /// Counts a failure with the server's error code. Returns true if it should be logged.
    pub fn failed_with(&mut self, kind: &'static str, code: Option<i32>, now: BootTime) -> bool {
        let kind = (kind, code);
        if self.since.is_none() {
            self.since = Some(now);
            self.failures = 0;
            // The interval is reset only after a quiet time, so that recurring short errors are
            // not all logged.
            if now >= self.speak_at + self.interval {
                self.interval = self.first_interval;
                self.kinds.clear();
            }
        }
        self.failures += 1;
        let new_kind = self.kinds.len() < KINDS_MAX && !self.kinds.contains(&kind);
        if new_kind {
            self.kinds.push(kind);
        }
        let due = now >= self.speak_at;
        if due {
            self.speak_at = now + self.interval;
            self.interval = (self.interval * 2).min(REPEAT_MAX);
        }
        self.said |= due || new_kind;
        due || new_kind
    }

    /// Returns for how long the operation has been failing, and the number of failures.
    pub fn so_far(&self, now: BootTime) -> (Duration, u64) {
        let lasted = self.since.map_or(Duration::ZERO, |since| now.since(since));
        (lasted, self.failures)
    }

    /// Ends the error. If it was logged, returns when it began, and the number of failures.
    pub fn over(&mut self) -> Option<(BootTime, u64)> {
        let since = self.since.take()?;
        std::mem::take(&mut self.said).then_some((since, self.failures))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_lasts_is_logged_at_growing_intervals() {
        let mut throttle = ErrorThrottle::default();
        let start = BootTime::from_nanos(0) + Duration::from_secs(100);
        let lines: Vec<u64> = (0..600)
            .filter(|second| throttle.failed("a", start + Duration::from_secs(*second)))
            .collect();
        assert_eq!(lines, [0, 2, 6, 14, 30, 62, 126, 254, 510]);
        assert_eq!(throttle.over(), Some((start, 600)));
        assert_eq!(throttle.over(), None);
    }

    #[test]
    fn an_error_that_comes_and_goes_is_not_a_line_each_time() {
        let mut throttle = ErrorThrottle::default();
        let start = BootTime::from_nanos(0) + Duration::from_secs(100);
        let mut lines = 0;
        for second in 0..600 {
            lines += u32::from(throttle.failed("a", start + Duration::from_secs(second)));
            lines += u32::from(throttle.over().is_some());
        }
        assert!(lines <= 20, "{lines} lines in ten minutes");
    }

    #[test]
    fn another_kind_of_failure_is_logged_at_once_and_once() {
        let mut throttle = ErrorThrottle::default();
        let start = BootTime::from_nanos(0) + Duration::from_secs(100);
        let said: Vec<bool> = ["a", "b", "a", "b"]
            .iter()
            .map(|kind| throttle.failed(kind, start))
            .collect();
        assert_eq!(said, [true, true, false, false]);
        let codes = [Some(371), Some(14031), Some(371)];
        let said = codes.map(|code| throttle.failed_with("a", code, start));
        assert_eq!(said, [true, true, false]);
    }
}
