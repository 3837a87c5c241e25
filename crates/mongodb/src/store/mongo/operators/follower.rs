//! The change stream of a collection.

use std::sync::Arc;

use mongodb::bson::{Document, doc};
use mongodb::change_stream::event::{ChangeStreamEvent, OperationType, UpdateDescription};
use tokio::sync::mpsc;

use super::super::change_stream;
use super::super::connection::Deployment;
use super::super::follow::{StreamEvent, StreamHandler};
use super::Scope;
use crate::store::StoreEvent;

/// The consumer of the change stream.
#[derive(Clone)]
pub(super) struct Follower {
    pub(super) scope: Scope,
    pub(super) deployment: Arc<Deployment>,
    pub(super) hints: mpsc::Sender<StoreEvent<Hint>>,
}

/// An event of the stream.
pub(super) enum Hint {
    /// The stream is open; changes from now on will be reported.
    Opened,
    /// One document changed.
    Document {
        /// Its `_id`.
        id: String,
        /// The change.
        change: Box<Change>,
    },
    /// The collection changed as a whole.
    Collection,
    /// Nothing changed, and the stream is alive.
    Alive,
    /// The stream is closed, or could not be opened.
    Lost,
}

/// A change of one document.
pub(super) enum Change {
    /// The document as it is now.
    Whole(Document),
    /// The changed fields.
    Fields(UpdateDescription),
    /// The event does not say how: the document must be read.
    Unknown,
    /// The document was deleted.
    Removed,
}

impl StreamHandler for Follower {
    type Hint = Hint;

    fn deployment(&self) -> &Arc<Deployment> {
        &self.deployment
    }

    fn pipeline(&self) -> Vec<Document> {
        let named = doc! { "documentKey._id": self.scope.names() };
        let matched = doc! { "$match": { "$or": [named, change_stream::ends()] } };
        vec![matched, change_stream::small_parts()]
    }

    fn hint(&self, event: StreamEvent) -> Hint {
        match event {
            StreamEvent::Opened | StreamEvent::OpenedSince => Hint::Opened,
            StreamEvent::Change(event) => hint(*event),
            StreamEvent::Alive => Hint::Alive,
            StreamEvent::Lost => Hint::Lost,
        }
    }

    fn news(&self) -> &mpsc::Sender<StoreEvent<Hint>> {
        &self.hints
    }
}

fn hint(event: ChangeStreamEvent<Document>) -> Hint {
    let key = event.document_key.as_ref();
    let Some(id) = key.and_then(|key| key.get_str("_id").ok()) else {
        return Hint::Collection;
    };
    let change = match event.operation_type {
        OperationType::Insert | OperationType::Replace => {
            event.full_document.map_or(Change::Unknown, Change::Whole)
        }
        OperationType::Update => event
            .update_description
            .map_or(Change::Unknown, Change::Fields),
        OperationType::Delete => Change::Removed,
        _ => return Hint::Collection,
    };
    Hint::Document {
        id: id.to_owned(),
        change: Box::new(change),
    }
}
