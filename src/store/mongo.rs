//! The lease in a MongoDB collection.
//!
//! Every option that the protocol rests on is set here, whatever the
//! connection string says: majority and journal for writes, no retried
//! writes, reads from the primary.

#[cfg(test)]
mod any_bson;
#[cfg(test)]
mod any_event;
mod change_stream;
mod document;
mod ignored_request;
mod outcome;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mongodb::bson::{DateTime, Document, doc};
use mongodb::event::EventHandler;
use mongodb::event::sdam::{SdamEvent, ServerDescriptionChangedEvent};
use mongodb::options::{
    Acknowledgment, ClientOptions, ReadConcern, ReadPreference, ReturnDocument, SelectionCriteria,
    WriteConcern,
};
use mongodb::{Client, Collection, ServerType};
use tokio::sync::{mpsc, watch};

use self::ignored_request::IgnoredRequest;
use super::{Answer, Failure, News, Store, StoreInfo};
use crate::clock;
use crate::election::{Found, Identity, LeaseName, Operation, Outcome, Watch};

/// Where the connection string comes from. It is read again when the store
/// cannot be used, so that a rotated secret works.
pub type UriSource = Arc<dyn Fn() -> Result<String, String> + Send + Sync>;

/// The longest application name that a server accepts, in bytes.
const APP_NAME_MAX: usize = 128;
/// How long to wait before change streams are asked for again where there are
/// none: a standalone server may become a replica set, a role may get the right.
const NO_WATCH_RETRY: Duration = Duration::from_secs(60);
/// How long a client that is not needed any more may take to end. It ends its
/// sessions in a few milliseconds; then its monitors take up to a heartbeat to
/// notice, which is of no use to a process that exits.
const SHUTDOWN_MAX: Duration = Duration::from_millis(100);

/// How to reach the store and what to write there.
#[derive(Clone)]
pub struct MongoOptions {
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
    /// From a failed change stream to the next attempt.
    pub retry_interval: Duration,
    /// The change stream gives a sign of life three times in this, since a
    /// store that says nothing for so long counts as not read.
    pub lease_duration: Duration,
    /// The lease.
    pub lease: LeaseName,
    /// Written into the document, for people.
    pub identity: Identity,
    /// Written into the document, for people.
    pub address: Option<String>,
}

/// A lease in a MongoDB collection.
#[derive(Clone)]
pub struct MongoStore {
    shared: Arc<Shared>,
}

struct Shared {
    options: MongoOptions,
    news: mpsc::Sender<News>,
    info: watch::Sender<Option<StoreInfo>>,
    /// Made at first use: a name that cannot be resolved yet is no reason to end.
    connection: tokio::sync::Mutex<Option<Connection>>,
    /// The newest document known, for change events to be applied to.
    newest: Mutex<Option<Document>>,
    /// What the driver's monitors last said about a server that cannot be used.
    unreachable: Mutex<Option<String>>,
    ignored_request: Mutex<IgnoredRequest>,
}

#[derive(Clone)]
struct Connection {
    client: Client,
    uri: String,
}

impl MongoStore {
    /// A store that connects at its first use. Its news go into `news`.
    pub fn new(
        options: MongoOptions,
        news: mpsc::Sender<News>,
    ) -> (Self, watch::Receiver<Option<StoreInfo>>) {
        let (info, info_receiver) = watch::channel(None);
        let shared = Shared {
            options,
            news,
            info,
            connection: tokio::sync::Mutex::new(None),
            newest: Mutex::new(None),
            unreachable: Mutex::new(None),
            ignored_request: Mutex::default(),
        };
        (
            Self {
                shared: Arc::new(shared),
            },
            info_receiver,
        )
    }

