//! The settings of a replica set that decide how long an election of its primary takes.

use std::sync::Arc;

use mongodb::bson::{Document, doc};
use mongodb::options::{ReadPreference, SelectionCriteria};

use super::connection::{Deployment, SendError};
use super::probe::millis;
use crate::store::{FailoverSettings, Failure, StoreKind};

/// Reads the reply to `replSetGetConfig`.
fn read(reply: &Document) -> FailoverSettings {
    let settings = reply.get_document("config");
    let settings = settings.and_then(|config| config.get_document("settings"));
    let settings = settings.cloned().unwrap_or_default();
    let default = FailoverSettings::default();
    FailoverSettings {
        election_timeout: millis(&settings, "electionTimeoutMillis")
            .unwrap_or(default.election_timeout),
        heartbeat_interval: millis(&settings, "heartbeatIntervalMillis")
            .unwrap_or(default.heartbeat_interval),
        // Negative, which is the default, means no limit.
        catch_up: millis(&settings, "catchUpTimeoutMillis"),
    }
}

impl Deployment {
    /// Returns the settings of the set's elections. Needs the right `replSetGetConfig`.
    pub(super) async fn failover_settings(self: &Arc<Self>) -> Result<FailoverSettings, Failure> {
        if self.kind() == Some(StoreKind::Sharded) {
            return Err(Failure::new(
                "routers do not show the settings of their shards",
                "",
            ));
        }
        let collection = self.collection().await;
        let collection = collection.map_err(|error: SendError| self.failure(error))?;
        let admin = collection.client().database("admin");
        let primary = SelectionCriteria::ReadPreference(ReadPreference::Primary);
        let reply = admin
            .run_command(doc! { "replSetGetConfig": 1 })
            .selection_criteria(primary);
        match reply.await {
            Ok(reply) => Ok(read(&reply)),
            Err(error) => Err(self.describe(&error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_longer_of_two_settings_decides_and_missing_ones_have_defaults() {
        let of = |settings| read(&doc! { "config": { "settings": settings } });
        assert_eq!(of(doc! {}), FailoverSettings::default());
        let fast = doc! { "electionTimeoutMillis": 2_000, "heartbeatIntervalMillis": 500 };
        assert_eq!(of(fast).noticed_after(), Duration::from_secs(2));
        let slow = doc! { "electionTimeoutMillis": 2_000, "heartbeatIntervalMillis": 5_000 };
        assert_eq!(of(slow).noticed_after(), Duration::from_secs(5));
        let limited = of(doc! { "catchUpTimeoutMillis": 2_000_i64 });
        assert_eq!(limited.catch_up, Some(Duration::from_secs(2)));
        assert_eq!(of(doc! { "catchUpTimeoutMillis": -1 }).catch_up, None);
    }
}
