//! Lets operators view and change leases and locks. Requests never change `revision`, because
//! repeated requests would then keep a crashed leader's lease from expiring.

mod actions;
mod records;
mod view;

#[cfg(test)]
mod any_bson;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use mongodb::bson::{Bson, Document, doc};
use mongodb::options::ReadConcern;
use tokio::sync::mpsc;
use tokio::time::timeout;

pub use self::actions::{Acted, ActionId, ActionKind, OperatorAction};
pub use self::records::{
    ActionRecord, CollectionEntry, Content, HolderRecord, LeaseRecord, LockRecord, RequestEffect,
    RequestRecord,
};
pub use self::view::{LastAnswer, LiveView, ViewEvent};
pub use super::roll_call::{Present, RollCall};

use super::connection::{Deployment, Monitoring, SendError};
use super::display::text;
use super::document::LOCK_KIND;
use super::lock::{MongoLockStore, with_server_now};
use super::options::StoreOptions;
use super::outcome::FIND_OR_UPDATE;
use super::{hints, lock, now, primary, roll_call};
use crate::store::{Answer, Failure, StoreInfo};
use leasehold_core::election::{ResourceName, Revision};

/// Maximum number of documents in a list.
pub const LISTED_MAX: usize = 10_000;

/// Selects the documents to list and follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Leases, and documents that are neither leases nor locks.
    Leases,
    /// Locks. Lists include the server's current time.
    Locks,
    /// All documents. Lists include the server's current time.
    All,
    /// One document.
    One(ResourceName),
}

impl Scope {
    fn names(&self) -> Bson {
        match self {
            Self::Leases | Self::Locks | Self::All => doc! { "$type": "string" }.into(),
            Self::One(name) => name.as_str().into(),
        }
    }

    fn filter(&self) -> Document {
        let mut filter = doc! { "_id": self.names() };
        match self {
            Self::Leases => drop(filter.insert("kind", doc! { "$ne": LOCK_KIND })),
            Self::Locks => drop(filter.insert("kind", LOCK_KIND)),
            Self::All | Self::One(_) => {}
        }
        filter
    }

    fn projection(&self) -> Document {
        match self {
            Self::Locks | Self::All => with_server_now(records::projection()),
            Self::Leases | Self::One(_) => records::projection(),
        }
    }

    /// True if a document with a matching `_id` is in the scope.
    fn contains(&self, document: &Document) -> bool {
        let is_lock = document.get_str("kind").ok() == Some(LOCK_KIND);
        match self {
            Self::Leases => !is_lock,
            Self::Locks => is_lock,
            Self::All | Self::One(_) => true,
        }
    }
}

/// The leases and locks of one collection. Connects when it is first called.
#[derive(Debug, Clone)]
pub struct MongoCollection {
    deployment: Arc<Deployment>,
}

impl MongoCollection {
    /// Creates the view of a collection.
    pub fn new(options: StoreOptions) -> Self {
        Self::of(Deployment::new(options, Monitoring::Reports))
    }

    /// Creates the view of a collection for a few calls. Uses fewer connections.
    pub fn brief(options: StoreOptions) -> Self {
        Self::of(Deployment::new(options, Monitoring::Checks))
    }

    fn of(deployment: Arc<Deployment>) -> Self {
        let collection = Self { deployment };
        collection.restarts("this command");
        collection
    }

    /// Sets the command that an operator restarts to use another deployment.
    pub fn restarts(&self, command: &'static str) {
        lock(&self.deployment.home).restart = Some(command);
    }

    pub(super) fn over(deployment: Arc<Deployment>) -> Self {
        Self { deployment }
    }

    /// Returns the deployment; `None` until a server has answered.
    pub fn info(&self) -> Option<StoreInfo> {
        self.deployment.info.subscribe().borrow().clone()
    }

    /// Returns why no server can be used, if known before a call fails.
    pub fn trouble(&self) -> Option<Failure> {
        self.deployment.trouble()
    }

    /// Waits until MongoDB refuses the login, or reports a replica set that the connection string
    /// does not name. Returns the reason; retries cannot help. Does not connect.
    pub async fn refused(&self) -> Failure {
        self.deployment.servers.refused().await
    }

    /// Returns at most [`LISTED_MAX`] documents, sorted by name.
    pub async fn list(&self, scope: &Scope) -> Result<Vec<CollectionEntry>, Failure> {
        let found = self.find(scope.filter(), scope.projection()).await?;
        Ok(found.iter().filter_map(CollectionEntry::of).collect())
    }

    /// Returns one document; `None` if no document has this name.
    pub async fn read(&self, name: &str) -> Result<Option<CollectionEntry>, Failure> {
        let found = self.document(name).await?;
        Ok(found.as_ref().and_then(CollectionEntry::of))
    }

    /// Returns a store for one lock, for reads and single writes through this client.
    pub fn lock(&self, name: ResourceName) -> MongoLockStore {
        // Nothing opens a change stream, so there are no events.
        let (news, _) = mpsc::channel(1);
        MongoLockStore::over(Arc::clone(&self.deployment), true, name, news)
    }

