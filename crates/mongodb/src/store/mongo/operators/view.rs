//! A live view of a collection: one change stream, one read when it opens, and a read of single
//! documents where an event does not say enough.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Bson, Document, doc};
use mongodb::change_stream::event::UpdateDescription;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

use super::super::follow;
use super::delta;
use super::follower::{CollectionEvent, CollectionFollower, DocumentChange};
use super::records::{self, CollectionEntry};
use super::{LISTED_MAX, MongoCollection, Scope, name_of};
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
pub struct LiveView {
    events: mpsc::Receiver<ViewEvent>,
    _tasks: JoinSet<()>,
}

impl fmt::Debug for LiveView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").finish_non_exhaustive()
    }
}

impl LiveView {
    pub(super) fn open(collection: MongoCollection, scope: Scope) -> Self {
        let (hints, received) = mpsc::channel(EVENTS_MAX);
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        let reopen = Arc::new(Notify::new());
        let follower = CollectionFollower {
            scope: scope.clone(),
            deployment: Arc::clone(&collection.deployment),
            hints,
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
        tasks.spawn(known.run(received));
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

/// The task that applies events to the known documents.
struct ViewTask {
    collection: MongoCollection,
    scope: Scope,
    documents: BTreeMap<String, Stored>,
    /// Names of documents out of the scope, whose updates are ignored.
    others: BTreeSet<String>,
    events: mpsc::Sender<ViewEvent>,
    reopen: Arc<Notify>,
    /// True while changes are reported.
    streaming: bool,
    /// True if all documents have been read, and none is known to be missing.
    listed: bool,
}

/// A known document.
struct Stored {
    document: Document,
    changed_at: BootTime,
}

/// The reader of the view is gone.
struct Gone;

impl ViewTask {
    async fn run(mut self, mut hints: mpsc::Receiver<StoreEvent<CollectionEvent>>) {
        let _gone: Result<(), Gone> = self.serve(&mut hints).await;
    }

    async fn serve(
        &mut self,
        hints: &mut mpsc::Receiver<StoreEvent<CollectionEvent>>,
    ) -> Result<(), Gone> {
        let retry = self.collection.deployment.timings().retry_interval();
        loop {
            // Without a stream the collection is read at intervals, as followers do.
            let due = match self.streaming && self.listed {
                true => DOUBT_AFTER,
                false => retry,
            };
            match tokio::time::timeout(due, hints.recv()).await {
                Ok(None) => return Ok(()),
                Ok(Some(StoreEvent::WatchFailed(failure))) => {
                    self.streaming = false;
                    self.send(ViewEvent::Polling(failure)).await?;
                    self.list().await?;
                }
                Ok(Some(StoreEvent::Watch(hint))) => self.hint(hint).await?,
                Ok(Some(_)) => {}
                Err(_) if self.streaming && self.listed => self.check_silent().await?,
                Err(_) => self.list().await?,
            }
        }
    }

    async fn hint(&mut self, hint: CollectionEvent) -> Result<(), Gone> {
        match hint {
            CollectionEvent::Opened => {
                self.streaming = true;
                self.send(ViewEvent::Streaming).await?;
                self.list().await
            }
            CollectionEvent::Lost => {
                self.streaming = false;
                Ok(())
            }
            CollectionEvent::Collection => self.list().await,
            CollectionEvent::Document { id, change } => self.document(id, *change).await,
            CollectionEvent::Alive => self.check_silent().await,
        }
    }

    /// Reads all documents.
    async fn list(&mut self) -> Result<(), Gone> {
        self.listed = false;
        let documents = match self.collection.find(self.scope.filter()).await {
            Ok(documents) => documents,
            Err(failure) => {
                return self.send(ViewEvent::Failed(failure)).await;
            }
        };
        self.listed = true;
        let at = leasehold_clock::boot_now();
        let entries = documents.iter().filter_map(records::entry).collect();
        self.others.clear();
        self.documents = documents
            .into_iter()
            .filter_map(|document| {
                let id = document.get_str("_id").ok()?.to_owned();
                let changed_at = at;
                Some((
                    id,
                    Stored {
                        document,
                        changed_at,
                    },
                ))
            })
            .collect();
        self.send(ViewEvent::Listed { entries, at }).await
    }

    async fn document(&mut self, id: String, change: DocumentChange) -> Result<(), Gone> {
        if self.others.contains(&id) && matches!(change, DocumentChange::Fields(_)) {
            return Ok(());
        }
        let document = match change {
            DocumentChange::Removed => None,
            DocumentChange::Whole(document) => Some(document),
            DocumentChange::Fields(update) => match self.applied(&id, &update) {
                Some(document) => Some(document),
                None => match self.read(&id).await? {
                    Some(found) => found,
                    None => return Ok(()),
                },
            },
            DocumentChange::Unknown => match self.read(&id).await? {
                Some(found) => found,
                None => return Ok(()),
            },
        };
        self.replace(id, document).await
    }

    /// Applies an update to a known document; `None` if the document must be read.
    fn applied(&mut self, id: &str, update: &UpdateDescription) -> Option<Document> {
        let known = &mut self.documents.get_mut(id)?.document;
        delta::apply(known, update, super::is_shown).then(|| known.clone())
    }

    /// Reads one document. If that fails, all are read again soon, and `None` is returned.
    async fn read(&mut self, id: &str) -> Result<Option<Option<Document>>, Gone> {
        match self.collection.document(id).await {
            Ok(found) => Ok(Some(found)),
            Err(failure) => {
                self.listed = false;
                self.send(ViewEvent::Failed(failure)).await?;
                Ok(None)
            }
        }
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
        let Some(entry) = records::entry(&document) else {
            return Ok(());
        };
        let at = leasehold_clock::boot_now();
        if self.documents.len() < LISTED_MAX || self.documents.contains_key(&id) {
            self.documents.insert(
                id,
                Stored {
                    document,
                    changed_at: at,
                },
            );
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
        let found = match self
            .collection
            .find(doc! { "_id": { "$in": silent } })
            .await
        {
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
