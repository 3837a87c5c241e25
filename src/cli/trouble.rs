//! When to speak of a trouble: once, and then at growing intervals.

use std::time::Duration;

use crate::election::BootTime;

/// From the first line about a trouble to the second.
const REPEAT_MIN: Duration = Duration::from_secs(2);
/// The longest time between two lines about a trouble that lasts.
const REPEAT_MAX: Duration = Duration::from_secs(300);

/// A duration as people read it: to the millisecond.
pub(super) fn shown(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    humantime::format_duration(Duration::from_millis(millis)).to_string()
}

/// A trouble that lasts, or comes and goes: when to speak of it again.
#[derive(Default)]
pub(super) struct Trouble {
    since: Option<BootTime>,
    failures: u64,
    /// Whether it was spoken of since it began.
    said: bool,
    speak_at: BootTime,
    interval: Duration,
    /// Kinds that were spoken of: a new one is worth a line at once. The
    /// store knows about twenty.
    kinds: Vec<&'static str>,
}

impl Trouble {
    /// Whether to speak of this failure.
    pub(super) fn failed(&mut self, kind: &'static str, now: BootTime) -> bool {
        if self.since.is_none() {
            self.since = Some(now);
            self.failures = 0;
            // One that comes back before its next line was due goes on where
            // it was, else it would be a line each time.
            if now >= self.speak_at + self.interval {
                self.interval = REPEAT_MIN;
                self.kinds.clear();
            }
        }
        self.failures += 1;
        let new_kind = !self.kinds.contains(&kind);
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

    /// For how long it has lasted, and how many failures it has had.
    pub(super) fn so_far(&self, now: BootTime) -> (Duration, u64) {
        let lasted = self.since.map_or(Duration::ZERO, |since| now.since(since));
        (lasted, self.failures)
    }

    /// Since when it had lasted, and how many failures it had, if it is over
    /// now and was spoken of.
    pub(super) fn over(&mut self) -> Option<(BootTime, u64)> {
        let since = self.since.take()?;
        std::mem::take(&mut self.said).then_some((since, self.failures))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lasting_trouble_is_spoken_of_at_growing_intervals() {
        let mut trouble = Trouble::default();
        let start = BootTime::from_nanos(0) + Duration::from_secs(100);
        let lines: Vec<u64> = (0..600)
            .filter(|second| trouble.failed("a", start + Duration::from_secs(*second)))
            .collect();
        assert_eq!(lines, [0, 2, 6, 14, 30, 62, 126, 254, 510]);
        assert_eq!(trouble.over(), Some((start, 600)));
        assert_eq!(trouble.over(), None);
    }

    #[test]
    fn a_trouble_that_comes_and_goes_is_not_a_line_each_time() {
        let mut trouble = Trouble::default();
        let start = BootTime::from_nanos(0) + Duration::from_secs(100);
        let mut lines = 0;
        for second in 0..600 {
            lines += u32::from(trouble.failed("a", start + Duration::from_secs(second)));
            lines += u32::from(trouble.over().is_some());
        }
        assert!(lines <= 20, "{lines} lines in ten minutes");
    }

    #[test]
    fn another_kind_of_failure_is_spoken_of_at_once_and_once() {
        let mut trouble = Trouble::default();
        let start = BootTime::from_nanos(0) + Duration::from_secs(100);
        let said: Vec<bool> = ["a", "b", "a", "b"]
            .iter()
            .map(|kind| trouble.failed(kind, start))
            .collect();
        assert_eq!(said, [true, true, false, false]);
    }
}
