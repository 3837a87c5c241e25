//! The client of a deployment: made at its first use, made anew when it cannot
//! be used, ended in bounded time.
//!
//! It knows no document. Every option that the protocols rest on is set here,
//! whatever the connection string says: majority and journal for writes, no
//! retried writes, reads from the primary.

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongodb::event::EventHandler;
use mongodb::event::sdam::{SdamEvent, ServerDescriptionChangedEvent};
use mongodb::options::{
    Acknowledgment, ClientOptions, ReadConcern, ReadPreference, ReturnDocument, SelectionCriteria,
    UpdateModifications, WriteConcern,
};
use mongodb::{Client, Collection, ServerType};
use tokio::sync::watch;

use super::outcome;
use super::servers::{Asked, Servers};
use crate::election::Identity;
use crate::store::{Answer, CallOutcome, Failure, Remedy, StoreInfo};

/// Where the connection string comes from. It is read again when the store
/// cannot be used, so that a rotated secret works.
pub type UriSource = Arc<dyn Fn() -> Result<String, String> + Send + Sync>;

/// The longest application name that a server accepts, in bytes.
const APP_NAME_MAX: usize = 128;
/// How long a client that is not needed any more may take to end. It ends its
/// sessions in a few milliseconds; then its monitors take up to a heartbeat to
/// notice, which is of no use to a process that exits.
const SHUTDOWN_MAX: Duration = Duration::from_millis(100);

/// How to reach a collection.
#[derive(Clone)]
pub struct ConnectionOptions {
    /// The connection string.
    pub uri: UriSource,
    /// The database.
    pub database: String,
    /// The collection.
    pub collection: String,
    /// Bounds server selection, connecting, and the server's own work.
    pub operation_timeout: Duration,
    /// How often the driver checks each server. Elections are told at once
    /// whatever this is; a frozen primary is found by it.
    pub heartbeat: Duration,
    /// Names the connection in the server's logs, unless the URI does.
    pub identity: Identity,
}

/// A collection of a deployment, and the client that reaches it.
pub(super) struct Deployment {
    options: ConnectionOptions,
    /// Told when writes go to another server from now on.
    primary_changed: Box<dyn Fn() + Send + Sync>,
    info: watch::Sender<Option<StoreInfo>>,
    /// Made at first use: a name that cannot be resolved yet is no reason to end.
    connection: tokio::sync::Mutex<Option<Connection>>,
    /// Why no server can be used, when none can.
    servers: Servers,
}

#[derive(Clone)]
struct Connection {
    client: Client,
    uri: String,
}