    /// Follows the change stream for ever, from one failure to the next attempt.
    ///
    /// A stream that falls silent is left to itself and another one is opened
    /// beside it: a driver future is never dropped to time out.
    pub async fn watch(self) {
        let silence_max = self.shared.await_max() + self.shared.options.operation_timeout;
        loop {
            let (signs, mut alive) = watch::channel(());
            let stream = tokio::spawn(self.clone().follow(signs));
            // Ends when the stream's task does, which drops the sender.
            let silent = loop {
                match tokio::time::timeout(silence_max, alive.changed()).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => break false,
                    Err(_) => break true,
                }
            };
            drop(alive);
            let pause = if silent {
                let kind = "the change stream fell silent";
                self.watch_failed(Failure {
                    kind,
                    code: None,
                    detail: String::new(),
                })
                .await;
                Duration::ZERO
            } else {
                stream.await.unwrap_or(self.shared.options.retry_interval)
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// One stream until it fails; returns how long to wait before the next.
    /// It ends when nobody waits for its signs of life any more: then another
    /// took its place, and it has nothing more to say.
    async fn follow(self, alive: watch::Sender<()>) -> Duration {
        let shared = &self.shared;
        let retry = shared.options.retry_interval;
        let Ok(connection) = shared.connect().await else {
            return retry;
        };
        let opened = shared
            .collection(&connection)
            .watch()
            .pipeline(change_stream::pipeline(shared.options.lease.as_str()))
            .max_await_time(shared.await_max())
            .read_concern(ReadConcern::majority())
            .selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::Primary))
            .await;
        let superseded = || alive.receiver_count() == 0;
        let mut stream = match opened {
            _ if superseded() => return retry,
            Ok(stream) => stream,
            Err(error) => {
                self.watch_failed(outcome::describe(&error, shared.unreachable()))
                    .await;
                return if outcome::lacks_change_streams(&error) {
                    NO_WATCH_RETRY
                } else {
                    retry
                };
            }
        };
        self.tell(Watch::Opened).await;
        while alive.send(()).is_ok() {
            let next = stream.next_if_any().await;
            let watch = match next {
                _ if superseded() => break,
                Ok(Some(event)) => change_stream::hint(event, &mut shared.newest()),
                Ok(None) if stream.is_alive() => Watch::Alive,
                // The collection was dropped or renamed: open anew, then read.
                Ok(None) => Watch::Lost,
                Err(error) => {
                    self.watch_failed(outcome::describe(&error, shared.unreachable()))
                        .await;
                    break;
                }
            };
            let lost = watch == Watch::Lost;
            self.tell(watch).await;
            if lost {
                break;
            }
        }
        retry
    }

    async fn tell(&self, watch: Watch) {
        // The receiver is gone only when the daemon ends.
        let _ = self.shared.news.send(News::Watch(watch)).await;
    }

    async fn watch_failed(&self, failure: Failure) {
        let _ = self.shared.news.send(News::WatchFailed(failure)).await;
        self.tell(Watch::Lost).await;
    }

    /// Ends the client; what hangs is given up after a moment.
    pub async fn shut_down(&self) {
        let ended = async {
            let connection = self.shared.connection.lock().await.take();
            if let Some(connection) = connection {
                connection.client.shutdown().immediate(true).await;
            }
        };
        let _ = tokio::time::timeout(SHUTDOWN_MAX, ended).await;
    }

    async fn send(&self, operation: Operation) -> Result<Outcome, SendError> {
        let shared = &self.shared;
        let connection = shared.connect().await?;
        let collection = shared.collection(&connection);
        let name = shared.options.lease.as_str();
        let (identity, address) = (&shared.options.identity, shared.options.address.as_deref());
        let now = DateTime::from_system_time(clock::wall_now());
        let (filter, update) = match &operation {
            Operation::Read { confirm } => return shared.read(&collection, *confirm).await,
            Operation::Create { revision, token } => {
                let document = document::create(name, *revision, *token);
                collection
                    .insert_one(&document)
                    .write_concern(shared.write_concern())
                    .await?;
                return Ok(Outcome::Applied(shared.found(Some(document))));
            }
            Operation::Acquire(acquisition) => (
                document::acquisition_filter(name, acquisition, true),
                document::acquisition_update(acquisition, None, identity, address, now),
            ),
            Operation::TakeOver { acquisition, ended } => (
                document::acquisition_filter(name, acquisition, false),
                document::acquisition_update(acquisition, Some(ended), identity, address, now),
            ),
            Operation::Renew {
                claim,
                revision,
                chain,
            } => (
                document::mine_filter(name, *claim, chain),
                document::renewal_update(*revision, now),
            ),
            Operation::Release {
                claim,
                revision,
                chain,
                ended,
                reserved_for,
            } => (
                document::mine_filter(name, *claim, chain),
                document::release_update(*revision, ended, reserved_for.as_ref(), now),
            ),
        };
        let updated = collection
            .find_one_and_update(filter, update)
            .projection(document::projection())
            .return_document(ReturnDocument::After)
            .write_concern(shared.write_concern())
            .max_time(shared.options.operation_timeout)
            .await?;
        Ok(match updated {
            Some(document) => Outcome::Applied(shared.found(Some(document))),
            None => Outcome::Rejected,
        })
    }
}

