use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mongodb::Client;

use crate::store::KnownHome;
use crate::trace::Trace;
use leasehold_core::election::{Identity, Timings};

/// Returns the connection string, or an error message without secrets. The store calls this
/// function again after a failure, so that a rotated secret takes effect.
pub type UriProvider = Arc<dyn Fn() -> Result<String, String> + Send + Sync>;

/// Returns the name of the connection string's source, if it has a name.
pub type UriName = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// How a candidate notices writes by other processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum WatchMode {
    /// The candidate follows hints if the holder writes hints, otherwise a change stream. The
    /// candidate creates the collection of hints if its role permits this.
    #[default]
    Auto,
    /// The candidate follows hints and creates their collection, or polls if hints cannot be used.
    Hints,
    /// The candidate follows a change stream, or polls if no stream can be opened.
    Stream,
    /// The candidate polls.
    Poll,
}

/// Options of a collection of leases and locks, with defaults from [`StoreOptions::new`].
#[derive(Clone)]
#[non_exhaustive]
pub struct StoreOptions {
    /// The source of the connection string.
    pub uri: UriProvider,
    /// The name of that source in messages, such as a file's path.
    pub uri_name: UriName,
    /// An existing client to use: see [`StoreOptions::with_client`].
    pub client: Option<Client>,
    /// The database; `leasehold` by default.
    pub database: String,
    /// The collection; `leases` by default.
    pub collection: String,
    /// Name of this process in documents and, without an appName, in server logs. Informational.
    pub identity: Identity,
    /// Address of this process in the lease document. Informational.
    pub address: Option<String>,
    /// The timings of the election or lock, and of calls to MongoDB.
    pub timings: Timings,
    /// Interval at which the driver checks each server, to detect a frozen primary. 10 s by
    /// default. For a lock with a `renew_interval` of 1 s or more, the interval is at most
    /// `renew_interval`, and an election may be noticed only at a check. Otherwise, elections are
    /// noticed immediately.
    pub heartbeat: Duration,
    /// The source of changes for a candidate; locks always use a change stream.
    pub watch: WatchMode,
    /// The recorded deployment. A connection string to a different deployment is refused.
    pub home: Option<KnownHome>,
    /// The trace, if any. Each line is written before the event loop continues.
    pub trace: Option<Trace>,
}

impl StoreOptions {
    /// Creates options with the defaults.
    pub fn new(uri: impl Into<String>, identity: Identity) -> Self {
        let uri = uri.into();
        Self::with_uri_provider(Arc::new(move || Ok(uri.clone())), identity)
    }

    /// Like [`StoreOptions::new`], but for a connection string that may change.
    pub fn with_uri_provider(uri: UriProvider, identity: Identity) -> Self {
        Self {
            uri,
            uri_name: Arc::new(|| None),
            client: None,
            database: "leasehold".to_owned(),
            collection: "leases".to_owned(),
            identity,
            address: None,
            timings: Timings::default(),
            heartbeat: Duration::from_secs(10),
            watch: WatchMode::default(),
            home: None,
            trace: None,
        }
    }

    /// Uses the program's own client, which leasehold never shuts down. Leases and locks may share
    /// this client.
    ///
    /// `uri` must be the client's connection string, because leasehold checks the servers and
    /// options in this string as usual. Each call sets its own read and write concern. Differences:
    ///
    /// - The client's monitors do not report to leasehold. An election is noticed only when a call
    ///   fails, and each call first asks the primary for its set, which costs a round trip.
    /// - The client keeps its `retryWrites`, timeouts, `heartbeatFrequencyMS` and pool. Set
    ///   `max_pool_size` to the sum of one connection per waiter for a lock (for its change
    ///   stream), one per elector, 20 for the calls, and the program's own connections. The
    ///   driver's default is only 10, and a renewal that waits for a connection can cost the lock
    ///   or the lease.
    /// - The client is not replaced when a certificate or a password changes. The client works only
    ///   as long as the runtime that created it.
    #[must_use]
    pub fn with_client(mut self, client: Client) -> Self {
        self.client = Some(client);
        self
    }

    pub(crate) fn document(&self, name: &str) -> String {
        format!("{}.{}/{name}", self.database, self.collection)
    }
}

impl fmt::Debug for StoreOptions {
    /// Omits the connection string, which may contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreOptions")
            .field("database", &self.database)
            .field("collection", &self.collection)
            .field("identity", &self.identity)
            .field("timings", &self.timings)
            .finish_non_exhaustive()
    }
}
