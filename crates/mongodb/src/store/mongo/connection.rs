//! Calls a deployment. Sets every option that the protocols rely on, whatever the connection string
//! says: majority and journal for writes (except hints and announced releases), no retried writes,
//! reads from the primary.

mod client;
mod diagnosis;
mod files;
mod monitoring;
mod seeds;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mongodb::Collection;
use mongodb::action::{FindOne, FindOneAndUpdate};
use mongodb::bson::{Document, Timestamp, doc};
use mongodb::options::{
    Acknowledgment, ReadConcern, ReturnDocument, UpdateModifications, WriteConcern,
};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::client::{ConnectedClient, Logins};
use self::diagnosis::Examinations;
use self::files::{FileReader, LastUri};
pub(super) use self::monitoring::Monitoring;
use self::seeds::Seeds;
use super::home::Home;
use super::options::StoreOptions;
use super::servers::Servers;
use super::{lock, outcome, primary};
use crate::store::{Answer, Failure, RetryPolicy, StoreInfo, StoreKind};
use crate::uri::UriProblem;
use leasehold_core::election::{BootTime, Outcome, Timings};

/// Time limit for shutting down a client. Ending the client's sessions takes milliseconds. The
/// client's monitors may run for one more heartbeat, but an exiting process need not wait for them.
const SHUTDOWN_MAX: Duration = Duration::from_millis(100);
pub(super) const URI_REFUSED: &str = "MongoDB URI refused";

pub(super) struct Deployment {
    pub(super) options: StoreOptions,
    monitoring: Monitoring,
    connections_max: u32,
    observers: Mutex<Vec<Box<dyn PrimaryObserver>>>,
    pub(super) info: watch::Sender<Option<StoreInfo>>,
    /// Created by the first call, so that a name that cannot be resolved yet does not end the
    /// process.
    connection: Mutex<Option<ConnectedClient>>,
    creating: tokio::sync::Mutex<()>,
    last_uri: Mutex<LastUri>,
    uri_files: FileReader,
    tls_files: FileReader,
    pub(super) servers: Arc<Servers>,
    /// Number of clients created so far. Each new client notifies the subscribers.
    pub(super) clients: watch::Sender<u64>,
    logins: Mutex<Logins>,
    examinations: Mutex<Examinations>,
    pub(super) home: Mutex<Home>,
    seeds: Mutex<Option<Arc<Seeds>>>,
    /// The task that repeats the comparison of the servers. Dropping the set aborts the task.
    comparing: Mutex<JoinSet<()>>,
    other_product: Mutex<Option<&'static str>>,
    pub(super) timings: watch::Sender<Timings>,
    /// Time of the first failed call since a server last answered.
    unanswered_since: Mutex<Option<BootTime>>,
}

pub(super) trait PrimaryObserver: Send + Sync {
    fn primary_changed(&self);

    fn is_gone(&self) -> bool;
}

pub(super) enum SendError {
    Unsent(Failure),
    /// Nothing was sent, because the connection string leads to a different deployment.
    Elsewhere(Failure),
    /// Nothing was sent, because the server did not report its identity.
    Unverified(mongodb::error::Error),
    Driver(mongodb::error::Error),
}

impl SendError {
    fn unsent(kind: &'static str, why: impl Into<String>, retry: RetryPolicy) -> Self {
        Self::Unsent(Failure::new(kind, why).with_retry(retry))
    }
}

impl From<mongodb::error::Error> for SendError {
    fn from(error: mongodb::error::Error) -> Self {
        Self::Driver(error)
    }
}

impl From<UriProblem> for SendError {
    fn from(problem: UriProblem) -> Self {
        let why = format!("it {problem}");
        Self::unsent(URI_REFUSED, why, RetryPolicy::Reconfigure)
    }
}

impl fmt::Debug for Deployment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deployment")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Drop for Deployment {
    /// Ends the sessions of the client in the background if there is a runtime.
    fn drop(&mut self) {
        if let (Some(connection), Ok(runtime)) = (self.take(), Handle::try_current()) {
            runtime.spawn(connection.close());
        }
    }
}

impl Deployment {
    pub(super) fn with_pool(
        options: StoreOptions,
        monitoring: Monitoring,
        connections_max: u32,
    ) -> Arc<Self> {
        Arc::new(Self {
            home: Mutex::new(Home::new(options.home.clone())),
            seeds: Mutex::new(None),
            comparing: Mutex::default(),
            timings: watch::Sender::new(options.timings),
            options,
            monitoring,
            connections_max,
            observers: Mutex::default(),
            info: watch::Sender::new(None),
            connection: Mutex::new(None),
            creating: tokio::sync::Mutex::new(()),
            last_uri: Mutex::default(),
            uri_files: FileReader::default(),
            tls_files: FileReader::default(),
            servers: Arc::default(),
            clients: watch::Sender::new(0),
            logins: Mutex::default(),
            examinations: Mutex::default(),
            other_product: Mutex::new(None),
            unanswered_since: Mutex::new(None),
        })
    }

