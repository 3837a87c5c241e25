//! The change stream of one lease: hints, as early as possible.
//!
//! The stream requests no document lookups: an update event lists the changed fields, which are
//! applied to the newest known document. An event may be older than that document. The resulting
//! mixture is harmless and short-lived: it carries an old revision, on which no write can succeed,
//! and the events that follow repair it.

use std::sync::Arc;

use mongodb::Collection;
use mongodb::bson::{Bson, Document, doc};
use mongodb::change_stream::event::{ChangeStreamEvent, OperationType};
use tokio::sync::mpsc;

use super::connection::Deployment;
use super::follow::{self, Source, StreamEvent, StreamHandler};
use super::options::WatchMode;
use super::{LeaseInner, MongoStore, document, roll_call};
use crate::store::StoreEvent;
use leasehold_core::election::{Found, Watch};

impl StreamHandler for MongoStore {
    type Hint = Watch;

    fn deployment(&self) -> &Arc<Deployment> {
        &self.shared.deployment
    }

    fn pipeline(&self) -> Vec<Document> {
        pipeline(self.shared.lease.as_str()).into()
    }

    async fn source(&self, leases: &Collection<Document>) -> Source {
        let LeaseInner {
            hints,
            lease,
            deployment,
            news,
            ..
        } = &*self.shared;
        let mode = hints.mode();
        let source = match mode {
            WatchMode::Stream => Source::Stream,
            WatchMode::Poll => Source::Nothing,
            WatchMode::Auto | WatchMode::Hints => {
                let await_max = follow::await_max(deployment.timings());
                match hints.open(leases, lease, await_max).await {
                    Ok(cursor) if hints.are_wanted() => Source::Hints(Box::new(cursor)),
                    Ok(_) => Source::Stream,
                    Err(refusal) => {
                        let failure = refusal.failure(deployment);
                        let _ = news.send(StoreEvent::HintsFailed(failure)).await;
                        match mode {
                            WatchMode::Hints => Source::Nothing,
                            _ => Source::Stream,
                        }
                    }
                }
            }
        };
        hints.follows(matches!(source, Source::Hints(_)));
        source
    }

    fn interpret(&self, event: StreamEvent) -> Watch {
        match event {
            StreamEvent::Opened | StreamEvent::OpenedSince => {
                // Earlier changes are not reported, so no event may be applied to the document
                // known before.
                *self.shared.newest() = None;
                match self.shared.deployment.has_late_streams() {
                    true => Watch::LateStreamOpened,
                    false => Watch::Opened,
                }
            }
            StreamEvent::Change(event) => {
                self.answer_roll_call(roll_call::in_event(&event));
                let watch = apply_event(*event, &mut self.shared.newest());
                self.shared.choose_source();
                watch
            }
            StreamEvent::Alive => Watch::Alive,
            StreamEvent::HintsOpened => Watch::HintsOpened,
            StreamEvent::Hint => Watch::Hint,
            StreamEvent::Lost => Watch::Lost,
        }
    }

    fn events(&self) -> &mpsc::Sender<StoreEvent> {
        &self.shared.news
    }
}

/// Selects the events of this lease, and those that end the stream.
pub(super) fn pipeline(name: &str) -> [Document; 2] {
    let mine = doc! { "documentKey._id": name };
    [
        doc! { "$match": { "$or": [mine, follow::ends()] } },
        follow::small_parts(),
    ]
}

/// Applies an event to the newest known document.
pub(super) fn apply_event(
    event: ChangeStreamEvent<Document>,
    newest: &mut Option<Document>,
) -> Watch {
    match event.operation_type {
        OperationType::Insert | OperationType::Replace => *newest = event.full_document,
        OperationType::Update => {
            let description = event.update_description;
            let applied = match (&mut *newest, &description) {
                (Some(document), Some(change)) => {
                    // Removed fields are rare and come from manual edits, so the document is read.
                    let removed = change.removed_fields.iter();
                    !removed.map(|path| top(path)).any(document::is_read)
                        && apply(document, &change.updated_fields)
                }
                (None, _) | (_, None) => false,
            };
            if !applied {
                *newest = None;
            }
        }
        _ => *newest = None,
    }
    match newest.as_ref().map(document::read) {
        Some(Found::Lease(lease)) => Watch::Changed(lease),
        Some(Found::Missing | Found::Foreign(_)) | None => Watch::Unclear,
    }
}

/// Returns the field of the document that a path leads into.
fn top(path: &str) -> &str {
    path.split('.').next().unwrap_or(path)
}

/// Sets fields by their dotted paths; returns false if a path cannot be applied. Fields that the
/// election does not read are skipped.
pub(super) fn apply(document: &mut Document, fields: &Document) -> bool {
    for (path, value) in fields {
        let path = path.as_str();
        // The entries of the history are not read either.
        if !document::is_read(top(path))
            || path.starts_with("history.")
            || (path == "history" && matches!(value, Bson::Array(_)))
        {
            continue;
        }
        match path.split_once('.') {
            None => {
                document.insert(path, value.clone());
            }
            Some((outer, inner)) if !inner.contains('.') => match document.get_mut(outer) {
                Some(Bson::Document(outer)) => {
                    outer.insert(inner, value.clone());
                }
                Some(_) | None => return false,
            },
            Some(_) => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_set_by_their_paths() {
        let mut document = doc! { "holder": { "identity": "a", "renewed_at": 1 }, "token": 1 };
        let fields = doc! { "holder.renewed_at": 2, "token": 3, "history.4": { "token": 1 } };
        assert!(apply(&mut document, &fields));
        assert_eq!(
            document,
            doc! { "holder": { "identity": "a", "renewed_at": 2 }, "token": 3 }
        );
    }

    #[test]
    fn a_path_that_leads_nowhere_asks_for_a_read() {
        let mut document = doc! { "holder": null };
        assert!(!apply(&mut document, &doc! { "holder.renewed_at": 2 }));
        assert!(!apply(&mut document, &doc! { "holder.b.c": 2 }));
    }

    #[test]
    fn a_field_that_was_taken_away_asks_for_a_read() {
        let event = |removed: Vec<&str>| -> ChangeStreamEvent<Document> {
            mongodb::bson::deserialize_from_document(doc! {
                "_id": { "_data": "1" },
                "operationType": "update",
                "updateDescription": { "updatedFields": {}, "removedFields": removed },
            })
            .expect("an event")
        };
        let lease = document::create(
            "orders",
            leasehold_core::election::Revision::from_bytes([1; 16]),
            leasehold_core::election::Token::ZERO,
        );
        let mut newest = Some(lease);
        assert!(matches!(
            apply_event(event(vec![]), &mut newest),
            Watch::Changed(_)
        ));
        let others = event(vec!["roll_call", "actions.3"]);
        assert!(matches!(
            apply_event(others, &mut newest),
            Watch::Changed(_)
        ));
        assert_eq!(
            apply_event(event(vec!["paused"]), &mut newest),
            Watch::Unclear
        );
        assert_eq!(newest, None, "until the read brings the next one");
    }
}
