//! Goal: no change stream event causes a panic, every event yields either "changed" or "read", and
//! a read corrects the newest known document, whatever events came before. Method: events of any
//! shape, and a real history of writes whose events arrive late, twice and in any order.

use mongodb::bson::{Bson, Document, deserialize_from_document, doc};
use mongodb::change_stream::event::ChangeStreamEvent;
use proptest::prelude::*;

use super::any_bson::{corpus, fields, update, updates, value};
use super::{change_stream, document};
use leasehold_core::election::{Found, Lease, Revision, Token, Watch};

/// Handles a reply as [`super::LeaseInner::found`] does.
fn read_reply(newest: &mut Option<Document>, stored: &Document) -> Found {
    *newest = Some(stored.clone());
    document::read(stored)
}

/// Returns `None` if the driver rejects the event, which ends the stream.
fn event(mut fields: Document) -> Option<ChangeStreamEvent<Document>> {
    fields.insert("_id", doc! { "_data": "1" });
    deserialize_from_document(fields).ok()
}

fn operation() -> impl Strategy<Value = String> {
    let known = [
        "insert",
        "update",
        "replace",
        "delete",
        "drop",
        "rename",
        "dropDatabase",
        "invalidate",
        "modify",
        "create",
    ];
    prop_oneof![
        4 => prop::sample::select(known.to_vec()).prop_map(str::to_owned),
        4 => Just("update".to_owned()),
        1 => "[a-zA-Z]{0,9}",
    ]
}

fn description() -> impl Strategy<Value = Document> {
    let truncated = proptest::collection::vec(("[a-z.]{0,8}", any::<i32>()), 0..3);
    let removed = proptest::collection::vec("[a-z.]{0,8}", 0..2);
    (
        fields(),
        prop::option::weighted(0.3, removed),
        prop::option::of(truncated),
        prop::option::weighted(0.2, fields()),
    )
        .prop_map(|(updated, removed, truncated, paths)| {
            let truncated = truncated.map(|arrays| {
                let array = |(field, size): (String, i32)| doc! { "field": field, "newSize": size };
                arrays.into_iter().map(array).collect::<Vec<_>>()
            });
            let mut description = doc! {
                "updatedFields": updated, "removedFields": removed.unwrap_or_default(),
            };
            if let Some(truncated) = truncated {
                description.insert("truncatedArrays", truncated);
            }
            if let Some(paths) = paths {
                description.insert("disambiguatedPaths", paths);
            }
            description
        })
}

/// A part of an event. Usually has the shape that the server sends.
fn part(usual: impl Strategy<Value = Document> + 'static) -> impl Strategy<Value = Option<Bson>> {
    prop_oneof![
        6 => usual.prop_map(|part| Some(Bson::Document(part))),
        2 => Just(None),
        1 => value().prop_map(Some),
    ]
}

fn any_event() -> impl Strategy<Value = Document> {
    let full = (any::<bool>(), fields()).prop_map(|(ours, fields)| {
        let mut document = if ours { created() } else { Document::new() };
        document.extend(fields);
        document
    });
    let key = prop_oneof![Just(doc! { "_id": "a" }), fields()];
    (operation(), part(description()), part(full), part(key)).prop_map(
        |(operation, description, full, key)| {
            let mut event = doc! { "operationType": operation };
            let parts = [
                ("updateDescription", description),
                ("fullDocument", full),
                ("documentKey", key),
            ];
            for (name, part) in parts {
                if let Some(part) = part {
                    event.insert(name, part);
                }
            }
            event
        },
    )
}

fn created() -> Document {
    document::create("a", Revision::from_bytes([1; 16]), Token::ZERO)
}

fn read(document: &Document) -> Option<Lease> {
    match document::read(document) {
        Found::Lease(lease) => Some(lease),
        Found::Missing | Found::Foreign(_) => None,
    }
}

/// The stored documents in order, each with its event. Candidates and operators write in turn.
fn history() -> Vec<(Document, Document)> {
    let mut stored = created();
    let insert = doc! { "operationType": "insert", "fullDocument": stored.clone() };
    let mut all = vec![(stored.clone(), insert)];
    let mut write = |change: &Document| {
        let updated = update(&mut stored, change);
        let description = doc! { "updatedFields": updated, "removedFields": [] };
        let event = doc! { "operationType": "update", "updateDescription": description };
        all.push((stored.clone(), event));
    };
    for token in 1..=3_u8 {
        let [acquire, renew, release] = updates(i64::from(token), 40 + 3 * token);
        write(&acquire);
        write(&doc! { "$set": { "paused": token % 2 == 0 } });
        write(&renew);
        write(&doc! { "$set": { "request": { "kind": "step_down", "token": i64::from(token) } } });
        // Without a release, the next acquisition is a takeover.
        if token == 2 {
            write(&release);
        }
    }
    all
}

