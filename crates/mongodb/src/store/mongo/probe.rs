//! Probes of a deployment, for a diagnosis before a candidate runs there.
//!
//! A probe connects with the options of a candidate and needs the same four rights. No probe leaves
//! anything behind: the update matches no document, and every server refuses the insert, whatever
//! the collection contains. An insert that only collides with an existing document would be stored
//! if that document was deleted in between, and the role has no right to remove it.

mod certificates;
mod collection;
mod description;
mod latency;
mod settings;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use mongodb::bson::{Document, doc};
use mongodb::options::{ReadConcern, ReadPreference, SelectionCriteria};

pub use self::certificates::{Certificates, Validity};
pub use self::collection::Indexes;
pub use self::description::{DeploymentKind, Description, Product};
pub use self::latency::{Latencies, MEASURED_MAX};
pub use self::settings::{SeedList, UriSettings, resolve};
pub use super::servers::ServerState;

pub(super) use self::description::millis;
use self::description::{array, text};
use super::change_stream;
use super::connection::{Deployment, Monitoring, SendError};
use super::document;
use super::hints;
use super::home;
use super::options::StoreOptions;
use super::outcome;
use super::tls;
use crate::store::{FailoverSettings, Failure, RetryPolicy};
use leasehold_core::election::{BootTime, Found, ResourceName};

/// Value of `_id` that every MongoDB server refuses: an array.
const REFUSED_ID: [&str; 1] = ["leasehold check"];

/// A deployment that is examined for one lease.
pub struct StoreProbe {
    deployment: Arc<Deployment>,
    lease: ResourceName,
}

impl fmt::Debug for StoreProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreProbe")
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

/// The user that the deployment has authenticated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    /// The users, as `name@database`; empty without authentication.
    pub users: Vec<String>,
    /// Their roles, as `role@database`.
    pub roles: Vec<String>,
}

/// The storage engine of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageEngine {
    /// Its name, such as `wiredTiger`.
    pub name: String,
    /// False if it keeps data in memory only.
    pub persistent: bool,
}

/// One reading of a server's wall clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTime {
    /// The server.
    pub server: String,
    /// Local time before the question was sent.
    pub sent: BootTime,
    /// Local time after the reply.
    pub received: BootTime,
    /// The server's wall clock, in milliseconds since 1970.
    pub wall_ms: i64,
}

/// Returns true if the user lacks a right, or if the server requires a user and there is none.
pub fn lacks_right(failure: &Failure) -> bool {
    failure.code == Some(outcome::UNAUTHORIZED)
}

/// Returns true if there is no collection of hints.
pub fn lacks_hints(failure: &Failure) -> bool {
    failure.kind == hints::NO_HINTS
}

/// Returns true if a server answered and refused the login.
pub fn refuses_login(failure: &Failure) -> bool {
    failure.kind == outcome::LOGIN_REFUSED
}

/// Returns true if there is no client, because the TLS files or options are not usable.
pub fn refuses_tls(failure: &Failure) -> bool {
    [tls::REFUSED, tls::UNREAD].contains(&failure.kind)
}

/// Returns true if the server requires a user and there is none.
pub fn requires_login(failure: &Failure) -> bool {
    failure.kind == outcome::LOGIN_REQUIRED
}

impl StoreProbe {
    /// Creates a probe that connects at its first use.
    pub fn new(options: StoreOptions, lease: ResourceName) -> Self {
        let (deployment, _) = Deployment::new(options, Monitoring::Reports);
        Self { deployment, lease }
    }

    /// Returns the servers that the connection string names, after the lookup of an SRV record.
    ///
    /// # Errors
    /// If the record cannot be looked up or the connection string is refused.
    pub async fn seeds(&self) -> Result<SeedList, Failure> {
        let uri = (self.deployment.options().uri)();
        let uri = uri.map_err(|why| self.failure(SendError::Uri(why)))?;
        let options = self.deployment.client_options(&uri).await;
        let options = options.map_err(|error| self.failure(error))?;
        Ok(SeedList::of(&options))
    }

