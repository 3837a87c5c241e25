//! The client of a deployment: made at its first use, made anew when it cannot
//! be used, ended in bounded time.
//!
//! It knows no document. Every option that the protocols rest on is set here,
//! whatever the connection string says: majority and journal for writes, no
//! retried writes, reads from the primary.

mod client;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mongodb::Collection;
use mongodb::bson::{Document, doc};
use mongodb::options::{
    Acknowledgment, ReadConcern, ReadPreference, ReturnDocument, SelectionCriteria,
    UpdateModifications, WriteConcern,
};
use tokio::sync::watch;

use self::client::Connection;
use super::home::Home;
use super::options::StoreOptions;
use super::servers::Servers;
use super::{lock, outcome};
use crate::store::{Answer, CallOutcome, DeploymentId, Failure, Remedy, StoreInfo};
use leasehold_core::election::{BootTime, Timings};

/// How long a client that is not needed any more may take to end. It ends its
/// sessions in a few milliseconds; then its monitors take up to a heartbeat to
/// notice, which is of no use to a process that exits.
const SHUTDOWN_MAX: Duration = Duration::from_millis(100);

/// A collection of a deployment, and the client that reaches it.
pub(super) struct Deployment {
    options: StoreOptions,
    /// Told when writes go to another server from now on.
    primary_changed: Box<dyn Fn() + Send + Sync>,
    info: watch::Sender<Option<StoreInfo>>,
    /// Made at first use: a name that cannot be resolved yet is no reason to end.
    connection: tokio::sync::Mutex<Option<Connection>>,
    /// Why no server can be used, when none can.
    servers: Servers,
    /// How many clients there were.
    clients: AtomicU64,
    home: Mutex<Home>,
    /// No replica set and no cluster: one server, which has the only copy.
    standalone: AtomicBool,
    /// A client that got no answer for so long is made anew: certificates are
    /// read from their files, and names are resolved, once in a client's life.
    give_up_after: Duration,
    /// Since when no server has answered a call.
    unanswered_since: Mutex<Option<BootTime>>,
}

/// Why an operation has no outcome of the store's.
pub(super) enum SendError {
    /// There is no connection string: why, without secrets.
    Uri(String),
    /// A file that the connection string names cannot be used: which, and why.
    Files(String),
    /// The connection string leads to another deployment: to which, without secrets.
    Elsewhere(String),
    /// The primary has just stepped down.
    NoPrimary,
    /// Reaching the server took as long as the whole call may take: nothing was
    /// sent, since the sender does not wait any more.
    Late,
    /// The server could not be asked who it is: nothing was sent.
    Unverified(mongodb::error::Error),
    /// The driver's error.
    Driver(mongodb::error::Error),
}

impl From<mongodb::error::Error> for SendError {
    fn from(error: mongodb::error::Error) -> Self {
        Self::Driver(error)
    }
}

impl Deployment {
    /// Connects at its first use.
    pub(super) fn new(
        options: StoreOptions,
        primary_changed: impl Fn() + Send + Sync + 'static,
    ) -> (Arc<Self>, watch::Receiver<Option<StoreInfo>>) {
        let (info, info_receiver) = watch::channel(None);
        let deployment = Self {
            home: Mutex::new(Home::new(options.home.clone())),
            give_up_after: options.timings.lease_duration(),
            options,
            primary_changed: Box::new(primary_changed),
            info,
            connection: tokio::sync::Mutex::new(None),
            servers: Servers::default(),
            clients: AtomicU64::new(0),
            standalone: AtomicBool::new(false),
            unanswered_since: Mutex::new(None),
        };
        (Arc::new(deployment), info_receiver)
    }

    /// The collection, of a client that is made if there is none.
    pub(super) async fn collection(self: &Arc<Self>) -> Result<Collection<Document>, SendError> {
        if let Some(why) = lock(&self.home).untold() {
            return Err(SendError::Elsewhere(why));
        }
        let began = leasehold_clock::boot_now();
        let connection = self.connect().await?;
        if !lock(&self.home).has(connection.number) {
            self.verify(&connection).await?;
        }
        if leasehold_clock::boot_now().since(began) >= self.operation_timeout() {
            return Err(SendError::Late);
        }
        let database = connection.client.database(&self.options.database);
        Ok(database.collection(&self.options.collection))
    }

    /// Inserts a document.
    pub(super) async fn insert(self: &Arc<Self>, document: &Document) -> Result<(), SendError> {
        let collection = self.collection().await?;
        let inserted = collection.insert_one(document);
        inserted.write_concern(self.write_concern()).await?;
        Ok(())
    }

    /// Updates one document and returns it as it is after that; `None` if the
    /// filter matched none.
    pub(super) async fn update(
        self: &Arc<Self>,
        filter: Document,
        update: impl Into<UpdateModifications>,
        projection: Document,
    ) -> Result<Option<Document>, SendError> {
        let collection = self.collection().await?;
        let updated = collection
            .find_one_and_update(filter, update)
            .projection(projection)
            .return_document(ReturnDocument::After)
            .write_concern(self.write_concern())
            .max_time(self.operation_timeout())
            .await?;
        Ok(updated)
    }

