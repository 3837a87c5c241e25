use std::time::Duration;

use leasehold_clock as clock;
use leasehold_core::election::BootTime;

/// A turn of a loop that takes this much longer than its maximum was interrupted.
const LATE_MIN: Duration = Duration::from_secs(1);

/// Detects turns of a loop during which this process did not run (stopped or suspended), or could
/// not write its output.
pub(in super::super) struct StallDetector {
    turn_max: Duration,
    began: BootTime,
}

impl StallDetector {
    /// Begins the first turn.
    pub(in super::super) fn new(turn_max: Duration) -> Self {
        let began = clock::boot_now();
        Self { turn_max, began }
    }

    /// Ends a turn and begins the next turn. Returns the duration of the ended turn if it was
    /// interrupted.
    pub(in super::super) fn stalled(&mut self) -> Option<Duration> {
        let now = clock::boot_now();
        let took = now.since(std::mem::replace(&mut self.began, now));
        (took > self.turn_max + LATE_MIN).then_some(took)
    }
}
