//! Logs a lasting error at growing intervals.

use std::time::Duration;

use leasehold_core::election::BootTime;

/// Default interval between the first and the second line about an error.
const REPEAT_MIN: Duration = Duration::from_secs(2);
const REPEAT_MAX: Duration = Duration::from_secs(300);

/// Maximum number of kinds of failures to remember. Further new kinds are not logged immediately.
const KINDS_MAX: usize = 64;

/// Returns a duration in milliseconds, for a field of a log line.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Decides which failures of one operation are logged.
#[derive(Debug)]
pub struct ErrorThrottle {
    first_interval: Duration,
    since: Option<BootTime>,
    failures: u64,
    logged: bool,
    due_at: BootTime,
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
    /// Creates a throttle with this interval between the first line and the second.
    pub const fn starting_with(first_interval: Duration) -> Self {
        Self {
            first_interval,
            since: None,
            failures: 0,
            logged: false,
            due_at: BootTime::from_nanos(0),
            interval: Duration::ZERO,
            kinds: Vec::new(),
        }
    }

    /// Counts a failure, with the server's error code if any. If the failure should be logged,
    /// returns how long the operation has been failing, and the number of failures.
    pub fn failed(
        &mut self,
        kind: &'static str,
        code: Option<i32>,
        now: BootTime,
    ) -> Option<(Duration, u64)> {
        self.failed_after(Duration::ZERO, kind, code, now)
    }

    /// Counts a failed attempt that took `elapsed`. The error began when its first attempt began.
    pub fn failed_after(
        &mut self,
        elapsed: Duration,
        kind: &'static str,
        code: Option<i32>,
        now: BootTime,
    ) -> Option<(Duration, u64)> {
        let kind = (kind, code);
        let since = *self.since.get_or_insert_with(|| {
            self.failures = 0;
            // Resets the interval only after a quiet period, so that a recurring short error is
            // logged rarely.
            if now >= self.due_at + self.interval {
                self.interval = self.first_interval;
                self.kinds.clear();
            }
            now - elapsed
        });
        self.failures += 1;
        let new_kind = self.kinds.len() < KINDS_MAX && !self.kinds.contains(&kind);
        if new_kind {
            self.kinds.push(kind);
        }
        let due = now >= self.due_at;
        if due {
            self.due_at = now + self.interval;
            self.interval = (self.interval * 2).min(REPEAT_MAX);
        }
        self.logged |= due || new_kind;
        (due || new_kind).then(|| (now.since(since), self.failures))
    }

    /// Records a success, which ends the error. If the error was logged, returns its duration and
    /// the number of failures.
    pub fn over(&mut self, now: BootTime) -> Option<(Duration, u64)> {
        let since = self.since.take()?;
        std::mem::take(&mut self.logged).then(|| (now.since(since), self.failures))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lasting_error_is_logged_at_growing_intervals() {
        let mut throttle = ErrorThrottle::default();
        let start = BootTime::from_nanos(0) + Duration::from_secs(100);
        let lines: Vec<u64> = (0..600)
            .filter(|second| {
                let now = start + Duration::from_secs(*second);
                throttle.failed("a", None, now).is_some()
            })
            .collect();
        assert_eq!(lines, [0, 2, 6, 14, 30, 62, 126, 254, 510]);
        let (end, lasted) = (start + Duration::from_secs(600), Duration::from_secs(600));
        assert_eq!(throttle.over(end), Some((lasted, 600)));
        assert_eq!(throttle.over(end), None);
    }

    #[test]
    fn a_recurring_error_is_not_logged_each_time() {
        let mut throttle = ErrorThrottle::default();
        let start = BootTime::from_nanos(0) + Duration::from_secs(100);
        let mut lines = 0;
        for second in 0..600 {
            let now = start + Duration::from_secs(second);
            lines += u32::from(throttle.failed("a", None, now).is_some());
            lines += u32::from(throttle.over(now).is_some());
        }
        assert!(lines <= 20, "{lines} lines in ten minutes");
    }

    #[test]
    fn a_new_kind_of_failure_is_logged_immediately_and_once() {
        let mut throttle = ErrorThrottle::default();
        let start = BootTime::from_nanos(0) + Duration::from_secs(100);
        let mut logged = |kind, code| throttle.failed(kind, code, start).is_some();
        let kinds = ["a", "b", "a", "b"].map(|kind| logged(kind, None));
        assert_eq!(kinds, [true, true, false, false]);
        let codes = [371, 14031, 371].map(|code| logged("a", Some(code)));
        assert_eq!(codes, [true, true, false]);
    }
}