impl Store for MongoStore {
    async fn perform(&self, operation: Operation) -> Answer {
        let error = match self.send(operation).await {
            Ok(outcome) => {
                return Answer {
                    outcome,
                    failure: None,
                };
            }
            Err(SendError::Uri(detail)) => {
                let kind = "no MongoDB URI to be had";
                let failure = Some(Failure {
                    kind,
                    code: None,
                    detail,
                });
                return Answer {
                    outcome: Outcome::Failed,
                    failure,
                };
            }
            Err(SendError::Driver(error)) => error,
        };
        let answer = outcome::classify(&error, self.shared.unreachable());
        if answer.outcome != Outcome::Rejected {
            self.shared
                .renew_connection(outcome::is_authentication(&error))
                .await;
        }
        answer
    }
}

/// Why an operation has no outcome of the store's.
enum SendError {
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

impl Shared {
    /// The connection, made if there is none.
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
        let shared = Arc::downgrade(self);
        options.sdam_event_handler = Some(EventHandler::callback(move |event| {
            if let (SdamEvent::ServerDescriptionChanged(event), Some(shared)) =
                (event, shared.upgrade())
            {
                shared.server_changed(&event);
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
        if let Some(error) = now.error() {
            let line = format!("{}: {}", now.address(), outcome::reachability(error));
            *lock(&self.unreachable) = Some(line);
        }
        if writable(now.server_type()) && !writable(before.server_type()) {
            *lock(&self.unreachable) = None;
            let info = StoreInfo {
                set: now.replica_set_name().map(str::to_owned),
                database: self.options.database.clone(),
                collection: self.options.collection.clone(),
            };
            self.info.send_replace(Some(info));
            // A full queue has news enough in it to wake the election.
            let _ = self.news.try_send(News::PrimaryChanged);
        }
    }

    async fn read(
        &self,
        collection: &Collection<Document>,
        confirm: bool,
    ) -> Result<Outcome, SendError> {
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
            .find_one(doc! { "_id": self.options.lease.as_str() })
            .projection(document::projection())
            .read_concern(concern)
            .selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::Primary))
            .max_time(self.options.operation_timeout)
            .await?;
        Ok(Outcome::Applied(self.found(document)))
    }

    /// Keeps a document for the change stream and reads it.
    fn found(&self, document: Option<Document>) -> Found {
        let found = document.as_ref().map_or(Found::Missing, document::read);
        if let (Found::Lease(_), Some(lease)) = (&found, &document)
            && let Some(why) = lock(&self.ignored_request).look(lease)
        {
            // For people only: a full queue has more important news in it.
            let _ = self.news.try_send(News::RequestIgnored(why));
        }
        *self.newest() = document;
        found
    }

    fn await_max(&self) -> Duration {
        change_stream::AWAIT_MAX.min(self.options.lease_duration / 3)
    }

    fn write_concern(&self) -> WriteConcern {
        WriteConcern::builder()
            .w(Acknowledgment::Majority)
            .journal(true)
            .w_timeout(self.options.operation_timeout)
            .build()
    }

    fn collection(&self, connection: &Connection) -> Collection<Document> {
        connection
            .client
            .database(&self.options.database)
            .collection(&self.options.collection)
    }

    fn newest(&self) -> MutexGuard<'_, Option<Document>> {
        lock(&self.newest)
    }

    fn unreachable(&self) -> Option<String> {
        lock(&self.unreachable).clone()
    }
}

/// The values behind these locks are whole at every instant, so a panic
/// elsewhere does not spoil them.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