    pub(super) fn observe(&self, observer: impl PrimaryObserver + 'static) {
        let mut observers = lock(&self.observers);
        observers.retain(|observer| !observer.is_gone());
        observers.push(Box::new(observer));
    }

    fn primary_changed(&self) {
        for observer in &*lock(&self.observers) {
            observer.primary_changed();
        }
    }

    pub(super) async fn collection(self: &Arc<Self>) -> Result<Collection<Document>, SendError> {
        if let Some(why) = lock(&self.home).unreported.clone() {
            return Err(SendError::Elsewhere(why));
        }
        let began = leasehold_clock::boot_now();
        let connection = self.connect().await?;
        // The monitors of a client that the program provided do not report to leasehold.
        if !connection.is_own || !lock(&self.home).has(connection.number) {
            self.verify(&connection).await?;
        }
        if leasehold_clock::boot_now().since(began) >= self.operation_timeout() {
            return Err(self.late());
        }
        let database = connection.client.database(&self.options.database);
        Ok(database.collection(&self.options.collection))
    }

    /// Returns the error for a call that was not sent, because the caller stopped waiting before a
    /// server was reached.
    fn late(&self) -> SendError {
        let why = match self.servers.known().caused() {
            causes if causes.is_empty() => {
                "check the network, or raise mongodb.operation_timeout".to_owned()
            }
            causes => causes.join("; "),
        };
        let kind = "MongoDB was not reached within operation_timeout";
        SendError::unsent(kind, why, RetryPolicy::WaitForServer)
    }

    pub(super) async fn admin(self: &Arc<Self>, command: Document) -> Result<Document, Failure> {
        let collection = self.collection().await;
        let collection = collection.map_err(|error| self.failure(&error))?;
        let admin = collection.client().database("admin");
        let reply = admin.run_command(command).selection_criteria(primary());
        reply.await.map_err(|error| self.describe(&error))
    }

    pub(super) async fn insert(self: &Arc<Self>, document: &Document) -> Result<(), SendError> {
        let collection = self.collection().await?;
        let inserted = collection.insert_one(document);
        inserted.write_concern(self.write_concern()).await?;
        Ok(())
    }

    pub(super) async fn update(
        self: &Arc<Self>,
        filter: Document,
        update: impl Into<UpdateModifications>,
        projection: Document,
    ) -> Result<Option<Document>, SendError> {
        let update = (filter, update.into());
        self.update_with(update, projection, self.write_concern())
            .await
    }

    pub(super) async fn update_with(
        self: &Arc<Self>,
        (filter, update): (Document, UpdateModifications),
        projection: Document,
        concern: WriteConcern,
    ) -> Result<Option<Document>, SendError> {
        let collection = self.collection().await?;
        let update = collection.find_one_and_update(filter, update);
        let update = self.returning(update, projection);
        Ok(update.write_concern(concern).await?)
    }

    /// Also returns the operation time. A change stream that starts at this time reports every
    /// later write.
    pub(super) async fn timed_update(
        self: &Arc<Self>,
        filter: Document,
        update: impl Into<UpdateModifications>,
        projection: Document,
    ) -> Result<(Option<Document>, Option<Timestamp>), SendError> {
        let collection = self.collection().await?;
        let mut session = collection.client().start_session().await?;
        let update = collection.find_one_and_update(filter, update);
        let update = self.returning(update, projection);
        let updated = update.session(&mut session).await?;
        Ok((updated, session.operation_time()))
    }

