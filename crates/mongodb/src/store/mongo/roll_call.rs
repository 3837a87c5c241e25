//! Roll calls: an operator asks all candidates to add themselves to the lease document, because
//! idle candidates write nothing. These writes change no field that the election's decisions or
//! filters depend on.

use mongodb::bson::{Bson, Document, doc};
use mongodb::change_stream::event::ChangeStreamEvent;

use super::display::{list, named, text};
use super::document::{id, ours, uuid};
use leasehold_core::election::{Identity, Token};

const FIELD: &str = "roll_call";
/// Maximum number of answers in a lease document. Later answers are discarded.
const PRESENT_MAX: i32 = 1_000;

pub(super) type RollCallId = [u8; 16];

/// A roll call in a lease document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RollCall {
    /// The random id of the roll call.
    pub id: RollCallId,
    /// The candidates that have answered.
    pub present: Vec<Present>,
}

/// An answer to a roll call. Informational.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Present {
    /// Name of the candidate.
    pub identity: Identity,
    /// The version of leasehold that the candidate runs.
    pub version: Option<String>,
    /// The workload's health; `None` without a health check, or from an older version.
    pub healthy: Option<bool>,
    /// The token that the candidate leads with; `None` if the candidate does not lead, is stepping
    /// down, or runs an older version.
    pub leads_with: Option<Token>,
}

pub(super) fn projection() -> Document {
    doc! { "roll_call.id": 1 }
}

pub(super) fn in_event(event: &ChangeStreamEvent<Document>) -> Option<RollCallId> {
    let updated = event.update_description.as_ref();
    let fields = updated.map(|update| &update.updated_fields);
    called(fields.or(event.full_document.as_ref())?)
}

pub(super) fn called(document: &Document) -> Option<RollCallId> {
    id(document.get_document(FIELD).ok()?, "id").ok()
}

pub(super) fn read(document: &Document) -> Option<RollCall> {
    let call = document.get_document(FIELD).ok()?;
    let present = list(call, "present").iter().filter_map(Bson::as_document);
    Some(RollCall {
        id: id(call, "id").ok()?,
        present: present
            .map(|answer| Present {
                identity: named(answer.get_str("identity").unwrap_or_default()),
                version: text(answer, "version"),
                healthy: answer.get_bool("healthy").ok(),
                leads_with: answer.get_i64("token").ok().and_then(Token::new),
            })
            .collect(),
    })
}

pub(super) fn call(name: &str, call: RollCallId) -> (Document, Document) {
    let question = doc! { "id": uuid(call), "present": [] };
    (ours(name), doc! { "$set": { FIELD: question } })
}

pub(super) fn answer(
    name: &str,
    call: RollCallId,
    identity: &Identity,
    healthy: Option<bool>,
    leads_with: Option<Token>,
) -> (Document, Document) {
    let mut filter = ours(name);
    filter.insert("roll_call.id", uuid(call));
    let is_new = doc! { "$ne": identity.as_str() };
    filter.insert("roll_call.present.identity", is_new);
    let mut answer = doc! { "identity": identity.as_str(), "version": env!("CARGO_PKG_VERSION") };
    if let Some(healthy) = healthy {
        answer.insert("healthy", healthy);
    }
    if let Some(token) = leads_with {
        answer.insert("token", token.get());
    }
    let present = doc! { "$each": [answer], "$slice": PRESENT_MAX };
    (filter, doc! { "$push": { "roll_call.present": present } })
}

pub(super) fn end(name: &str, call: RollCallId) -> (Document, Document) {
    let mut filter = ours(name);
    filter.insert("roll_call.id", uuid(call));
    (filter, doc! { "$unset": { FIELD: "" } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_roll_call_of_another_shape_is_none() {
        for call in [
            Bson::Null,
            Bson::Int32(1),
            Bson::Document(doc! {}),
            Bson::Document(doc! { "id": "x" }),
        ] {
            let document = doc! { FIELD: call };
            assert_eq!((called(&document), read(&document)), (None, None));
        }
        let strange = doc! { "identity": 2, "healthy": "no" };
        let unhealthy = doc! { "identity": "a\u{202e}", "healthy": false, "token": "7" };
        let present = doc! { "id": uuid([7; 16]), "present": [1, strange, unhealthy] };
        let read = read(&doc! { FIELD: present }).expect("a roll call");
        let names: Vec<_> = read
            .present
            .iter()
            .map(|present| (present.identity.as_str(), present.healthy))
            .collect();
        let expected = vec![("?", None), ("a?", Some(false))];
        assert_eq!((read.id, names), ([7; 16], expected));
        assert!(read.present.iter().all(|one| one.leads_with.is_none()));
    }
}