    /// Asks the primary what it is. One attempt, within the timeouts of a candidate.
    ///
    /// # Errors
    /// If there is no primary, or it refuses the login.
    pub async fn describe(&self) -> Result<Description, Failure> {
        let hello = self.admin(home::question()).await?;
        let build = self.admin(doc! { "buildInfo": 1 }).await?;
        let seeds = self.deployment.servers().asked().hosts;
        Ok(Description::of(&hello, &build, &seeds))
    }

    /// Asks the servers that the connection string names, and returns those that belong to another
    /// deployment than the primary, with their descriptions.
    ///
    /// # Errors
    /// If there is no primary, or it refuses the login.
    pub async fn strangers(&self) -> Result<Vec<(String, String)>, Failure> {
        let hello = self.admin(home::question()).await?;
        let strangers = self.deployment.strangers(&hello).await;
        strangers.map_err(|error| self.failure(error))
    }

    /// Returns the last known states of all servers that were observed, by address.
    pub fn servers(&self) -> BTreeMap<String, ServerState> {
        self.deployment.servers().states()
    }

    /// Returns the authenticated user.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn login(&self) -> Result<Login, Failure> {
        let status = self.admin(doc! { "connectionStatus": 1 }).await?;
        let info = status.get_document("authInfo").cloned().unwrap_or_default();
        let named = |list: &str, name: &str| {
            let entries = array(&info, list).filter_map(|entry| entry.as_document());
            let names = entries.map(|e| format!("{}@{}", text(e, name), text(e, "db")));
            names.collect()
        };
        Ok(Login {
            users: named("authenticatedUsers", "user"),
            roles: named("authenticatedUserRoles", "role"),
        })
    }

    /// Reads the lease document, which need not exist, with the read concern of a candidate's
    /// reads, or of its confirming reads.
    ///
    /// # Errors
    /// If the server refuses the read.
    pub async fn read(&self, confirm: bool) -> Result<(), Failure> {
        let projection = doc! { "_id": 1 };
        let read = self
            .deployment
            .read(self.lease.as_str(), projection, confirm);
        read.await.map(drop).map_err(|error| self.failure(error))
    }

    /// Returns the lease, or the reason why the document of its name is not a lease.
    ///
    /// # Errors
    /// If the server refuses the read.
    pub async fn lease(&self) -> Result<Found, Failure> {
        let read = self
            .deployment
            .read(self.lease.as_str(), document::projection(), false);
        let found = read.await.map_err(|error| self.failure(error))?;
        Ok(found.as_ref().map_or(Found::Missing, document::read))
    }

    /// Sends an insert that the server must refuse.
    ///
    /// # Errors
    /// If it was refused for a reason other than the document, or accepted.
    pub async fn insert(&self) -> Result<(), Failure> {
        let refused = doc! { "_id": REFUSED_ID.to_vec() };
        match self.deployment.insert(&refused).await {
            Err(SendError::Driver(error)) if outcome::is_write_error(&error) => Ok(()),
            Err(error) => Err(self.failure(error)),
            Ok(()) => {
                let kind = "the server stored a document that MongoDB refuses";
                let detail = "its _id is [\"leasehold check\"]: remove it";
                Err(Failure::new(kind, detail).with_retry(RetryPolicy::Reconfigure))
            }
        }
    }

    /// Sends an update that matches no document. Unlike a candidate's updates, it needs no right to
    /// read.
    ///
    /// # Errors
    /// If the server refuses the update.
    pub async fn update(&self) -> Result<(), Failure> {
        let collection = self.deployment.collection().await;
        let collection = collection.map_err(|error| self.failure(error))?;
        let updated = collection
            .update_one(self.matches_nothing(), doc! { "$set": { "checked": true } })
            .write_concern(self.deployment.write_concern())
            .await;
        updated.map(drop).map_err(|error| self.described(&error))
    }

    /// Opens a change stream as a candidate does, and closes it. Needs the rights to read and
    /// to change streams.
    ///
    /// # Errors
    /// If the server refuses the stream.
    pub async fn watch(&self) -> Result<(), Failure> {
        let collection = self.deployment.collection().await;
        let collection = collection.map_err(|error| self.failure(error))?;
        let opened = collection
            .watch()
            .pipeline(change_stream::pipeline(self.lease.as_str()))
            .read_concern(ReadConcern::majority())
            .selection_criteria(primary())
            .await;
        opened.map(drop).map_err(|error| self.described(&error))
    }

    /// Checks that hints can be followed and left, without inserting a hint.
    ///
    /// # Errors
    /// If there is no capped collection of hints, or the server refuses its use.
    pub async fn hints(&self) -> Result<(), Failure> {
        let collection = self.deployment.collection().await;
        let collection = collection.map_err(|error| self.failure(error))?;
        let refused = REFUSED_ID.to_vec();
        let usable = hints::probe(&collection, refused.into()).await;
        usable.map_err(|refusal| refusal.failure(&self.deployment))
    }

    /// Checks that a candidate may create the collection of hints, without creating it.
    ///
    /// # Errors
    /// If the server refuses that.
    pub async fn hints_creation(&self) -> Result<(), Failure> {
        let collection = self.deployment.collection().await;
        let collection = collection.map_err(|error| self.failure(error))?;
        let allowed = hints::probe_creation(&collection).await;
        allowed.map_err(|refusal| refusal.failure(&self.deployment))
    }

    /// Sends a candidate's kind of write, with its write concern, that matches no document. The
    /// server acknowledges it once a majority has everything that was written before, on disk.
    ///
    /// # Errors
    /// If the server refuses the write, or no majority acknowledges it in time.
    pub async fn write_nothing(&self) -> Result<(), Failure> {
        let update = doc! { "$set": { "checked": true } };
        let projection = doc! { "_id": 1 };
        let written = self
            .deployment
            .update(self.matches_nothing(), update, projection);
        written.await.map(drop).map_err(|error| self.failure(error))
    }

    /// Returns the settings of the set's elections. Needs the right `replSetGetConfig`.
    ///
    /// # Errors
    /// If the server refuses the command.
    pub async fn failover_settings(&self) -> Result<FailoverSettings, Failure> {
        self.deployment.failover_settings().await
    }

    /// Returns the primary's storage engine. Needs the right `serverStatus`.
    ///
    /// # Errors
    /// If the server refuses the command.
    pub async fn storage_engine(&self) -> Result<StorageEngine, Failure> {
        // Leaves out the longest sections, which are not used.
        let command = doc! { "serverStatus": 1, "metrics": 0, "wiredTiger": 0, "tcmalloc": 0 };
        let status = self.admin(command).await?;
        let engine = status.get_document("storageEngine").cloned();
        let engine = engine.unwrap_or_default();
        Ok(StorageEngine {
            name: text(&engine, "name"),
            persistent: engine.get_bool("persistent").unwrap_or(true),
        })
    }

    /// Reads the primary's wall clock.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn server_time(&self) -> Result<ServerTime, Failure> {
        let sent = leasehold_clock::boot_now();
        let hello = self.hello().await?;
        let received = leasehold_clock::boot_now();
        let wall = hello.get_datetime("localTime");
        let wall = wall.map_err(|_| Failure::new("the server does not report its time", ""))?;
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

    /// A filter with the name of the lease, as routers require, and a condition that no document
    /// meets.
    fn matches_nothing(&self) -> Document {
        doc! { "_id": self.lease.as_str(), "kind": { "$in": [] } }
    }

    async fn hello(&self) -> Result<Document, Failure> {
        self.admin(doc! { "hello": 1 }).await
    }

    /// Runs a command of the database `admin` on the primary.
    async fn admin(&self, command: Document) -> Result<Document, Failure> {
        let collection = self.deployment.collection().await;
        let collection = collection.map_err(|error| self.failure(error))?;
        let admin = collection.client().database("admin");
        let reply = admin.run_command(command).selection_criteria(primary());
        reply.await.map_err(|error| self.described(&error))
    }

    fn failure(&self, error: SendError) -> Failure {
        self.deployment.failure(error)
    }

    fn described(&self, error: &mongodb::error::Error) -> Failure {
        self.deployment.describe(error)
    }
}

fn primary() -> SelectionCriteria {
    SelectionCriteria::ReadPreference(ReadPreference::Primary)
}