    /// Follows the collection from now on.
    pub fn follow(&self, scope: Scope) -> LiveView {
        LiveView::open(self.clone(), scope)
    }

    /// Maximum time between two answers to a [`LiveView`] if MongoDB answers calls in time.
    pub fn answers_within(&self) -> Duration {
        view::answers_within(self.deployment.timings())
    }

    /// Writes an action into the lease, if the lease has not changed since it was `seen`.
    pub async fn act(
        &self,
        name: &ResourceName,
        seen: &LeaseRecord,
        action: &OperatorAction,
    ) -> Answer<()> {
        let Some(write) = actions::write(name.as_str(), seen, action, now()) else {
            return Answer::of(Acted::Rejected);
        };
        let acted = self.write(write).await;
        let holder = seen.held_by();
        if holder.is_none_or(|holder| holder.renew_interval.is_some()) {
            self.hint(name, &acted).await;
        }
        acted
    }

    /// Requests a report from each candidate of a lease ([`LeaseRecord::roll_call`]).
    pub async fn call_roll(&self, name: &ResourceName, call: ActionId) -> Answer<()> {
        let call = roll_call::call(name.as_str(), call.bytes());
        let called = self.write(call).await;
        self.hint(name, &called).await;
        called
    }

    /// Removes a roll call from the lease.
    pub async fn end_roll_call(&self, name: &ResourceName, call: ActionId) -> Answer<()> {
        let end = roll_call::end(name.as_str(), call.bytes());
        self.write(end).await
    }

    /// Creates a free lease. Rejected if the document exists, or if the action is not a creation.
    pub async fn create(
        &self,
        name: &ResourceName,
        revision: Revision,
        action: &OperatorAction,
    ) -> Answer<()> {
        let ActionKind::Create { token } = action.kind else {
            return Answer::of(Acted::Rejected);
        };
        let document = actions::create(name.as_str(), revision, token, action, now());
        let deployment = Arc::clone(&self.deployment);
        let insert = async move {
            let inserted = deployment.insert(&document).await;
            inserted.map(Acted::Applied)
        };
        let created = self.written(insert).await;
        self.hint(name, &created).await;
        created
    }

    /// Shuts down the client, within a bounded time.
    pub async fn shut_down(&self) {
        self.deployment.shut_down().await;
    }

    async fn hint(&self, name: &ResourceName, answer: &Answer<()>) {
        if answer.outcome == Acted::Applied(()) {
            hints::leave_for_operator(Arc::clone(&self.deployment), name.to_string()).await;
        }
    }

    async fn write(&self, (filter, update): (Document, Document)) -> Answer<()> {
        let deployment = Arc::clone(&self.deployment);
        let update = async move {
            let updated = deployment.update(filter, update, doc! { "_id": 1 });
            let applied = updated.await?.map(|_| Acted::Applied(()));
            Ok(applied.unwrap_or(Acted::Rejected))
        };
        let mut answer = self.written(update).await;
        // A command writes only after it has read the document, so its user has the right `find`.
        if let Some(failure) = &mut answer.failure {
            failure.detail = failure
                .detail
                .replace(FIND_OR_UPDATE, "lacks the right update");
        }
        answer
    }

    /// Waits for a write. A write that times out keeps running; its outcome counts as unknown.
    async fn written(
        &self,
        write: impl Future<Output = Result<Acted, SendError>> + Send + 'static,
    ) -> Answer<()> {
        match timeout(self.call_max(), tokio::spawn(write)).await {
            Ok(Ok(sent)) => self.deployment.answer(sent).await,
            // The driver panicked, or has not answered.
            Ok(Err(_)) | Err(_) => {
                Answer::failed(Acted::Unknown, Failure::no_answer(self.call_max()))
            }
        }
    }

    /// Waits for a read. A read that times out is dropped, and the driver closes its connection.
    async fn answered<T>(
        &self,
        read: impl Future<Output = Result<T, SendError>>,
    ) -> Result<T, Failure> {
        let Ok(read) = timeout(self.call_max(), read).await else {
            return Err(Failure::no_answer(self.call_max()));
        };
        self.deployment.read_answer(read).await
    }

    /// The timeout of a call: one `operation_timeout` to select a server, and one for the answer.
    fn call_max(&self) -> Duration {
        2 * self.deployment.operation_timeout()
    }

    async fn document(&self, name: &str) -> Result<Option<Document>, Failure> {
        let read = self.deployment.read(name, records::projection(), false);
        self.answered(read).await
    }

    async fn find(&self, filter: Document, projection: Document) -> Result<Vec<Document>, Failure> {
        let found = async {
            let collection = self.deployment.collection().await?;
            let found = collection
                .find(filter)
                .sort(doc! { "_id": 1 })
                .projection(projection)
                .limit(i64::try_from(LISTED_MAX).unwrap_or(i64::MAX))
                .read_concern(ReadConcern::majority())
                .selection_criteria(primary())
                .max_time(self.deployment.operation_timeout())
                .await?;
            Ok(found.try_collect().await?)
        };
        self.answered(found).await
    }
}

/// Returns a document's name, escaped for a terminal; `None` if the `_id` is not a string.
fn name_of(document: &Document) -> Option<String> {
    text(document, "_id")
}
