//! The options that leases and locks have in common.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mongodb::Client;

use crate::store::KnownHome;
use crate::trace::Trace;
use leasehold_core::election::{Identity, Timings};

/// Source of the connection string, which is read again when the store cannot be used, so that a
/// rotated secret takes effect. An error is a message without secrets.
pub type UriProvider = Arc<dyn Fn() -> Result<String, String> + Send + Sync>;

/// Names the source of the connection string, if it has a name.
pub type UriName = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// How a candidate learns of changes that others make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum WatchMode {
    /// Hints if their collection exists and the holder leaves some; otherwise a change stream.
    #[default]
    Auto,
    /// Hints. Creates their collection if it does not exist. If they cannot be used, polls.
    Hints,
    /// A change stream. If there is none, polls.
    Stream,
    /// Polls.
    Poll,
}

/// Options of a collection of leases and locks: connection, identity and timings.
///
/// [`StoreOptions::new`] sets the defaults; assign to the fields to change them.
#[derive(Clone)]
#[non_exhaustive]
pub struct StoreOptions {
    /// The source of the connection string.
    pub uri: UriProvider,
    /// Returns the name of that source, such as the path of a file, for messages.
    pub uri_name: UriName,
    /// The client to use instead of one of its own: see [`StoreOptions::with_client`].
    pub client: Option<Client>,
    /// The database; `leasehold` by default.
    pub database: String,
    /// The collection; `leases` by default.
    pub collection: String,
    /// Name of this process, informational: in the documents, and in the server's logs unless the URI
    /// sets an appName.
    pub identity: Identity,
    /// Address of this process, written into the lease document; informational.
    pub address: Option<String>,
    /// The timings of the election or the lock, and of the calls that they make.
    pub timings: Timings,
    /// Interval between the driver's checks of each server, which detect a frozen primary; 10 s by
    /// default, and at most `renew_interval` for a lock. A candidate notices elections immediately,
    /// whatever the interval is.
    pub heartbeat: Duration,
    /// The source of changes for a candidate; locks always use a change stream.
    pub watch: WatchMode,
    /// The recorded deployment: with it, a restarted process does not follow a connection string to
    /// another deployment.
    pub home: Option<KnownHome>,
    /// The file that records everything that the candidate or contender does; none by default. Each
    /// line is written before the event loop goes on.
    pub trace: Option<Trace>,
}

impl StoreOptions {
    /// A collection that `uri` leads to, with defaults for the rest.
    pub fn new(uri: impl Into<String>, identity: Identity) -> Self {
        let uri = uri.into();
        Self::with_uri_provider(Arc::new(move || Ok(uri.clone())), identity)
    }

    /// Like [`StoreOptions::new`], with a connection string that may change.
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

    /// Uses an existing client, for example the program's own, also for several leases and locks. It
    /// belongs to the caller and is never shut down.
    ///
    /// `uri` must be the connection string that the client was created with: its servers are compared
    /// and its settings are refused as usual. Each call sets its own read and write concern. Other
    /// settings remain the client's:
    ///
    /// - Its monitors report nothing here. The first failed call notices an election of the set.
    ///   Each call first asks the primary for its set: one more round trip.
    /// - `retryWrites`, the timeouts, `heartbeatFrequencyMS` and the pool remain its own. Set
    ///   `max_pool_size` to the sum of: one connection for each waiter for a lock (its change
    ///   stream holds it), one for each elector, 20 for the calls, and the program's own. A renewal
    ///   that waits for a connection can cost the lock or the lease, and the driver's default is
    ///   10.
    /// - It is not replaced when a certificate or a password changes, and works only as long as the
    ///   runtime that created it.
    #[must_use]
    pub fn with_client(mut self, client: Client) -> Self {
        self.client = Some(client);
        self
    }

    /// Returns the name of a document in traces.
    pub(crate) fn document(&self, name: &str) -> String {
        format!("{}.{}/{name}", self.database, self.collection)
    }
}

impl fmt::Debug for StoreOptions {
    /// Without the connection string, which may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreOptions")
            .field("database", &self.database)
            .field("collection", &self.collection)
            .field("identity", &self.identity)
            .field("timings", &self.timings)
            .finish_non_exhaustive()
    }
}
