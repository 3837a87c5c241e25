//! When to repeat a line about a trouble that lasts.

use std::time::Duration;

use crate::election::BootTime;

/// From the first line to the second.
const INTERVAL_MIN: Duration = Duration::from_secs(10);
/// The longest time between two lines.
const INTERVAL_MAX: Duration = Duration::from_secs(300);

/// Paces the lines about one trouble, at growing intervals.
#[derive(Debug, Default)]
pub struct Repeat {
    next: Option<(BootTime, Duration)>,
}

impl Repeat {
    /// True if a line is due; the next one is due after a longer time.
    pub fn is_due(&mut self, now: BootTime) -> bool {
        let interval = match self.next {
            Some((at, _)) if now < at => return false,
            Some((_, interval)) => (interval * 2).min(INTERVAL_MAX),
            None => INTERVAL_MIN,
        };
        self.next = Some((now + interval, interval));
        true
    }

    /// The trouble is over. Returns true if there was a line about it.
    pub fn reset(&mut self) -> bool {
        self.next.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_at_growing_intervals_and_begin_anew() {
        let start = BootTime::from_nanos(0) + Duration::from_secs(100);
        let mut repeat = Repeat::default();
        let mut lines = |seconds: std::ops::Range<u64>| -> Vec<u64> {
            seconds
                .filter(|second| repeat.is_due(start + Duration::from_secs(*second)))
                .collect()
        };
        assert_eq!(lines(0..1000), [0, 10, 30, 70, 150, 310, 610, 910]);
        assert!(repeat.reset() && !repeat.reset());
        assert!(repeat.is_due(start));
    }
}
