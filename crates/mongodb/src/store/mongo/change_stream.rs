//! The change stream of one lease. Events are only hints.
//!
//! An update event lists only the changed fields, which are applied to the newest known document.
//! An event older than the document is harmless, because no write that expects the event's revision
//! succeeds.

use std::sync::Arc;

use mongodb::Collection;
use mongodb::bson::Document;
use mongodb::change_stream::event::{ChangeStreamEvent, OperationType, UpdateDescription};
use tokio::sync::mpsc;

use super::connection::Deployment;
use super::follow::{self, Source, StreamEvent, StreamHandler};
use super::options::WatchMode;
use super::{MongoStore, delta, document, lock, roll_call};
use crate::store::StoreEvent;
use leasehold_core::election::{Found, Watch};

impl StreamHandler for MongoStore {
    type Hint = Watch;

    fn deployment(&self) -> &Arc<Deployment> {
        &self.shared.deployment
    }

    fn pipeline(&self) -> Vec<Document> {
        follow::events_of(self.shared.lease.as_str())
    }

    async fn source(&self, leases: &Collection<Document>) -> Source {
        let shared = &*self.shared;
        let (hints, deployment) = (&shared.hints, &shared.deployment);
        match hints.mode {
            WatchMode::Stream => return Source::Stream,
            WatchMode::Poll => return Source::Nothing,
            WatchMode::Auto | WatchMode::Hints => {}
        }
        let await_max = follow::await_max(deployment.timings());
        let may_create = shared.may_create_hints();
        match hints
            .open(
                leases,
                (&shared.lease, &deployment.options.identity),
                await_max,
                may_create,
            )
            .await
        {
            Ok(Some(cursor)) => Source::Hints(Box::new(cursor)),
            Ok(None) => Source::Stream,
            Err(refusal) => {
                let failure = refusal.failure(deployment);
                let _ = shared.news.send(StoreEvent::HintsFailed(failure)).await;
                match hints.mode {
                    WatchMode::Hints => Source::Nothing,
                    _ => Source::Stream,
                }
            }
        }
    }

    fn interpret(&self, event: StreamEvent) -> Watch {
        match event {
            StreamEvent::Opened | StreamEvent::OpenedSince => {
                // The known document may lack changes that were made before the stream was opened.
                *lock(&self.shared.newest) = None;
                match self.shared.deployment.has_late_streams() {
                    true => Watch::LateStreamOpened,
                    false => Watch::Opened,
                }
            }
            StreamEvent::Change(event) => {
                self.shared.called(roll_call::in_event(&event));
                let watch = apply_event(*event, &mut lock(&self.shared.newest));
                self.shared.choose_source();
                watch
            }
            StreamEvent::Alive => Watch::Alive,
            StreamEvent::HintsOpened => Watch::HintsOpened,
            StreamEvent::Hint(released) => {
                self.shared.hints.heard();
                released.map_or(Watch::Hint, Watch::Released)
            }
            StreamEvent::Lost => {
                self.shared.hints.lost();
                Watch::Lost
            }
        }
    }

    fn events(&self) -> &mpsc::Sender<StoreEvent> {
        &self.shared.news
    }
}

pub(super) fn apply_event(
    event: ChangeStreamEvent<Document>,
    newest: &mut Option<Document>,
) -> Watch {
    match event.operation_type {
        OperationType::Insert | OperationType::Replace => *newest = event.full_document,
        OperationType::Update => {
            let update = event.update_description.as_ref();
            newest.take_if(|known| !update.is_some_and(|update| apply(known, update)));
        }
        _ => *newest = None,
    }
    match newest.as_ref().map(document::read) {
        Some(Found::Lease(lease)) => Watch::Changed(lease),
        Some(Found::Missing | Found::Foreign(_)) | None => Watch::Unclear,
    }
}

/// Applies an update to the fields that the election reads. Returns false if the document must be
/// read instead, for example because a manual edit removed a field.
pub(super) fn apply(document: &mut Document, update: &UpdateDescription) -> bool {
    let is_read = |path: &str| document::is_read(delta::top(path));
    // The election reads the type of the history field, but not its entries.
    let is_wanted = |path: &str| is_read(path) && !path.starts_with("history.");
    !update.removed_fields.iter().any(|path| is_read(path))
        && delta::apply(document, update, is_wanted)
}

#[cfg(test)]
mod tests {
    use mongodb::bson::doc;

    use super::super::any_bson::updated;
    use super::*;

    #[test]
    fn fields_are_set_by_their_paths() {
        let mut document = doc! { "holder": { "identity": "a", "renewed_at": 1 }, "token": 1 };
        let fields = doc! { "holder.renewed_at": 2, "token": 3, "history.4": { "token": 1 } };
        assert!(apply(&mut document, &updated(fields)));
        assert_eq!(
            document,
            doc! { "holder": { "identity": "a", "renewed_at": 2 }, "token": 3 }
        );
    }

    #[test]
    fn a_path_that_leads_nowhere_asks_for_a_read() {
        for fields in [doc! { "holder.renewed_at": 2 }, doc! { "holder.b.c": 2 }] {
            assert!(!apply(&mut doc! { "holder": null }, &updated(fields)));
        }
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
        assert_eq!(newest, None, "empty until the next read");
    }
}
