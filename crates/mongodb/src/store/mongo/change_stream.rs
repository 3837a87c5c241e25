//! The change stream of one lease: hints, as early as possible.
//!
//! The stream requests no document lookups: an update event lists the changed fields, which are
//! applied to the newest known document. An event may be older than that document. The resulting
//! mixture is harmless and short-lived: it carries an old revision, on which no write can succeed,
//! and the events that follow repair it.

use mongodb::bson::{Bson, Document, doc};
use mongodb::change_stream::event::{ChangeStreamEvent, OperationType};

use super::document;
use leasehold_core::election::{Found, Watch};

/// Maximum size of a part of an event. A larger part stays on the server, and the document is read
/// instead. A lease is a hundred times smaller, but another program may write megabytes of other
/// data into its document.
const PART_MAX: i32 = 128 * 1024;

/// Selects the events of this lease, and those that end the stream.
pub(super) fn pipeline(name: &str) -> [Document; 2] {
    let mine = doc! { "documentKey._id": name };
    [doc! { "$match": { "$or": [mine, ends()] } }, small_parts()]
}

/// Selects the events that end a stream.
pub(super) fn ends() -> Document {
    doc! { "operationType": { "$in": ["drop", "rename", "dropDatabase", "invalidate"] } }
}

/// Returns the stage that removes large parts from events.
pub(super) fn small_parts() -> Document {
    let small = |part: &str| {
        let fits = doc! { "$lt": [{ "$bsonSize": part }, PART_MAX] };
        doc! { "$cond": [fits, part, "$$REMOVE"] }
    };
    doc! { "$set": {
        "fullDocument": small("$fullDocument"),
        "updateDescription": small("$updateDescription"),
    } }
}

/// Interprets an event, and updates `newest` accordingly.
pub(super) fn hint(event: ChangeStreamEvent<Document>, newest: &mut Option<Document>) -> Watch {
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
            hint(event(vec![]), &mut newest),
            Watch::Changed(_)
        ));
        let others = event(vec!["roll_call", "actions.3"]);
        assert!(matches!(hint(others, &mut newest), Watch::Changed(_)));
        assert_eq!(hint(event(vec!["paused"]), &mut newest), Watch::Unclear);
        assert_eq!(newest, None, "until the read brings the next one");
    }
}
