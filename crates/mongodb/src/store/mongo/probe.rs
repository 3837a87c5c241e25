//! Probes a deployment. The probes connect like a candidate, and most need only a candidate's four
//! rights. Probes leave no documents behind: the update matches no document, MongoDB refuses the
//! insert, and the transaction with test documents is aborted.

mod certificates;
mod collection;
mod description;
mod latency;

use std::collections::BTreeMap;
use std::sync::Arc;

use mongodb::Collection;
use mongodb::bson::{Bson, Document, doc};
use mongodb::options::{Tls, TlsOptions};

pub use self::certificates::Certificates;
pub use self::description::{Description, Product};
pub use self::latency::{Latencies, MEASURED_MAX};
pub use super::servers::{INITIATE, ServerState, UNINITIATED};

use self::description::text;
use super::connection::{Deployment, Monitoring, SendError};
use super::display::list;
use super::operators::MongoCollection;
use super::options::StoreOptions;
use super::{document, follow, hints, home, outcome, tls};
use crate::store::{FailoverSettings, Failure};
use leasehold_core::election::{BootTime, Found, ResourceName, WallMillis};

/// An `_id` that every MongoDB server refuses, because the value is an array.
const REFUSED_ID: [&str; 1] = ["leasehold check"];

/// Examines a deployment for one lease.
#[derive(Debug)]
pub struct StoreProbe {
    deployment: Arc<Deployment>,
    lease: ResourceName,
}

/// The servers that a connection string names.
#[derive(Debug, Clone)]
pub struct SeedList {
    /// The canonical addresses, as `host:port`.
    pub addresses: Vec<String>,
    /// The replica set that the connection string requires.
    pub set: Option<String>,
    tls: Option<TlsOptions>,
}

/// The user that the deployment has authenticated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    /// The users, as `name@database`; empty without authentication.
    pub users: Vec<String>,
    /// The roles of these users, as `role@database`.
    pub roles: Vec<String>,
}

/// The storage engine of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageEngine {
    /// The engine's name, such as `wiredTiger`.
    pub name: String,
    /// False if the engine keeps data in memory only.
    pub persistent: bool,
}

/// One reading of a server's wall clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTime {
    /// The server's address.
    pub server: String,
    /// Local time before the request was sent.
    pub sent: BootTime,
    /// Local time after the reply was received.
    pub received: BootTime,
    /// The server's wall clock, in milliseconds since 1970.
    pub wall_ms: i64,
}

/// True if the user lacks a right, or if the server requires a user and the URI names none.
pub fn lacks_right(failure: &Failure) -> bool {
    failure.code == Some(outcome::UNAUTHORIZED)
}

/// True if the collection of hints does not exist.
pub fn lacks_hints(failure: &Failure) -> bool {
    failure.kind == hints::NO_HINTS
}

/// True if a server answered and refused the login.
pub fn refuses_login(failure: &Failure) -> bool {
    failure.kind == outcome::LOGIN_REFUSED
}

/// True if no client can be created because the TLS files or options are unusable.
pub fn refuses_tls(failure: &Failure) -> bool {
    [tls::REFUSED, tls::UNREAD].contains(&failure.kind)
}

/// True if the server requires a user and the URI names none.
pub fn requires_login(failure: &Failure) -> bool {
    failure.kind == outcome::LOGIN_REQUIRED
}

impl StoreProbe {
    /// Creates a probe, which connects when it is first called.
    pub fn new(options: StoreOptions, lease: ResourceName) -> Self {
        let deployment = Deployment::new(options, Monitoring::Reports);
        Self { deployment, lease }
    }

    /// Returns the collection as operators see it.
    pub fn documents(&self) -> MongoCollection {
        MongoCollection::over(Arc::clone(&self.deployment))
    }

