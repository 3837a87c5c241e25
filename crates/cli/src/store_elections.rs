//! Compares `renew_deadline` with the duration of a MongoDB election, for `check` and the log.

use std::time::Duration;

use leasehold_core::election::{Timings, election_gap};
use leasehold_host::duration::shown;
use leasehold_mongodb::store::FailoverSettings;

/// The `renew_deadline` that a leader needs to survive an election.
pub struct Needed {
    /// Time without writes during an election.
    pub gap: Duration,
    /// The needed `renew_deadline`.
    pub sum: Duration,
    /// The sum, written out for messages.
    pub arithmetic: String,
    /// True if the configured `renew_deadline` is long enough.
    pub suffices: bool,
}

impl Needed {
    /// Computes the needed `renew_deadline` from these timings and the replica set's settings.
    pub fn of(timings: &Timings, settings: &FailoverSettings) -> Self {
        let noticed = settings.noticed_after();
        let gap = election_gap(noticed);
        let sum = timings.renew_deadline_for(gap);
        let setting = match settings.heartbeat_interval > settings.election_timeout {
            true => "heartbeatIntervalMillis",
            false => "electionTimeoutMillis",
        };
        let arithmetic = format!(
            "{setting} {} × 1.15 + 0.6s = {} without writes; + operation_timeout {} + 1.2 × retry_interval {} + 0.5s = {}; renew_deadline {}",
            shown(noticed),
            shown(gap),
            shown(timings.operation_timeout()),
            shown(timings.retry_interval()),
            shown(sum),
            shown(timings.renew_deadline())
        );
        Self {
            gap,
            sum,
            arithmetic,
            suffices: sum <= timings.renew_deadline(),
        }
    }

    /// Returns the remedy for a `renew_deadline` that is too short.
    pub fn remedy(&self) -> String {
        format!(
            "raise lease.renew_deadline to {} or more (and lease.lease_duration with it), or lower electionTimeoutMillis (docs/mongodb.md)",
            shown(self.sum)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arithmetic_names_the_setting_that_decides() {
        let timings = Timings::default();
        let needed = Needed::of(&timings, &FailoverSettings::default());
        assert!(needed.suffices);
        assert_eq!(
            needed.arithmetic,
            "electionTimeoutMillis 10s × 1.15 + 0.6s = 12.1s without writes; + operation_timeout 3s + 1.2 × retry_interval 1s + 0.5s = 16.8s; renew_deadline 18s"
        );
        let missed = FailoverSettings {
            heartbeat_interval: Duration::from_secs(15),
            ..FailoverSettings::default()
        };
        let needed = Needed::of(&timings, &missed);
        assert!(!needed.suffices);
        let named = needed.arithmetic.starts_with("heartbeatIntervalMillis 15s");
        assert!(named, "{}", needed.arithmetic);
    }
}