    /// Reads one document from the primary.
    pub(super) async fn read(
        self: &Arc<Self>,
        name: &str,
        projection: Document,
        confirm: bool,
    ) -> Result<Option<Document>, SendError> {
        let collection = self.collection().await?;
        let concern = self.read_concern(confirm);
        let document = collection
            .find_one(doc! { "_id": name })
            .projection(projection)
            .read_concern(concern)
            .selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::Primary))
            .max_time(self.operation_timeout())
            .await?;
        Ok(document)
    }

    /// A server that is the only copy knows no linearizable reads and needs
    /// none. Behind a router there are replica sets, whose primaries can be deposed.
    fn read_concern(&self, confirm: bool) -> ReadConcern {
        if confirm && !self.standalone.load(Ordering::Relaxed) {
            ReadConcern::linearizable()
        } else {
            ReadConcern::majority()
        }
    }

    /// What became of an operation. A client that cannot be used is given up.
    pub(super) async fn answer<O: CallOutcome>(&self, sent: Result<O, SendError>) -> Answer<O> {
        let (error, was_sent) = match sent {
            Ok(outcome) => {
                *lock(&self.unanswered_since) = None;
                lock(&self.home).answered();
                return Answer {
                    outcome,
                    failure: None,
                };
            }
            Err(SendError::Uri(detail)) => return unsent(no_uri(detail)),
            Err(SendError::Files(detail)) => return unsent(no_files(detail)),
            Err(SendError::Elsewhere(detail)) => {
                lock(&self.home).was_told();
                return unsent(elsewhere(detail));
            }
            Err(SendError::NoPrimary) => return unsent(no_primary()),
            Err(SendError::Late) => return unsent(late()),
            Err(SendError::Unverified(error)) => (error, false),
            Err(SendError::Driver(error)) => (error, true),
        };
        let answer = match was_sent {
            true => outcome::classify(&error, &self.servers),
            false => unsent(self.describe(&error)),
        };
        if answer.failure.is_some() {
            let refused = outcome::is_authentication(&error);
            let given_up = self.is_given_up(outcome::is_reply(&error));
            self.renew_connection(refused || given_up).await;
        }
        answer
    }

    /// Why an operation that only people wait for failed.
    pub(super) fn failure(&self, error: SendError) -> Failure {
        match error {
            SendError::Uri(detail) => no_uri(detail),
            SendError::Files(detail) => no_files(detail),
            SendError::Elsewhere(detail) => elsewhere(detail),
            SendError::NoPrimary => no_primary(),
            SendError::Late => late(),
            SendError::Unverified(error) | SendError::Driver(error) => self.describe(&error),
        }
    }

    /// A driver's error for people.
    pub(super) fn describe(&self, error: &mongodb::error::Error) -> Failure {
        outcome::describe(error, &self.servers)
    }

    /// Why no server can be used, as far as that is known before a call fails.
    pub(super) fn trouble(&self) -> Option<Failure> {
        let failure = self.servers.no_primary();
        (!failure.detail.is_empty()).then_some(failure)
    }

    /// The deployment, once it is known, and whenever its members change.
    pub(super) fn found(&self) -> watch::Receiver<Option<DeploymentId>> {
        lock(&self.home).subscribe()
    }

    /// The options that it was made with.
    pub(super) const fn options(&self) -> &StoreOptions {
        &self.options
    }

    pub(super) const fn timings(&self) -> Timings {
        self.options.timings
    }

    /// The bound of one operation.
    pub(super) fn operation_timeout(&self) -> Duration {
        self.timings().operation_timeout()
    }

    /// Ends the client; what hangs is given up after a moment.
    pub(super) async fn shut_down(&self) {
        let ended = async {
            let connection = self.connection.lock().await.take();
            if let Some(connection) = connection {
                connection.client.shutdown().immediate(true).await;
            }
        };
        let _ = tokio::time::timeout(SHUTDOWN_MAX, ended).await;
    }

    fn write_concern(&self) -> WriteConcern {
        WriteConcern::builder()
            .w(Acknowledgment::Majority)
            .journal(true)
            .w_timeout(self.operation_timeout())
            .build()
    }
}

fn no_primary() -> Failure {
    Failure::new("the primary has just stepped down", "").until(Remedy::Reach)
}

fn late() -> Failure {
    Failure::new("MongoDB was not reached within operation_timeout", "").until(Remedy::Reach)
}

fn unsent<O: CallOutcome>(failure: Failure) -> Answer<O> {
    Answer {
        outcome: O::FAILED,
        failure: Some(failure),
    }
}

fn elsewhere(detail: String) -> Failure {
    Failure::new("MongoDB URI refused", detail).until(Remedy::Change)
}

fn no_files(detail: String) -> Failure {
    Failure::new("TLS configuration refused", detail).until(Remedy::Change)
}

fn no_uri(detail: String) -> Failure {
    Failure::new("MongoDB URI unavailable", detail).until(Remedy::Change)
}