/// Why an operation has no outcome of the store's.
pub(super) enum SendError {
    /// There is no connection string: why, without secrets.
    Uri(String),
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
        options: ConnectionOptions,
        primary_changed: impl Fn() + Send + Sync + 'static,
    ) -> (Arc<Self>, watch::Receiver<Option<StoreInfo>>) {
        let (info, info_receiver) = watch::channel(None);
        let deployment = Self {
            options,
            primary_changed: Box::new(primary_changed),
            info,
            connection: tokio::sync::Mutex::new(None),
            servers: Servers::default(),
        };
        (Arc::new(deployment), info_receiver)
    }

    /// The collection, of a client that is made if there is none.
    pub(super) async fn collection(self: &Arc<Self>) -> Result<Collection<Document>, SendError> {
        let connection = self.connect().await?;
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
            .max_time(self.options.operation_timeout)
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
        // A standalone server knows no linearizable reads and needs none: it
        // is the only copy.
        let alone = self
            .info
            .borrow()
            .as_ref()
            .is_some_and(|info| info.set.is_none());
        let concern = if confirm && !alone {
            ReadConcern::linearizable()
        } else {
            ReadConcern::majority()
        };
        let document = collection
            .find_one(doc! { "_id": name })
            .projection(projection)
            .read_concern(concern)
            .selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::Primary))
            .max_time(self.options.operation_timeout)
            .await?;
        Ok(document)
    }

    /// What became of an operation. A client that cannot be used is given up.
    pub(super) async fn answer<O: CallOutcome>(&self, sent: Result<O, SendError>) -> Answer<O> {
        let error = match sent {
            Ok(outcome) => {
                return Answer {
                    outcome,
                    failure: None,
                };
            }
            Err(SendError::Uri(detail)) => {
                return Answer {
                    outcome: O::FAILED,
                    failure: Some(no_uri(detail)),
                };
            }
            Err(SendError::Driver(error)) => error,
        };
        let answer = outcome::classify(&error, &self.servers);
        if answer.failure.is_some() {
            self.renew_connection(outcome::is_authentication(&error))
                .await;
        }
        answer
    }

    /// Why an operation that only people wait for failed.
    pub(super) fn failure(&self, error: SendError) -> Failure {
        match error {
            SendError::Uri(detail) => no_uri(detail),
            SendError::Driver(error) => self.describe(&error),
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

    /// The bound of one operation.
    pub(super) const fn operation_timeout(&self) -> Duration {
        self.options.operation_timeout
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

    async fn connect(self: &Arc<Self>) -> Result<Connection, SendError> {
        let mut slot = self.connection.lock().await;
        if let Some(connection) = &*slot {
            return Ok(connection.clone());
        }
        let uri = (self.options.uri)().map_err(SendError::Uri)?;
        let client = Client::with_options(self.client_options(&uri).await?)?;
        let connection = Connection { client, uri };
        *slot = Some(connection.clone());
        Ok(connection)
    }

    /// Gives up a connection that cannot be used if the connection string is
    /// another one now, or if its credentials were refused (certificates
    /// change behind an unchanged string).
    async fn renew_connection(&self, refused: bool) {
        let mut slot = self.connection.lock().await;
        let Some(connection) = &*slot else { return };
        let changed = (self.options.uri)().is_ok_and(|uri| uri != connection.uri);
        if (changed || refused)
            && let Some(connection) = slot.take()
        {
            tokio::spawn(async move { connection.client.shutdown().immediate(true).await });
        }
    }

    async fn client_options(
        self: &Arc<Self>,
        uri: &str,
    ) -> Result<ClientOptions, mongodb::error::Error> {
        let mut options = ClientOptions::parse(uri).await?;
        let timeout = self.options.operation_timeout;
        if options.app_name.is_none() {
            let mut name = format!("leasehold/{}", self.options.identity);
            name.truncate(name.floor_char_boundary(APP_NAME_MAX));
            options.app_name = Some(name);
        }
        // Every write names its own; one that asks for no acknowledgement would
        // make the driver refuse the change streams.
        options.write_concern = None;
        // A write that the driver repeats by itself would be sent later than
        // the election believes.
        options.retry_writes = Some(false);
        options.retry_reads = Some(false);
        options.max_adaptive_retries = Some(0);
        // Sooner than the caller's own time-out: then an outage is known as
        // "never sent" instead of "unknown".
        options.server_selection_timeout = Some(timeout * 9 / 10);
        options.connect_timeout = Some(timeout);
        options.heartbeat_freq = Some(self.options.heartbeat);
        self.servers.ask(Asked::of(&options));
        let deployment = Arc::downgrade(self);
        options.sdam_event_handler = Some(EventHandler::callback(move |event| {
            let Some(deployment) = deployment.upgrade() else {
                return;
            };
            deployment.servers.heed(&event);
            if let SdamEvent::ServerDescriptionChanged(event) = event {
                deployment.server_changed(&event);
            }
        }));
        Ok(options)
    }

    /// The driver's monitors learned something about a server.
    fn server_changed(&self, event: &ServerDescriptionChangedEvent) {
        let (before, now) = (&event.previous_description, &event.new_description);
        let writable = |kind| {
            matches!(
                kind,
                ServerType::RsPrimary | ServerType::Standalone | ServerType::Mongos
            )
        };
        if writable(now.server_type()) && !writable(before.server_type()) {
            let info = StoreInfo {
                set: now.replica_set_name().map(str::to_owned),
                database: self.options.database.clone(),
                collection: self.options.collection.clone(),
            };
            self.info.send_replace(Some(info));
            (self.primary_changed)();
        }
    }

    fn write_concern(&self) -> WriteConcern {
        WriteConcern::builder()
            .w(Acknowledgment::Majority)
            .journal(true)
            .w_timeout(self.options.operation_timeout)
            .build()
    }
}

fn no_uri(detail: String) -> Failure {
    Failure::new("MongoDB URI unavailable", detail).until(Remedy::Change)
}