    /// Returns the servers that the connection string names. Resolves an SRV record.
    pub async fn seeds(&self) -> Result<SeedList, Failure> {
        let options = async {
            let uri = self.deployment.uri().await?;
            self.deployment.client_options(&uri).await
        };
        let options = options.await.map_err(|error| self.failure(error))?;
        Ok(SeedList {
            addresses: options.hosts.iter().map(home::canonical).collect(),
            set: options.repl_set_name,
            tls: match options.tls {
                Some(Tls::Enabled(tls)) => Some(tls),
                _ => None,
            },
        })
    }

    /// Asks the primary once to describe itself, within the timeouts of a candidate.
    pub async fn describe(&self) -> Result<Description, Failure> {
        let hello = self.deployment.admin(home::question()).await?;
        let build = self.deployment.admin(doc! { "buildInfo": 1 }).await?;
        let seeds = self.deployment.servers.asked().hosts;
        Ok(Description::of(&hello, &build, &seeds))
    }

    /// Returns the servers outside the primary's deployment, with their descriptions.
    pub async fn strangers(&self) -> Result<Vec<(String, String)>, Failure> {
        let hello = self.deployment.admin(home::question()).await?;
        let strangers = self.deployment.strangers(&hello);
        strangers.await.map_err(|error| self.failure(error))
    }

    /// Returns the last known state of each observed server, by address.
    pub fn servers(&self) -> BTreeMap<String, ServerState> {
        self.deployment.servers.known().states()
    }

    /// Returns the authenticated user.
    pub async fn login(&self) -> Result<Login, Failure> {
        let command = doc! { "connectionStatus": 1 };
        let status = self.deployment.admin(command).await?;
        let info = status.get_document("authInfo").cloned().unwrap_or_default();
        let named = |key: &str, name: &str| {
            let entries = list(&info, key).iter().filter_map(Bson::as_document);
            let names = entries.map(|e| format!("{}@{}", text(e, name), text(e, "db")));
            names.collect()
        };
        Ok(Login {
            users: named("authenticatedUsers", "user"),
            roles: named("authenticatedUserRoles", "role"),
        })
    }

    /// Reads the lease document, if any. With `confirm`, the read is linearizable, like a
    /// candidate's confirming read.
    pub async fn read(&self, confirm: bool) -> Result<(), Failure> {
        let read = self.read_lease(doc! { "_id": 1 }, confirm);
        read.await.map(drop)
    }

    /// Returns the lease, or the reason why the document with its name is not a lease. Also returns
    /// when the holder last wrote, by the holder's wall clock; zero if unknown.
    pub async fn lease(&self) -> Result<(Found, WallMillis), Failure> {
        let found = self.read_lease(document::projection(), false).await?;
        let holder = found.as_ref().map(|found| found.get_document("holder"));
        let written = holder.and_then(|holder| holder.ok()?.get("renewed_at"));
        let lease = found.as_ref().map_or(Found::Missing, document::read);
        Ok((lease, document::date(written)))
    }

    async fn read_lease(
        &self,
        projection: Document,
        confirm: bool,
    ) -> Result<Option<Document>, Failure> {
        let name = self.lease.as_str();
        let read = self.deployment.read(name, projection, confirm).await;
        read.map_err(|error| self.failure(error))
    }

    /// Sends an insert with an illegal `_id`. Fails unless the server refuses the insert for this
    /// reason.
    pub async fn insert(&self) -> Result<(), Failure> {
        let refused = doc! { "_id": REFUSED_ID.to_vec() };
        match self.deployment.insert(&refused).await {
            Err(SendError::Driver(error)) if outcome::is_write_error(&error) => Ok(()),
            Err(error) => Err(self.failure(error)),
            Ok(()) => {
                let kind = "the server stored a document that MongoDB would refuse";
                let detail = "its _id is [\"leasehold check\"]: remove it";
                Err(Failure::lasting(kind, detail))
            }
        }
    }

