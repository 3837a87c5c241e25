//! Translates the configuration into options of the library and of a supervised command.

use std::sync::Arc;

use super::uri_notices::log_for_job;
use leasehold_config::{LockConfig, MongoConfig, UriSource, WorkloadConfig, shown_path};
use leasehold_core::election::{Identity, Timings};
use leasehold_mongodb::store::mongo::{StoreOptions, UriProvider};
use leasehold_supervisor::StopMethod;

/// Returns the options of the configured collection.
pub fn store_options(
    mongodb: &MongoConfig,
    uri: UriProvider,
    identity: Identity,
    timings: Timings,
) -> StoreOptions {
    let mut options = StoreOptions::with_uri_provider(uri, identity);
    let name = name(&mongodb.uri);
    options.uri_name = Arc::new(move || name.clone());
    options.database.clone_from(&mongodb.database);
    options.collection.clone_from(&mongodb.collection);
    options.heartbeat = mongodb.heartbeat;
    options.watch = mongodb.watch;
    options.timings = timings;
    options
}

/// Returns the options of a short-lived command, which reads its connection string when needed.
pub fn of_locks(config: &LockConfig, timings: Timings) -> StoreOptions {
    let source = config.mongodb.uri.clone();
    let uri = Arc::new(move || {
        let uri = read(&source)?;
        log_for_job(&uri);
        Ok(uri)
    });
    store_options(&config.mongodb, uri, config.identity.name.clone(), timings)
}

/// Returns the path of the file with the connection string, for messages.
pub fn name(source: &UriSource) -> Option<String> {
    match source {
        UriSource::File(path) => Some(shown_path(path)),
        UriSource::Inline(_) | UriSource::Pipe(..) => None,
    }
}

/// Returns how a supervised command is stopped.
pub fn stopping(workload: &WorkloadConfig) -> StopMethod {
    StopMethod {
        signal: workload.stop_signal.0,
        scope: workload.stop_scope,
        grace: workload.stop_grace,
        linger: workload.linger,
    }
}

/// Reads the connection string for the library. An error contains no part of the string.
pub fn read(source: &UriSource) -> Result<String, String> {
    Ok(source.read()?.expose().to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use leasehold_config::{Choice, duration, find};
    use leasehold_core::election::ResourceName;
    use leasehold_mongodb::elector::ElectorOptions;
    use leasehold_mongodb::store::mongo::WatchMode;

    #[test]
    fn the_library_has_the_defaults_of_the_configuration() {
        let identity = Identity::new("a").expect("legal");
        let store = StoreOptions::new("mongodb://localhost", identity);
        let options = ElectorOptions::new(store, ResourceName::new("orders").expect("legal"));
        let default = |key| find(key).expect("it is in the table").default();
        let time = |key| duration(default(key), Duration::ZERO, Duration::MAX);
        let ElectorOptions {
            store,
            handoff_delay,
            ..
        } = options;
        assert_eq!(store.database, default("mongodb.database"));
        assert_eq!(store.collection, default("mongodb.collection"));
        assert_eq!(Ok(store.heartbeat), time("mongodb.heartbeat"));
        assert_eq!(Some(store.watch), WatchMode::of(default("mongodb.watch")));
        assert_eq!(Ok(handoff_delay), time("lease.handoff_delay"));
        assert_eq!(store.timings, Timings::default());
    }
}