    fn returning<'a>(
        &self,
        update: FindOneAndUpdate<'a, Document>,
        projection: Document,
    ) -> FindOneAndUpdate<'a, Document> {
        update
            .projection(projection)
            .return_document(ReturnDocument::After)
            .write_concern(self.write_concern())
            .max_time(self.operation_timeout())
    }

    pub(super) async fn read(
        self: &Arc<Self>,
        name: &str,
        projection: Document,
        confirm: bool,
    ) -> Result<Option<Document>, SendError> {
        let collection = self.collection().await?;
        let read = self.find_one(&collection, name, projection);
        Ok(read.read_concern(self.read_concern(confirm)).await?)
    }

    /// With read concern majority, returns the time of the newest majority-committed write.
    pub(super) async fn read_time(
        &self,
        collection: &Collection<Document>,
        name: &str,
        concern: ReadConcern,
    ) -> Result<Option<Timestamp>, mongodb::error::Error> {
        let mut session = collection.client().start_session().await?;
        let read = self.find_one(collection, name, doc! { "_id": 1 });
        read.read_concern(concern).session(&mut session).await?;
        Ok(session.operation_time())
    }

    fn find_one<'a>(
        &self,
        collection: &'a Collection<Document>,
        name: &str,
        projection: Document,
    ) -> FindOne<'a, Document> {
        collection
            .find_one(doc! { "_id": name })
            .projection(projection)
            .selection_criteria(primary())
            .max_time(self.operation_timeout())
    }

    /// Confirming reads are linearizable, except on standalone servers, which cannot be deposed.
    fn read_concern(&self, confirm: bool) -> ReadConcern {
        match confirm && self.kind() != Some(StoreKind::Standalone) {
            true => ReadConcern::linearizable(),
            false => ReadConcern::majority(),
        }
    }

    pub(super) async fn described(&self) -> Option<StoreInfo> {
        let mut info = self.info.subscribe();
        let known = info.wait_for(Option::is_some).await.ok()?;
        known.clone()
    }

    pub(super) fn kind(&self) -> Option<StoreKind> {
        self.info.borrow().as_ref().map(|info| info.kind)
    }

    pub(super) fn has_late_streams(&self) -> bool {
        self.kind().is_some_and(StoreKind::has_late_streams)
    }

    /// Converts the result of a call into an answer, and discards an unusable client.
    pub(super) async fn answer<F>(&self, sent: Result<Outcome<F>, SendError>) -> Answer<F> {
        match sent {
            Ok(outcome) => {
                self.answered();
                Answer::of(outcome)
            }
            Err(error) => self.failed(error).await,
        }
    }

    pub(super) async fn read_answer<T>(&self, read: Result<T, SendError>) -> Result<T, Failure> {
        match read {
            Ok(value) => {
                self.answered();
                Ok(value)
            }
            Err(error) => {
                let Answer { failure, .. } = self.failed::<()>(error).await;
                Err(failure.unwrap_or_else(|| Failure::new("MongoDB refused the read", "")))
            }
        }
    }

    fn answered(&self) {
        *lock(&self.unanswered_since) = None;
        lock(&self.home).answered();
    }

    async fn failed<F>(&self, error: SendError) -> Answer<F> {
        if let SendError::Elsewhere(_) = error {
            lock(&self.home).unreported = None;
        }
        let mut answer = match &error {
            SendError::Driver(error) => outcome::classify(error, &self.servers),
            _ => Answer::failed(Outcome::Failed, self.failure(&error)),
        };
        answer.failure = answer.failure.map(|failure| self.with_unread_uri(failure));
        if answer.failure.is_none() {
            return answer;
        }
        let useless = match &error {
            SendError::Unverified(error) | SendError::Driver(error) => {
                let refused = outcome::refuses_login(error) || self.is_logged_out(error);
                let given_up = self.is_given_up(outcome::is_reply(error));
                refused || given_up
            }
            SendError::Unsent(_) | SendError::Elsewhere(_) => false,
        };
        self.renew_connection(useless).await;
        answer
    }

    /// True if the server may have dropped this client's user. Only a new client logs in again.
    fn is_logged_out(&self, error: &mongodb::error::Error) -> bool {
        outcome::code(error) == Some(outcome::UNAUTHORIZED)
            && lock(&self.logins).is_due(leasehold_clock::boot_now(), self.timings())
    }

    /// Replaces the client if an error of its change stream shows that it was logged out.
    pub(super) async fn stream_failed(&self, error: &mongodb::error::Error) {
        if self.is_logged_out(error) {
            self.renew_connection(true).await;
        }
    }

    pub(super) fn failure(&self, error: &SendError) -> Failure {
        match error {
            SendError::Unsent(failure) | SendError::Elsewhere(failure) => failure.clone(),
            SendError::Unverified(error) | SendError::Driver(error) => self.describe(error),
        }
    }

    pub(super) fn describe(&self, error: &mongodb::error::Error) -> Failure {
        outcome::describe(error, &self.servers)
    }

    /// Returns why the servers are unusable, if known before a call fails.
    pub(super) fn trouble(&self) -> Option<Failure> {
        if self.servers.known().writable().is_some() {
            return None;
        }
        let failure = self.servers.known().no_primary();
        (!failure.detail.is_empty()).then_some(failure)
    }

    pub(super) fn timings(&self) -> Timings {
        *self.timings.borrow()
    }

    pub(super) fn operation_timeout(&self) -> Duration {
        self.timings().operation_timeout()
    }

    /// Shuts down the client within [`SHUTDOWN_MAX`], even if it is still being created.
    pub(super) async fn shut_down(&self) {
        let ended = async {
            let _creating = self.creating.lock().await;
            if let Some(connection) = self.take() {
                connection.close().await;
            }
        };
        let _ = tokio::time::timeout(SHUTDOWN_MAX, ended).await;
    }

    fn take(&self) -> Option<ConnectedClient> {
        lock(&self.connection).take()
    }

    pub(super) fn write_concern(&self) -> WriteConcern {
        WriteConcern::builder()
            .w(Acknowledgment::Majority)
            .journal(true)
            .w_timeout(self.operation_timeout())
            .build()
    }
}

/// The write concern of writes that may be lost: the primary alone acknowledges them.
pub(super) fn by_primary() -> WriteConcern {
    WriteConcern::builder().w(Acknowledgment::Nodes(1)).build()
}
