//! A live view of a collection: one change stream, one read when it opens, and a read of single
//! documents where an event does not say enough.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Bson, Document, doc};
use mongodb::change_stream::event::{ChangeStreamEvent, OperationType, UpdateDescription};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

use super::super::connection::Deployment;
use super::super::delta;
use super::super::follow::{self, StreamEvent, StreamHandler};
use super::records::projection;
use super::{CollectionEntry, LISTED_MAX, MongoCollection, Scope, is_shown, name_of};
use crate::store::{Failure, StoreEvent};
use leasehold_core::election::BootTime;

/// Capacity of the channels between stream, view and reader. A reader that falls behind delays the
/// stream, which the server keeps.
const EVENTS_MAX: usize = 256;
/// Interval between the checks of holders whose renewals the stream does not report. A stream that
/// answers may still be stale: its member may lag, or be cut off from the set.
const DOUBT_AFTER: Duration = Duration::from_secs(10);
/// Holders that one check reads.
const DOUBTED_MAX: usize = 1_000;

/// An event of a [`LiveView`].
#[derive(Debug, Clone, PartialEq)]
pub enum ViewEvent {
    /// All documents, replacing what was known.
    Listed {
        /// The documents, sorted by name.
        entries: Vec<CollectionEntry>,
        /// Time at which they were received.
        at: BootTime,
    },
    /// One document changed.
    Changed {
        /// The current document.
        entry: CollectionEntry,
        /// Time at which the change was received.
        at: BootTime,
    },
    /// A document was deleted, or is no longer in the scope.
    Removed {
        /// Its name.
        name: String,
    },
    /// The store cannot be read, for this reason; the view retries.
    Failed(Failure),
    /// Changes are not reported, for this reason; the view reads at intervals.
    Polling(Failure),
    /// Changes are reported from now on.
    Streaming,
}

/// A live view of a collection. It ends when it is dropped.
#[derive(Debug)]
pub struct LiveView {
    events: mpsc::Receiver<ViewEvent>,
    _tasks: JoinSet<()>,
}

impl LiveView {
    pub(super) fn open(collection: MongoCollection, scope: Scope) -> Self {
        let (stream, received) = mpsc::channel(EVENTS_MAX);
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        let reopen = Arc::new(Notify::new());
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
            streaming: false,
            listed: false,
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { follow::watch(follower, &reopen).await });
        tasks.spawn(async move { drop(known.run(received).await) });
        Self {
            events,
            _tasks: tasks,
        }
    }

    /// Returns the next event; `None` never follows while the view exists. Dropping the future
    /// loses no event.
    pub async fn next(&mut self) -> Option<ViewEvent> {
        self.events.recv().await
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

    fn interpret(&self, event: StreamEvent) -> StreamEvent {
        event
    }

    fn events(&self) -> &mpsc::Sender<StoreEvent<StreamEvent>> {
        &self.events
    }
}

/// The task that applies events to the known documents.
struct ViewTask {
    collection: MongoCollection,
    scope: Scope,
    documents: BTreeMap<String, Stored>,
    /// Names of documents out of the scope, whose updates are ignored.
    others: BTreeSet<String>,
    events: mpsc::Sender<ViewEvent>,
    reopen: Arc<Notify>,
    streaming: bool,
    /// True if all documents have been read, and none is known to be missing.
    listed: bool,
}

struct Stored {
    document: Document,
    changed_at: BootTime,
}

/// The reader of the view is gone.
struct Gone;

