//! A live view of a collection. Reads all documents when the change stream opens, then follows its
//! events. Reads a document again if an event lacks some of the changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use mongodb::bson::{Bson, Document, doc};
use mongodb::change_stream::event::{ChangeStreamEvent, OperationType, UpdateDescription};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

use super::super::connection::{Deployment, PrimaryObserver};
use super::super::delta;
use super::super::follow::{self, StreamEvent, StreamHandler};
use super::records::projection;
use super::{CollectionEntry, LISTED_MAX, MongoCollection, Scope, name_of};
use crate::store::{Failure, StoreEvent};
use leasehold_core::election::{BootTime, Timings};

/// Capacity of the channels between stream, view and reader. Further events wait on the server.
const EVENTS_MAX: usize = 256;
/// Maximum time that the server holds a getMore without events. Shorter than for a daemon, because
/// an operator must not mistake the state before an outage for the current state.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// Documents without events for this long are read again if their state should change by now,
/// because the member behind the stream may be stale.
const DOUBT_AFTER: Duration = Duration::from_secs(10);
const DOUBTED_MAX: usize = 1_000;

/// An event of a [`LiveView`].
#[derive(Debug, Clone, PartialEq)]
pub enum ViewEvent {
    /// All documents. The list replaces all documents of earlier events.
    Listed {
        /// The documents, sorted by name.
        entries: Vec<CollectionEntry>,
        /// Time of receipt.
        at: BootTime,
    },
    /// One document changed.
    Changed {
        /// The current document.
        entry: CollectionEntry,
        /// Time of receipt.
        at: BootTime,
    },
    /// A document was deleted, or has left the scope.
    Removed {
        /// The document's name.
        name: String,
    },
    /// A read failed, for this reason. The view retries.
    Failed(Failure),
    /// The change stream failed, for this reason. The view reads at intervals.
    Polling(Failure),
    /// The change stream is open.
    Streaming,
}

/// A live view of a collection, until it is dropped.
#[derive(Debug)]
pub struct LiveView {
    events: mpsc::Receiver<ViewEvent>,
    last_answer: LastAnswer,
    reopen: Arc<Notify>,
    _tasks: JoinSet<()>,
}

/// Time of MongoDB's last answer to a [`LiveView`]. While MongoDB answers, an open change stream
/// updates the time every 2 s or more often, even if nothing changes. Shared by clones.
#[derive(Debug, Clone, Default)]
pub struct LastAnswer(Arc<AtomicU64>);

impl LastAnswer {
    /// Returns the time; `None` before the first answer.
    pub fn at(&self) -> Option<BootTime> {
        let nanos = self.0.load(Ordering::Relaxed);
        (nanos > 0).then(|| BootTime::from_nanos(nanos))
    }

    fn record(&self) {
        let now = leasehold_clock::boot_now().as_nanos();
        self.0.store(now, Ordering::Relaxed);
    }
}

fn await_max(timings: Timings) -> Duration {
    HEARTBEAT.min(follow::await_max(timings))
}

/// Returns the maximum time between two answers if MongoDB answers each call in time. Answers come
/// from the change stream; without a stream, from a read every `retry_interval`.
pub(super) fn answers_within(timings: Timings) -> Duration {
    await_max(timings).max(timings.retry_interval()) + timings.operation_timeout()
}

impl LiveView {
    pub(super) fn open(collection: MongoCollection, scope: Scope) -> Self {
        let (stream, received) = mpsc::channel(EVENTS_MAX);
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        let reopen = Arc::new(Notify::new());
        collection
            .deployment
            .observe(StreamReopener(Arc::downgrade(&reopen)));
        let follower = CollectionFollower {
            scope: scope.clone(),
            deployment: Arc::clone(&collection.deployment),
            events: stream,
        };
        let known = ViewTask {
            collection,
            scope,
            documents: BTreeMap::new(),
            others: BTreeSet::new(),
            events: sender,
            reopen: Arc::clone(&reopen),
            last_answer: LastAnswer::default(),
            streaming: false,
            listed: false,
        };
        let last_answer = known.last_answer.clone();
        let mut tasks = JoinSet::new();
        let follow = Arc::clone(&reopen);
        tasks.spawn(async move { follow::watch(follower, &follow).await });
        tasks.spawn(async move { drop(known.run(received).await) });
        Self {
            events,
            last_answer,
            reopen,
            _tasks: tasks,
        }
    }

    /// Returns the time of MongoDB's last answer.
    pub fn last_answer(&self) -> LastAnswer {
        self.last_answer.clone()
    }

    /// Opens a new change stream, and reads all documents again.
    pub fn reopen(&self) {
        self.reopen.notify_one();
    }

    /// Returns the next event, never `None`. Cancel safe.
    pub async fn next(&mut self) -> Option<ViewEvent> {
        self.events.recv().await
    }
}

/// Opens a new change stream after a change of the primary. Otherwise, the stream would stay on the
/// former primary, which may lag.
struct StreamReopener(Weak<Notify>);

