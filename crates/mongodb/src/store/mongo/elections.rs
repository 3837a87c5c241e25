use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Bson, Document, doc};

use super::connection::Deployment;
use super::document::integer;
use crate::store::{Failure, StoreKind};

/// Settings of a replica set's elections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailoverSettings {
    /// The setting `electionTimeoutMillis`.
    pub election_timeout: Duration,
    /// The setting `heartbeatIntervalMillis`.
    pub heartbeat_interval: Duration,
    /// The setting `catchUpTimeoutMillis`; `None` for no limit.
    pub catch_up: Option<Duration>,
}

impl Default for FailoverSettings {
    /// MongoDB's defaults.
    fn default() -> Self {
        Self {
            election_timeout: Duration::from_secs(10),
            heartbeat_interval: Duration::from_secs(2),
            catch_up: None,
        }
    }
}

impl FailoverSettings {
    fn of(reply: &Document) -> Self {
        let settings = reply.get_document("config");
        let settings = settings.and_then(|config| config.get_document("settings"));
        let millis = |field| {
            let millis = match settings.as_ref().ok()?.get(field)? {
                Bson::Double(millis) => Some(*millis as i64),
                other => integer(other),
            };
            let millis = u64::try_from(millis?).ok();
            millis.map(Duration::from_millis)
        };
        let default = Self::default();
        let or_default = |field, default| millis(field).unwrap_or(default);
        Self {
            election_timeout: or_default("electionTimeoutMillis", default.election_timeout),
            heartbeat_interval: or_default("heartbeatIntervalMillis", default.heartbeat_interval),
            // MongoDB's default is -1, which means no limit.
            catch_up: millis("catchUpTimeoutMillis"),
        }
    }

    /// Returns how long members wait without a primary before they call an election, excluding the
    /// random offset. If the heartbeat interval is longer than the election timeout, members notice
    /// the loss only after the heartbeat interval.
    pub fn noticed_after(&self) -> Duration {
        self.election_timeout.max(self.heartbeat_interval)
    }
}

impl Deployment {
    /// Requires the right `replSetGetConfig`.
    pub(super) async fn failover_settings(self: &Arc<Self>) -> Result<FailoverSettings, Failure> {
        if self.kind() == Some(StoreKind::Sharded) {
            let why = "routers do not show the settings of their shards";
            return Err(Failure::new(why, ""));
        }
        let reply = self.admin(doc! { "replSetGetConfig": 1 }).await?;
        Ok(FailoverSettings::of(&reply))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_of_two_settings_decides_and_missing_or_odd_ones_have_defaults() {
        let of = |settings| FailoverSettings::of(&doc! { "config": { "settings": settings } });
        assert_eq!(of(doc! {}), FailoverSettings::default());
        let fast = doc! { "electionTimeoutMillis": 2_000, "heartbeatIntervalMillis": 500 };
        assert_eq!(of(fast).noticed_after(), Duration::from_secs(2));
        let slow = doc! { "electionTimeoutMillis": 2_000, "heartbeatIntervalMillis": 5_000 };
        assert_eq!(of(slow).noticed_after(), Duration::from_secs(5));
        for two in [
            Bson::Int32(2_000),
            Bson::Int64(2_000),
            Bson::Double(2_000.0),
        ] {
            let limited = of(doc! { "catchUpTimeoutMillis": two });
            assert_eq!(limited.catch_up, Some(Duration::from_secs(2)));
        }
        for none in [Bson::Int32(-1), Bson::Double(-1.0), Bson::Null] {
            assert_eq!(of(doc! { "catchUpTimeoutMillis": none }).catch_up, None);
        }
    }
}