impl ViewTask {
    async fn run(
        mut self,
        mut stream: mpsc::Receiver<StoreEvent<StreamEvent>>,
    ) -> Result<(), Gone> {
        let retry = self.collection.deployment.timings().retry_interval();
        loop {
            // Without a stream the collection is read at intervals, as followers do.
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
                Ok(Some(StoreEvent::Watch(event))) => self.stream_event(event).await?,
                Ok(Some(_)) => {}
                Err(_) if self.streaming && self.listed => self.check_silent().await?,
                Err(_) => self.list().await?,
            }
        }
    }

    async fn stream_event(&mut self, event: StreamEvent) -> Result<(), Gone> {
        match event {
            StreamEvent::Opened | StreamEvent::OpenedSince | StreamEvent::HintsOpened => {
                self.streaming = true;
                self.send(ViewEvent::Streaming).await?;
                self.list().await
            }
            StreamEvent::Change(event) => self.change(*event).await,
            StreamEvent::Hint => self.list().await,
            StreamEvent::Alive => self.check_silent().await,
            StreamEvent::Lost => {
                self.streaming = false;
                Ok(())
            }
        }
    }

    async fn list(&mut self) -> Result<(), Gone> {
        self.listed = false;
        let documents = match self.collection.find(&self.scope).await {
            Ok(documents) => documents,
            Err(failure) => return self.send(ViewEvent::Failed(failure)).await,
        };
        self.listed = true;
        let at = leasehold_clock::boot_now();
        let entries = documents.iter().filter_map(CollectionEntry::of).collect();
        self.others.clear();
        self.documents = documents
            .into_iter()
            .filter_map(|document| {
                let id = document.get_str("_id").ok()?.to_owned();
                let stored = Stored {
                    document,
                    changed_at: at,
                };
                Some((id, stored))
            })
            .collect();
        self.send(ViewEvent::Listed { entries, at }).await
    }

    /// Applies a change of one document, or reads the document if the event does not say enough.
    async fn change(&mut self, event: ChangeStreamEvent<Document>) -> Result<(), Gone> {
        let key = event.document_key.as_ref();
        let id = key.and_then(|key| key.get_str("_id").ok());
        let Some(id) = id.map(str::to_owned) else {
            return self.list().await;
        };
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
        let document = match known {
            Some(document) => Some(document),
            None => match self.collection.document(&id).await {
                Ok(found) => found,
                Err(failure) => {
                    // All documents are read again soon.
                    self.listed = false;
                    return self.send(ViewEvent::Failed(failure)).await;
                }
            },
        };
        self.replace(id, document).await
    }

    /// Applies an update to a known document; `None` if the document must be read.
    fn updated(&mut self, id: &str, update: &UpdateDescription) -> Option<Document> {
        let known = &mut self.documents.get_mut(id)?.document;
        let is_wanted = |path: &str| is_shown(delta::top(path));
        delta::apply(known, update, is_wanted).then(|| known.clone())
    }

    async fn replace(&mut self, id: String, document: Option<Document>) -> Result<(), Gone> {
        self.others.remove(&id);
        let Some(document) = document else {
            return self.removed(id).await;
        };
        if !self.scope.contains(&document) {
            let removed = self.removed(id.clone()).await;
            if self.others.len() < LISTED_MAX {
                self.others.insert(id);
            }
            return removed;
        }
        let Some(entry) = CollectionEntry::of(&document) else {
            return Ok(());
        };
        let at = leasehold_clock::boot_now();
        if self.documents.len() < LISTED_MAX || self.documents.contains_key(&id) {
            let changed_at = at;
            let stored = Stored {
                document,
                changed_at,
            };
            self.documents.insert(id, stored);
            self.send(ViewEvent::Changed { entry, at }).await?;
        }
        Ok(())
    }

    async fn removed(&mut self, id: String) -> Result<(), Gone> {
        match self.documents.remove(&id) {
            Some(stored) => {
                let name = name_of(&stored.document).unwrap_or(id);
                self.send(ViewEvent::Removed { name }).await
            }
            None => Ok(()),
        }
    }

    /// Reads the leases whose holders have not renewed for a while. If a holder has, the stream is
    /// stale and is reopened.
    async fn check_silent(&mut self) -> Result<(), Gone> {
        let now = leasehold_clock::boot_now();
        let silent: Vec<Bson> = self
            .documents
            .iter_mut()
            .filter(|(_, stored)| {
                stored.document.get_document("holder").is_ok()
                    && now.since(stored.changed_at) >= DOUBT_AFTER
            })
            .take(DOUBTED_MAX)
            .map(|(id, stored)| {
                stored.changed_at = now;
                Bson::from(id)
            })
            .collect();
        if silent.is_empty() {
            return Ok(());
        }
        let silent = doc! { "_id": { "$in": silent } };
        let found = match self.collection.find_with(silent, projection()).await {
            Ok(found) => found,
            Err(failure) => return self.send(ViewEvent::Failed(failure)).await,
        };
        let renewed = |document: &Document| {
            let id = document.get_str("_id").unwrap_or_default();
            let known = self.documents.get(id);
            known.is_some_and(|known| known.document.get("revision") != document.get("revision"))
        };
        let stale: Vec<_> = found.into_iter().filter(|found| renewed(found)).collect();
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
