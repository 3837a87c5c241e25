//! Goal: no document and no change event causes a panic, and all output is safe on a terminal.
//! Method: random BSON, alone and in the fields of a lease.

use mongodb::bson::{Bson, Document, deserialize_from_document, doc};
use proptest::prelude::*;

use super::super::any_bson::{corpus, fields, value};
use super::super::delta;
use super::super::document::{create, uuid};
use super::records::{CollectionEntry, Content, projection};
use leasehold_core::election::{Revision, Token};

/// Random fields, or a lease with one random field, at the top level or in one of `parts`.
fn stored() -> impl Strategy<Value = Document> {
    let parts = ["holder", "request", "roll_call", "history", "actions"];
    let field = prop::sample::select(vec![
        "schema",
        "kind",
        "token",
        "paused",
        "holder",
        "request",
        "reserved_for",
        "standby",
        "history",
        "actions",
        "roll_call",
    ]);
    let inner = prop::sample::select(vec![
        "id",
        "identity",
        "token",
        "renewed_at",
        "address",
        "kind",
        "to",
        "by",
        "reason",
        "at",
        "action",
        "present",
        "version",
        "ended_at",
    ]);
    let hostile = "[a\u{202e}\u{1b}<\u{0}\u{feff}]{0,300}".prop_map(Bson::String);
    let of_part = (
        prop::sample::select(parts.to_vec()),
        inner,
        prop_oneof![value(), hostile],
    );
    let of_part = of_part.prop_map(|(part, key, value)| {
        let mut fields = doc! {
            "identity": "a", "session": uuid([2; 16]), "claim": uuid([3; 16]), "id": uuid([4; 16]),
            "kind": "transfer", "to": "b", "token": 1_i64, "action": "pause",
        };
        fields.insert(key, value);
        match part {
            "history" | "actions" => (part, Bson::Array(vec![fields.into()])),
            part => (part, fields.into()),
        }
    });
    let change = prop_oneof![(field, value()), of_part];
    (any::<bool>(), fields(), change).prop_map(|(ours, fields, (key, value))| {
        let mut document = match ours {
            true => create("a", Revision::from_bytes([1; 16]), Token::ZERO),
            false => fields,
        };
        document.insert("_id", "a\u{1b}[2J");
        document.insert(key, value);
        document
    })
}

fn assert_shown_safely(entry: &CollectionEntry) {
    let mut texts = vec![entry.name.clone()];
    match &entry.content {
        Content::Lease(lease) => {
            let _ = (lease.effect(), lease.holder_token(), lease.lease_duration());
            let holders = lease.holder.iter();
            texts.extend(holders.clone().map(|holder| holder.identity.to_string()));
            texts.extend(holders.filter_map(|holder| holder.address.clone()));
            let requests = lease.request.iter();
            let requests = requests.flat_map(|request| [&request.to, &request.by, &request.reason]);
            texts.extend(requests.flat_map(Clone::clone));
            for action in &lease.actions {
                texts.push(action.action.clone());
                let given = [&action.to, &action.by, &action.reason];
                texts.extend(given.into_iter().flat_map(Clone::clone));
            }
            texts.extend(
                lease
                    .history
                    .iter()
                    .filter_map(|ended| ended.reason.clone()),
            );
        }
        Content::Lock(lock) => {
            let waiters = lock.lock.queue.iter();
            texts.extend(waiters.map(|entry| entry.owner.identity.to_string()));
        }
        Content::Foreign(why) => texts.push(why.clone()),
    }
    for text in texts {
        let hostile = |c: char| c.is_control() || matches!(c, '\u{202e}' | '\u{feff}');
        assert!(!text.contains(hostile), "{text:?}");
    }
}

#[test]
fn documents_of_the_corpus_are_shown_safely() {
    let documents = corpus("documents");
    let entries: Vec<_> = documents.iter().filter_map(CollectionEntry::of).collect();
    assert!(entries.len() > 5, "{}", entries.len());
    entries.iter().for_each(assert_shown_safely);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2_000, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn any_document_is_shown_safely(stored in stored()) {
        let entry = CollectionEntry::of(&stored).expect("its name is a string");
        prop_assert_eq!(&entry.name, "a?[2J");
        assert_shown_safely(&entry);
    }

    #[test]
    fn any_update_is_applied_or_requires_a_read(
        stored in stored(),
        updated in fields(),
        removed in proptest::collection::vec("[a-z.0-3]{0,8}", 0..2),
        truncated in proptest::collection::vec(("[a-z.]{0,8}", any::<i32>()), 0..3),
    ) {
        let array = |(field, size): (String, i32)| doc! { "field": field, "newSize": size };
        let truncated: Vec<_> = truncated.into_iter().map(array).collect();
        let update = doc! {
            "updatedFields": updated, "removedFields": removed, "truncatedArrays": truncated,
        };
        if let Ok(update) = deserialize_from_document(update) {
            let mut document = stored.clone();
            delta::apply(&mut document, &update, |path| projection().contains_key(path));
            let _ = CollectionEntry::of(&document);
        }
    }
}