impl PrimaryObserver for StreamReopener {
    fn primary_changed(&self) {
        if let Some(reopen) = self.0.upgrade() {
            reopen.notify_one();
        }
    }

    fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }
}

#[derive(Clone)]
struct CollectionFollower {
    scope: Scope,
    deployment: Arc<Deployment>,
    events: mpsc::Sender<StoreEvent<StreamEvent>>,
}

impl StreamHandler for CollectionFollower {
    type Hint = StreamEvent;

    fn deployment(&self) -> &Arc<Deployment> {
        &self.deployment
    }

    fn pipeline(&self) -> Vec<Document> {
        follow::events_of(self.scope.names())
    }

    fn await_max(&self, timings: Timings) -> Duration {
        await_max(timings)
    }

    fn interpret(&self, event: StreamEvent) -> StreamEvent {
        event
    }

    fn events(&self) -> &mpsc::Sender<StoreEvent<StreamEvent>> {
        &self.events
    }
}

struct ViewTask {
    collection: MongoCollection,
    scope: Scope,
    documents: BTreeMap<String, Stored>,
    /// Names of documents outside of the scope. Their updates are ignored.
    others: BTreeSet<String>,
    events: mpsc::Sender<ViewEvent>,
    reopen: Arc<Notify>,
    last_answer: LastAnswer,
    streaming: bool,
    /// True if every document is known.
    listed: bool,
}

struct Stored {
    document: Document,
    /// Time of the newest event or check.
    at: BootTime,
}

/// Error: the reader of the view was dropped.
struct Gone;

impl ViewTask {
    async fn run(
        mut self,
        mut stream: mpsc::Receiver<StoreEvent<StreamEvent>>,
    ) -> Result<(), Gone> {
        let retry = self.collection.deployment.timings().retry_interval();
        loop {
            let due = match self.streaming && self.listed {
                true => DOUBT_AFTER,
                false => retry,
            };
            match tokio::time::timeout(due, stream.recv()).await {
                Ok(None) => return Ok(()),
                Ok(Some(StoreEvent::WatchFailed(failure))) => {
                    self.streaming = false;
                    self.send(ViewEvent::Polling(failure)).await?;
                    self.list().await?;
                }
                Ok(Some(StoreEvent::Watch(StreamEvent::Lost))) => self.streaming = false,
                Ok(Some(StoreEvent::Watch(event))) => self.streamed(event).await?,
                Ok(Some(_)) => {}
                Err(_) if self.streaming && self.listed => self.check_quiet().await?,
                Err(_) => self.list().await?,
            }
        }
    }

    async fn streamed(&mut self, event: StreamEvent) -> Result<(), Gone> {
        self.last_answer.record();
        match event {
            StreamEvent::Opened | StreamEvent::OpenedSince | StreamEvent::HintsOpened => {
                self.streaming = true;
                self.send(ViewEvent::Streaming).await?;
                self.list().await
            }
            StreamEvent::Change(event) => self.change(*event).await,
            StreamEvent::Hint(_) => self.list().await,
            StreamEvent::Alive => self.check_quiet().await,
            StreamEvent::Lost => Ok(()),
        }
    }

    async fn list(&mut self) -> Result<(), Gone> {
        self.listed = false;
        let (filter, projection) = (self.scope.filter(), self.scope.projection());
        let documents = match self.collection.find(filter, projection).await {
            Ok(documents) => documents,
            Err(failure) => return self.send(ViewEvent::Failed(failure)).await,
        };
        self.listed = true;
        self.last_answer.record();
        let at = leasehold_clock::boot_now();
        let entries = documents.iter().filter_map(CollectionEntry::of).collect();
        self.others.clear();
        let named = documents.into_iter().filter_map(|document| {
            let id = document.get_str("_id").ok()?.to_owned();
            Some((id, Stored { document, at }))
        });
        self.documents = named.collect();
        self.send(ViewEvent::Listed { entries, at }).await
    }

    async fn change(&mut self, event: ChangeStreamEvent<Document>) -> Result<(), Gone> {
        let key = event.document_key.as_ref();
        let Some(Ok(id)) = key.map(|key| key.get_str("_id")) else {
            return self.list().await;
        };
        let id = id.to_owned();
        let known = match event.operation_type {
            OperationType::Delete => return self.replace(id, None).await,
            OperationType::Insert | OperationType::Replace => event.full_document,
            OperationType::Update => match &event.update_description {
                Some(_) if self.others.contains(&id) => return Ok(()),
                Some(update) => self.updated(&id, update),
                None => None,
            },
            _ => return self.list().await,
        };
        if known.is_some() {
            return self.replace(id, known).await;
        }
        match self.collection.document(&id).await {
            Ok(found) => self.replace(id, found).await,
            Err(failure) => {
                // Lists all documents again soon.
                self.listed = false;
                self.send(ViewEvent::Failed(failure)).await
            }
        }
    }

