//! Goal: no document causes a panic, foreign documents are never written to, and fields of a newer
//! version survive. Method: random BSON, and a small interpreter for the operators in the updates.

mod filters;

use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, DateTime, Document, deserialize_from_document, doc};
use mongodb::change_stream::event::UpdateDescription;
use proptest::prelude::*;

use super::{change_stream, document};
use leasehold_core::election::{
    Acquisition, Claim, Declared, Found, HistoryEntry, Identity, Operation, Reason, Revision,
    Session, Token, WallMillis,
};

fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "schema",
            "kind",
            "token",
            "revision",
            "holder",
            "paused",
            "request",
            "reserved_for",
            "standby",
            "history",
            "identity",
            "session",
            "claim",
            "acquired_at",
            "lease_duration_ms",
            "to",
            "for_ms",
            "reserve_ms",
            "slots",
            "holders",
            "queue",
            "mode",
            "holder.renewed_at",
            "holder.claim.x",
            "history.3",
            "",
            ".",
        ])
        .prop_map(str::to_owned),
        "[a-z.]{0,6}",
    ]
}

fn scalar() -> impl Strategy<Value = Bson> {
    prop_oneof![
        Just(Bson::Null),
        any::<bool>().prop_map(Bson::Boolean),
        any::<i32>().prop_map(Bson::Int32),
        (0..3_i32).prop_map(Bson::Int32),
        any::<i64>().prop_map(Bson::Int64),
        any::<f64>().prop_map(Bson::Double),
        any::<i64>().prop_map(|at| Bson::DateTime(DateTime::from_millis(at))),
        prop::sample::select(vec!["lease", "lock", "a", "step_down", "transfer", ""])
            .prop_map(|text| Bson::String(text.to_owned())),
        ".{0,8}".prop_map(Bson::String),
        any::<[u8; 16]>().prop_map(document::uuid),
        proptest::collection::vec(any::<u8>(), 0..18).prop_map(|bytes| {
            let subtype = BinarySubtype::Uuid;
            Bson::Binary(Binary { subtype, bytes })
        }),
    ]
}

pub(super) fn value() -> impl Strategy<Value = Bson> {
    scalar().prop_recursive(3, 24, 8, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Bson::Array),
            proptest::collection::vec((key(), inner), 0..8)
                .prop_map(|fields| Bson::Document(fields.into_iter().collect())),
        ]
    })
}

pub(super) fn fields() -> impl Strategy<Value = Document> {
    proptest::collection::vec((key(), value()), 0..6).prop_map(|f| f.into_iter().collect())
}

fn identity() -> Identity {
    Identity::new("a").expect("legal")
}

fn acquisition(token: i64, id: u8) -> Acquisition {
    Acquisition {
        claim: Claim::from_bytes([id; 16]),
        revision: Revision::from_bytes([id + 1; 16]),
        token: Token::new(token).expect("not negative"),
        expected: Revision::from_bytes([0; 16]),
        session: Session::from_bytes([7; 16]),
        lease_duration: Declared { millis: 24_000 },
        renew_interval: Some(std::time::Duration::from_secs(3)),
    }
}

fn ended(token: i64) -> HistoryEntry {
    HistoryEntry {
        token: Token::new(token).expect("not negative"),
        identity: identity(),
        acquired_at: WallMillis(0),
        reason: Reason::Requested,
    }
}

/// Applies `update` to `stored`. Returns the `updatedFields` of the event, but without the history,
/// because events report each element of the history as a separate field.
pub(super) fn update(stored: &mut Document, update: &Document) -> Document {
    for (operator, argument) in update {
        let argument = argument.as_document().expect("operators have fields");
        match operator.as_str() {
            "$set" => {
                for (path, value) in argument {
                    match path.split_once('.') {
                        Some((outer, inner)) => {
                            let outer = stored.get_document_mut(outer).expect("a holder");
                            outer.insert(inner, value.clone());
                        }
                        None => drop(stored.insert(path, value.clone())),
                    }
                }
            }
            "$push" => {
                let push = argument.get_document("history").expect("only the history");
                let each = push.get_array("$each").expect("a list").clone();
                let keep = push.get_i32("$slice").expect("a number").unsigned_abs();
                let history = stored.get_array_mut("history").expect("a list");
                history.extend(each);
                let extra = history
                    .len()
                    .saturating_sub(keep.try_into().expect("small"));
                history.drain(..extra);
            }
            other => panic!("unexpected operator: {other}"),
        }
    }
    update
        .get_document("$set")
        .expect("all set something")
        .clone()
}

