//! Goal: no document causes a panic, and only a lock of this schema is read as a lock. Method:
//! random BSON, alone and in the fields and entries of a lock.

use mongodb::bson::{Bson, DateTime, Document};
use proptest::prelude::*;

use super::super::any_bson::{corpus, fields, value};
use super::document;
use leasehold_core::election::{
    Claim, Declared, ForeignDocument, Identity, Revision, Session, Token,
};
use leasehold_core::lock::{EntryMode, FoundLock, NewEntry, SLOTS_MAX};

fn entry() -> Document {
    let joining = NewEntry {
        claim: Claim::from_bytes([1; 16]),
        session: Session::from_bytes([2; 16]),
        mode: EntryMode::Shared,
        revision: Revision::from_bytes([3; 16]),
        slots: 0,
        lease_duration: Declared { millis: 24_000 },
    };
    let identity = Identity::new("a").expect("legal");
    document::joining(&joining, &identity, DateTime::from_millis(5))
}

/// Random fields, or a lock with one random field, in the document or in an entry.
fn stored() -> impl Strategy<Value = Document> {
    let field = prop::sample::select(vec![
        "schema",
        "kind",
        "token",
        "slots",
        "holders",
        "queue",
        "history",
        "successes",
    ]);
    let inner = prop::sample::select(vec![
        "claim",
        "identity",
        "session",
        "mode",
        "revision",
        "lease_duration_ms",
        "token",
        "acquired_at",
        "renewed_at",
        "wake",
        "revision_text",
        "granted_revision",
        "at_least_ms",
        "over",
        "over_at",
    ]);
    let of_entry = (prop::bool::ANY, inner, value()).prop_map(|(holds, key, value)| {
        let mut entry = entry();
        entry.insert(key, value);
        let list = if holds { "holders" } else { "queue" };
        (list, Bson::Array(vec![entry.into()]))
    });
    let change = prop_oneof![(field, value()), of_entry];
    (prop::bool::ANY, fields(), change).prop_map(|(ours, fields, (key, value))| {
        if !ours {
            return fields;
        }
        let mut document = document::create("a", Token::ZERO);
        document.insert(key, value);
        document
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2_000, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn i11_any_document_is_a_lock_of_this_schema_or_foreign(stored in stored()) {
        assert_lock_or_foreign(&stored);
    }
}

fn assert_lock_or_foreign(stored: &Document) {
    super::super::display::history(stored);
    if let FoundLock::Lock(lock) = document::read(stored) {
        let schema = stored.get_i32("schema").map(i64::from);
        let schema = schema.or_else(|_| stored.get_i64("schema"));
        assert_eq!(schema.ok(), Some(1));
        assert_eq!(stored.get_str("kind").ok(), Some("lock"));
        assert!(lock.token >= Token::ZERO && lock.slots <= SLOTS_MAX);
    }
}

#[test]
fn i11_a_document_of_the_corpus_is_a_lock_of_this_schema_or_foreign() {
    corpus("documents").iter().for_each(assert_lock_or_foreign);
}

#[test]
fn a_lock_is_distinguished_from_a_lease() {
    let mut stored = document::create("a", Token::ZERO);
    assert!(matches!(document::read(&stored), FoundLock::Lock(_)));
    stored.insert("kind", "lease");
    let foreign = FoundLock::Foreign(ForeignDocument::Lease("a".to_owned()));
    assert_eq!(document::read(&stored), foreign);
}

#[test]
fn an_impossible_name_of_one_entry_does_not_make_the_lock_foreign() {
    for (name, shown) in [
        ("", "?"),
        ("a\nb", "a?b"),
        ("a\u{202e}b", "a?b"),
        ("ü", "ü"),
    ] {
        let mut entry = entry();
        entry.insert("identity", name);
        let mut stored = document::create("a", Token::ZERO);
        stored.insert("queue", vec![entry]);
        match document::read(&stored) {
            FoundLock::Lock(lock) => assert_eq!(lock.queue[0].owner.identity.as_str(), shown),
            other => panic!("{other:?}"),
        }
    }
}