    /// Sends an update that matches no document. Does not need the right to read.
    pub async fn update(&self) -> Result<(), Failure> {
        let update = doc! { "$set": { "checked": true } };
        let collection = self.collection().await?;
        let updated = collection.update_one(self.matches_nothing(), update);
        let updated = updated.write_concern(self.deployment.write_concern()).await;
        updated.map(drop).map_err(|error| self.described(&error))
    }

    /// Opens a change stream as a candidate does, and closes it.
    pub async fn watch(&self) -> Result<(), Failure> {
        let collection = self.collection().await?;
        let events = follow::events_of(self.lease.as_str());
        let opened = follow::opening(&collection, events).await;
        opened.map(drop).map_err(|error| self.described(&error))
    }

    /// Checks that hints can be followed and inserted, without inserting a hint.
    pub async fn hints(&self) -> Result<(), Failure> {
        let refused = REFUSED_ID.to_vec();
        let usable = hints::probe(&self.collection().await?, refused.into()).await;
        usable.map_err(|refusal| refusal.failure(&self.deployment))
    }

    /// Checks that a candidate may create the collection of hints, without creating it.
    pub async fn hints_creation(&self) -> Result<(), Failure> {
        let allowed = hints::probe_creation(&self.collection().await?).await;
        allowed.map_err(|refusal| refusal.failure(&self.deployment))
    }

    /// Sends a candidate-like write whose filter matches nothing. The server acknowledges the write
    /// once a majority has stored all earlier writes on disk.
    pub async fn write_nothing(&self) -> Result<(), Failure> {
        let update = doc! { "$set": { "checked": true } };
        let (nothing, projection) = (self.matches_nothing(), doc! { "_id": 1 });
        let written = self.deployment.update(nothing, update, projection);
        written.await.map(drop).map_err(|error| self.failure(error))
    }

    /// Returns the replica set's election settings. Needs the right `replSetGetConfig`.
    pub async fn failover_settings(&self) -> Result<FailoverSettings, Failure> {
        self.deployment.failover_settings().await
    }

    /// Returns the primary's storage engine. Needs the right `serverStatus`.
    pub async fn storage_engine(&self) -> Result<StorageEngine, Failure> {
        // Omits the longest sections, because nothing reads them.
        let command = doc! { "serverStatus": 1, "metrics": 0, "wiredTiger": 0, "tcmalloc": 0 };
        let status = self.deployment.admin(command).await?;
        let engine = status.get_document("storageEngine");
        let engine = engine.cloned().unwrap_or_default();
        Ok(StorageEngine {
            name: text(&engine, "name"),
            persistent: engine.get_bool("persistent").unwrap_or(true),
        })
    }

    /// Reads the primary's wall clock.
    pub async fn server_time(&self) -> Result<ServerTime, Failure> {
        let sent = leasehold_clock::boot_now();
        let hello = self.deployment.admin(doc! { "hello": 1 }).await?;
        let received = leasehold_clock::boot_now();
        let Ok(wall) = hello.get_datetime("localTime") else {
            return Err(Failure::new("the server does not report its time", ""));
        };
        Ok(ServerTime {
            server: text(&hello, "me"),
            sent,
            received,
            wall_ms: wall.timestamp_millis(),
        })
    }

    /// Shuts down the client, within a bounded time.
    pub async fn shut_down(&self) {
        self.deployment.shut_down().await;
    }

    /// Matches no document. Contains the lease's name, because routers require the name.
    fn matches_nothing(&self) -> Document {
        doc! { "_id": self.lease.as_str(), "kind": { "$in": [] } }
    }

    async fn collection(&self) -> Result<Collection<Document>, Failure> {
        let collection = self.deployment.collection().await;
        collection.map_err(|error| self.failure(error))
    }

    fn failure(&self, error: SendError) -> Failure {
        self.deployment.failure(&error)
    }

    fn described(&self, error: &mongodb::error::Error) -> Failure {
        self.deployment.describe(error)
    }
}
