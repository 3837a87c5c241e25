//! The change stream of one lease: hints, as early as they can be had.
//!
//! It asks for no documents: an event says which fields changed, and they are
//! applied to the newest document known. An event may be older than that
//! document; the mixture that results for a moment carries an old revision, on
//! which no write can succeed, and the events that follow repair it.

use mongodb::bson::{Bson, Document, doc};
use mongodb::change_stream::event::{ChangeStreamEvent, OperationType};

use super::document;
use leasehold_core::election::{Found, Watch};

/// A part of an event that is larger stays in the server, and the document is
/// read instead: a lease is a hundred times smaller, but somebody may write
/// megabytes of something else into its document.
const PART_MAX: i32 = 128 * 1024;

/// Only this lease, and what ends the stream itself.
pub(super) fn pipeline(name: &str) -> [Document; 2] {
    let small = |part: &str| {
        let fits = doc! { "$lt": [{ "$bsonSize": part }, PART_MAX] };
        doc! { "$cond": [fits, part, "$$REMOVE"] }
    };
    [
        doc! { "$match": { "$or": [
            { "documentKey._id": name },
            { "operationType": { "$in": ["drop", "rename", "dropDatabase", "invalidate"] } },
        ] } },
        doc! { "$set": {
            "fullDocument": small("$fullDocument"),
            "updateDescription": small("$updateDescription"),
        } },
    ]
}

/// What an event means; brings `newest` up to it.
pub(super) fn hint(event: ChangeStreamEvent<Document>, newest: &mut Option<Document>) -> Watch {
    match event.operation_type {
        OperationType::Insert | OperationType::Replace => *newest = event.full_document,
        OperationType::Update => {
            let description = event.update_description;
            let applied = match (&mut *newest, &description) {
                (Some(document), Some(change)) => {
                    // What was taken away is rare, and made by hand: read it.
                    change.removed_fields.is_empty() && apply(document, &change.updated_fields)
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

/// Sets fields by their dotted paths; false if a path leads nowhere.
pub(super) fn apply(document: &mut Document, fields: &Document) -> bool {
    for (path, value) in fields {
        let path = path.as_str();
        // The history's entries say nothing to the election.
        if path.starts_with("history.") || (path == "history" && matches!(value, Bson::Array(_))) {
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
        assert!(!apply(&mut document, &doc! { "a.b.c": 2 }));
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
        assert_eq!(hint(event(vec!["paused"]), &mut newest), Watch::Unclear);
        assert_eq!(newest, None, "until the read brings the next one");
    }
}
