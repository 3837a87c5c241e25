//! The settings of a replica set that decide how long an election of its primary takes.

use std::time::Duration;

/// Settings of a replica set's elections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailoverSettings {
    /// `electionTimeoutMillis`.
    pub election_timeout: Duration,
    /// `heartbeatIntervalMillis`.
    pub heartbeat_interval: Duration,
    /// `catchUpTimeoutMillis`; `None` for no limit.
    pub catch_up: Option<Duration>,
}

impl Default for FailoverSettings {
    /// Returns MongoDB's defaults.
    fn default() -> Self {
        Self {
            election_timeout: Duration::from_secs(10),
            heartbeat_interval: Duration::from_secs(2),
            catch_up: None,
        }
    }
}

impl FailoverSettings {
    /// Returns the time after which the members call an election, without its random offset.
    /// Members that send heartbeats less often than that notice later.
    pub fn noticed_after(&self) -> Duration {
        self.election_timeout.max(self.heartbeat_interval)
    }
}
