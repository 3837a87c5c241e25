use std::time::Duration;

use mongodb::options::{ClientOptions, ServerMonitoringMode};

use leasehold_core::election::Timings;

/// Minimum heartbeat interval of the driver.
const INTERVAL_MIN: Duration = Duration::from_millis(500);
/// Minimum renewal interval for polling; below it, polling would cost more than streaming.
const RENEWALS_MIN: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store::mongo) enum Monitoring {
    /// Each server reports a change immediately, over a second connection.
    Reports,
    /// Each server is polled at an interval and after an error. Suits locks, because most holders
    /// finish within a second, and polling then needs only one connection per server.
    Checks,
}

impl Monitoring {
    /// With polling, an election is noticed when a call fails, or at most one renewal interval
    /// after the election.
    pub(in crate::store::mongo) fn of_locks(timings: &Timings) -> Self {
        match timings.renew_interval() >= RENEWALS_MIN {
            true => Self::Checks,
            false => Self::Reports,
        }
    }

    pub(super) fn apply(self, options: &mut ClientOptions, heartbeat: Duration, timings: &Timings) {
        let (mode, interval) = match self {
            // The driver's default mode polls in serverless environments (`K_SERVICE`, …).
            Self::Reports => (ServerMonitoringMode::Stream, heartbeat),
            Self::Checks => {
                let interval = heartbeat.min(timings.renew_interval()).max(INTERVAL_MIN);
                (ServerMonitoringMode::Poll, interval)
            }
        };
        options.server_monitoring_mode = Some(mode);
        options.heartbeat_freq = Some(interval);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::lock::scaled;

    #[test]
    fn a_lock_is_checked_at_the_pace_of_its_renewals() {
        let defaults = Timings::default();
        let applied = |lease: u64, heartbeat: u64| {
            let timings = scaled(&defaults, Duration::from_secs(lease)).expect("legal");
            let mut options = ClientOptions::default();
            let monitoring = Monitoring::of_locks(&timings);
            monitoring.apply(&mut options, Duration::from_millis(heartbeat), &timings);
            (options.server_monitoring_mode, options.heartbeat_freq)
        };
        let every = |millis| Some(Duration::from_millis(millis));
        let (checks, reports) = (
            Some(ServerMonitoringMode::Poll),
            Some(ServerMonitoringMode::Stream),
        );
        assert_eq!(applied(24, 10_000), (checks.clone(), every(3_000)));
        assert_eq!(applied(24, 600), (checks.clone(), every(600)));
        assert_eq!(applied(3_600, 10_000), (checks, every(10_000)));
        assert_eq!(applied(3, 10_000), (reports, every(10_000)));
    }
}