pub(super) fn updates(token: i64, id: u8) -> [Document; 3] {
    let revision = |nth| Revision::from_bytes([id + nth; 16]);
    let (claim, chain) = (Claim::from_bytes([id; 16]), Vec::new());
    let operations = [
        Operation::TakeOver {
            acquisition: acquisition(token, id),
            holder: claim,
            ended: ended(token - 1),
        },
        Operation::Renew {
            claim,
            revision: revision(2),
            chain: chain.clone(),
        },
        Operation::Release {
            claim,
            revision: revision(3),
            chain,
            ended: ended(token),
            reserved_for: None,
        },
    ];
    let now = DateTime::from_millis(0);
    operations.map(|operation| {
        let write = document::write("a", &operation, &identity(), None, now);
        write.expect("not a read").1
    })
}

pub(super) fn corpus(surface: &str) -> Vec<Document> {
    let inputs = crate::corpus::inputs(surface);
    let document = |input: &Vec<u8>| serde_json::from_slice(input).expect("extended JSON");
    inputs.iter().map(document).collect()
}

pub(super) fn updated(fields: Document) -> UpdateDescription {
    let description = doc! { "updatedFields": fields, "removedFields": [] };
    deserialize_from_document(description).expect("a description")
}

fn assert_lease_or_foreign(stored: &Document) {
    if let Found::Lease(lease) = document::read(stored) {
        let schema = stored.get_i32("schema").map(i64::from);
        let schema = schema.or_else(|_| stored.get_i64("schema"));
        assert_eq!(schema.ok(), Some(1));
        assert_eq!(stored.get_str("kind").ok(), Some("lease"));
        assert!(lease.token >= Token::ZERO);
    }
}

#[test]
fn i11_a_document_of_the_corpus_is_a_lease_of_this_schema_or_foreign() {
    let documents = corpus("documents");
    documents.iter().for_each(assert_lease_or_foreign);
    let leases = documents.iter().map(document::read);
    let leases = leases.filter(|found| matches!(found, Found::Lease(_)));
    assert_eq!(leases.count(), 1, "exactly one is valid");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn i11_any_document_is_a_lease_of_this_schema_or_foreign(fields in fields(), ours in any::<bool>()) {
        let mut stored = if ours {
            document::create("a", Revision::from_bytes([1; 16]), Token::ZERO)
        } else {
            Document::new()
        };
        stored.extend(fields);
        assert_lease_or_foreign(&stored);
    }

    #[test]
    fn fields_of_a_newer_version_survive_every_write(extra in value(), rounds in 1..30_i64) {
        let mut stored = document::create("a", Revision::from_bytes([1; 16]), Token::ZERO);
        stored.insert("newer", extra.clone());
        for token in 1..=rounds {
            for change in updates(token, 40) {
                update(&mut stored, &change);
                prop_assert!(matches!(document::read(&stored), Found::Lease(_)));
            }
        }
        prop_assert_eq!(stored.get("newer"), Some(&extra));
        let history = stored.get_array("history").expect("a list").len();
        prop_assert_eq!(history, usize::try_from(2 * rounds).expect("small").min(20));
    }

    #[test]
    fn events_lead_from_any_earlier_document_to_the_newest(from in 0..9_usize) {
        let mut stored = document::create("a", Revision::from_bytes([1; 16]), Token::ZERO);
        let mut seen = vec![(stored.clone(), Document::new())];
        for token in 1..=3 {
            for change in updates(token, 40 + 3 * u8::try_from(token).expect("small")) {
                let delta = update(&mut stored, &change);
                seen.push((stored.clone(), delta));
            }
        }
        let mut known = seen[from].0.clone();
        for (_, delta) in &seen[from + 1..] {
            prop_assert!(change_stream::apply(&mut known, &updated(delta.clone())));
        }
        prop_assert_eq!(document::read(&known), document::read(&stored));
        // An old event may fail to apply to a newer document, but later events restore the
        // document's state.
        let mut mixed = stored.clone();
        for (_, delta) in &seen {
            if !change_stream::apply(&mut mixed, &updated(delta.clone())) {
                mixed.insert("holder", stored.get("holder").cloned().unwrap_or(Bson::Null));
            }
        }
        prop_assert_eq!(document::read(&mixed), document::read(&stored));
    }
}