fn applied(event: &Document, newest: &mut Option<Document>) -> Watch {
    let event = self::event(event.clone()).expect("a valid event");
    change_stream::apply_event(event, newest)
}

const WRITES: usize = 14;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_event_yields_the_newest_document_or_a_read(
        known in prop::option::of(fields()),
        ours in any::<bool>(),
        events in proptest::collection::vec(any_event(), 1..6),
    ) {
        let mut newest = known.map(|fields| {
            let mut document = if ours { created() } else { Document::new() };
            document.extend(fields);
            document
        });
        for fields in events {
            let Some(event) = event(fields.clone()) else { continue };
            let kind = fields.get_str("operationType").unwrap_or_default();
            let has_document = ["insert", "replace", "update"].contains(&kind);
            let lease = match change_stream::apply_event(event, &mut newest) {
                Watch::Changed(lease) => Some(lease),
                Watch::Unclear => None,
                other @ (Watch::Opened
                | Watch::LateStreamOpened
                | Watch::HintsOpened
                | Watch::Alive
                | Watch::Hint
                | Watch::Released(_)
                | Watch::Lost) => {
                    panic!("an event must not yield {other:?}: {fields}")
                }
            };
            prop_assert_eq!(&lease, &newest.as_ref().and_then(read));
            prop_assert!(has_document || newest.is_none(), "kept after {}", fields);
        }
        let stored = created();
        prop_assert_eq!(read_reply(&mut newest, &stored), document::read(&stored));
        let (later, event) = history().swap_remove(1);
        prop_assert_eq!(applied(&event, &mut newest), Watch::Changed(read(&later).expect("a lease")));
    }

    #[test]
    fn a_read_corrects_the_document_after_events_in_any_order(
        delivered in proptest::collection::vec(0..WRITES, 0..40),
        stored in 0..WRITES,
    ) {
        let history = history();
        let mut newest = None;
        for write in delivered {
            let _ = applied(&history[write].1, &mut newest);
        }
        let (now, _) = &history[stored];
        prop_assert_eq!(read_reply(&mut newest, now), document::read(now));
        for (later, event) in &history[stored + 1..] {
            let lease = read(later).expect("a lease");
            prop_assert_eq!(applied(event, &mut newest), Watch::Changed(lease));
        }
    }

    /// The stream keeps the order of events, but may lag behind the reads, and a reply may arrive
    /// after newer events. The resulting document may then have an outdated holder. This is
    /// harmless. Either the server rejects writes that expect this document's revision, or the
    /// document's lower token makes the election read again.
    #[test]
    fn a_mixture_with_the_stored_revision_and_token_has_the_stored_holder(
        stored in 0..WRITES,
        runs in proptest::collection::vec((0..WRITES, 0..WRITES, prop::option::of(0..WRITES)), 1..6),
    ) {
        let history = history();
        let truth = read(&history[stored].0).expect("a lease");
        let mut newest = None;
        for (from, to, read_before) in runs {
            if let Some(read) = read_before {
                // A reply, like an event, is never newer than the stored document.
                let _ = read_reply(&mut newest, &history[read.min(stored)].0);
            } else {
                // After a stream is reopened, the document is read again.
                newest = None;
            }
            for (_, event) in &history[from.min(to).min(stored)..=from.max(to).min(stored)] {
                if let Watch::Changed(lease) = applied(event, &mut newest)
                    && lease.revision == truth.revision
                    && lease.token >= truth.token
                {
                    prop_assert_eq!((&lease.holder, lease.token), (&truth.holder, truth.token));
                }
            }
        }
    }
}

#[test]
fn events_of_the_corpus_yield_the_newest_document_or_a_read() {
    let mut accepted = 0;
    for known in [None, Some(created()), Some(Document::new())] {
        for fields in corpus("changes") {
            let Some(event) = event(fields.clone()) else {
                continue;
            };
            accepted += 1;
            let mut newest = known.clone();
            let watch = change_stream::apply_event(event, &mut newest);
            let lease = newest.as_ref().and_then(read);
            let expected = lease.map_or(Watch::Unclear, Watch::Changed);
            assert_eq!(watch, expected, "{fields} after {known:?}");
        }
    }
    assert!(accepted > 20, "the driver accepts {accepted}");
}

#[test]
fn the_history_has_the_number_of_writes_that_the_properties_assume() {
    assert_eq!(history().len(), WRITES);
}