    /// Applies an update to a known document; `None` if the document must be read.
    fn updated(&mut self, id: &str, update: &UpdateDescription) -> Option<Document> {
        let known = &mut self.documents.get_mut(id)?.document;
        let is_wanted = |path: &str| projection().contains_key(delta::top(path));
        delta::apply(known, update, is_wanted).then(|| known.clone())
    }

    async fn replace(&mut self, id: String, document: Option<Document>) -> Result<(), Gone> {
        self.others.remove(&id);
        let scoped = |document: &Document| self.scope.contains(document);
        if self.others.len() < LISTED_MAX && document.as_ref().is_some_and(|it| !scoped(it)) {
            self.others.insert(id.clone());
        }
        let Some(document) = document.filter(scoped) else {
            let Some(removed) = self.documents.remove(&id) else {
                return Ok(());
            };
            let name = name_of(&removed.document).unwrap_or(id);
            return self.send(ViewEvent::Removed { name }).await;
        };
        let Some(entry) = CollectionEntry::of(&document) else {
            return Ok(());
        };
        let at = leasehold_clock::boot_now();
        if self.documents.len() < LISTED_MAX || self.documents.contains_key(&id) {
            self.documents.insert(id, Stored { document, at });
            self.send(ViewEvent::Changed { entry, at }).await?;
        }
        Ok(())
    }

    /// Reads the doubtful documents without recent events. If the stream missed a change, reopens
    /// the stream.
    async fn check_quiet(&mut self) -> Result<(), Gone> {
        let now = leasehold_clock::boot_now();
        let quiet = self.documents.iter_mut().filter(|(_, stored)| {
            is_doubtful(&stored.document) && now.since(stored.at) >= DOUBT_AFTER
        });
        let checked = quiet.take(DOUBTED_MAX).map(|(id, stored)| {
            stored.at = now;
            Bson::from(id)
        });
        let quiet: Vec<_> = checked.collect();
        if quiet.is_empty() {
            return Ok(());
        }
        let quiet = doc! { "_id": { "$in": quiet } };
        let found = match self.collection.find(quiet, projection()).await {
            Ok(found) => found,
            Err(failure) => {
                // After the failure, the reader hides all documents until they are listed again.
                self.listed = false;
                return self.send(ViewEvent::Failed(failure)).await;
            }
        };
        self.last_answer.record();
        let missed = |document: &Document| {
            let id = document.get_str("_id").unwrap_or_default();
            let known = self.documents.get(id);
            known.is_some_and(|known| differ(&known.document, document))
        };
        let stale: Vec<_> = found.into_iter().filter(|found| missed(found)).collect();
        if !stale.is_empty() {
            self.reopen.notify_one();
        }
        for document in stale {
            let id = document.get_str("_id").unwrap_or_default().to_owned();
            self.replace(id, Some(document)).await?;
        }
        Ok(())
    }

    async fn send(&self, event: ViewEvent) -> Result<(), Gone> {
        self.events.send(event).await.map_err(|_| Gone)
    }
}

/// Returns true if a document changes soon, or needs an operator's attention: a held lease, a free
/// lease, or a lock with holders or waiters. Free locks are excluded, because a collection may have
/// thousands of them.
fn is_doubtful(document: &Document) -> bool {
    let has = |key| document.get_array(key).is_ok_and(|list| !list.is_empty());
    document.contains_key("holder") || has("holders") || has("queue")
}

/// Returns true if a lease or lock changed or was renewed between two reads.
fn differ(before: &Document, after: &Document) -> bool {
    let keys = ["revision", "paused", "holders", "queue"];
    keys.iter().any(|key| before.get(key) != after.get(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quiet_leases_and_locks_in_use_are_read_again_and_each_missed_renewal_is_found() {
        let free = doc! { "holder": Bson::Null, "revision": 1, "paused": false };
        let held = doc! { "holder": { "identity": "a" }, "revision": 2, "paused": false };
        let lock = |holders: Vec<Document>, queue: Vec<Document>| {
            doc! { "holders": holders, "queue": queue }
        };
        let entry = |revision: i32| vec![doc! { "claim": 1, "revision": revision }];
        let locked = [lock(entry(1), vec![]), lock(vec![], entry(1))];
        for document in [&free, &held, &locked[0], &locked[1]] {
            assert!(is_doubtful(document), "{document}");
            assert!(!differ(document, document), "{document}");
        }
        for other in [lock(vec![], vec![]), doc! { "_id": "foreign" }] {
            assert!(!is_doubtful(&other), "{other}");
        }
        let paused = doc! { "holder": Bson::Null, "revision": 1, "paused": true };
        assert!(differ(&free, &held) && differ(&free, &paused));
        assert!(differ(&locked[0], &lock(entry(2), vec![])));
        assert!(differ(&locked[1], &lock(vec![], entry(2))));
        assert!(differ(&locked[0], &lock(vec![], vec![])), "released");
    }
}
