//! The change stream of a collection.

use std::sync::Arc;

use mongodb::bson::{Document, doc};
use mongodb::change_stream::event::{ChangeStreamEvent, OperationType, UpdateDescription};
use tokio::sync::mpsc;

use super::super::connection::Deployment;
use super::super::follow::{self, StreamEvent, StreamHandler};
use super::Scope;
use crate::store::StoreEvent;

/// The consumer of the change stream.
#[derive(Clone)]
pub(super) struct CollectionFollower {
    pub(super) scope: Scope,
    pub(super) deployment: Arc<Deployment>,
    pub(super) hints: mpsc::Sender<StoreEvent<CollectionEvent>>,
}

/// An event of the stream.
pub(super) enum CollectionEvent {
    /// The stream is open; changes from now on will be reported.
    Opened,
    /// One document changed.
    Document {
        /// Its `_id`.
        id: String,
        /// The change.
        change: Box<DocumentChange>,
    },
    /// The collection changed as a whole.
    Collection,
    /// Nothing changed, and the stream is alive.
    Alive,
    /// The stream is closed, or could not be opened.
    Lost,
}

/// A change of one document.
pub(super) enum DocumentChange {
    /// The current document.
    Whole(Document),
    /// The changed fields.
    Fields(UpdateDescription),
    /// The event does not say how: the document must be read.
    Unknown,
    /// The document was deleted.
    Removed,
}

impl StreamHandler for CollectionFollower {
    type Hint = CollectionEvent;

    fn deployment(&self) -> &Arc<Deployment> {
        &self.deployment
    }

    fn pipeline(&self) -> Vec<Document> {
        let named = doc! { "documentKey._id": self.scope.names() };
        let matched = doc! { "$match": { "$or": [named, follow::ends()] } };
        vec![matched, follow::small_parts()]
    }

    fn interpret(&self, event: StreamEvent) -> CollectionEvent {
        match event {
            StreamEvent::Opened | StreamEvent::OpenedSince | StreamEvent::HintsOpened => {
                CollectionEvent::Opened
            }
            StreamEvent::Change(event) => hint(*event),
            StreamEvent::Hint => CollectionEvent::Collection,
            StreamEvent::Alive => CollectionEvent::Alive,
            StreamEvent::Lost => CollectionEvent::Lost,
        }
    }

    fn events(&self) -> &mpsc::Sender<StoreEvent<CollectionEvent>> {
        &self.hints
    }
}

fn hint(event: ChangeStreamEvent<Document>) -> CollectionEvent {
    let key = event.document_key.as_ref();
    let Some(id) = key.and_then(|key| key.get_str("_id").ok()) else {
        return CollectionEvent::Collection;
    };
    let change = match event.operation_type {
        OperationType::Insert | OperationType::Replace => event
            .full_document
            .map_or(DocumentChange::Unknown, DocumentChange::Whole),
        OperationType::Update => event
            .update_description
            .map_or(DocumentChange::Unknown, DocumentChange::Fields),
        OperationType::Delete => DocumentChange::Removed,
        _ => return CollectionEvent::Collection,
    };
    CollectionEvent::Document {
        id: id.to_owned(),
        change: Box::new(change),
    }
}
