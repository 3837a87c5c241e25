//! Goal: leasehold never changes a document that is not a lock of this schema (I11), and can apply
//! every write to a document that it has accepted as a lock. Method: sets each field of a lock and
//! of its entries to various invalid or unusual BSON values, and then attempts every write with
//! values that match the document.

use leasehold::election::{ForeignDocument, Token};
use leasehold::lock::{Ending, EntryMode, FoundLock, LockDocument, LockOperation, LockOutcome};
use leasehold::store::mongo::lock::MongoLockStore;
use leasehold_testbed::StoredLease;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, DateTime, Document, Regex, Timestamp, doc};

use crate::fixture::{
    NAME, applied, claim, document, entry, held, join, leave, rejected, renew, revision,
    shared_stage, store, stored, sweep, token,
};

/// Paths of the fields that get unusual values. `0` stands for the only entry of a list.
const PATHS: [&str; 27] = [
    "schema",
    "kind",
    "token",
    "slots",
    "slots_before",
    "holders",
    "queue",
    "history",
    "successes",
    "granted",
    "next",
    "holders.0",
    "holders.0.claim",
    "holders.0.session",
    "holders.0.revision",
    "holders.0.identity",
    "holders.0.mode",
    "holders.0.token",
    "holders.0.lease_duration_ms",
    "holders.0.at_least_ms",
    "holders.0.over",
    "holders.0.over_at",
    "queue.0",
    "queue.0.claim",
    "queue.0.mode",
    "queue.0.token",
    "queue.0.wake",
];
const NEW: u16 = 5;

fn binary(subtype: BinarySubtype, bytes: Vec<u8>) -> Bson {
    Bson::Binary(Binary { subtype, bytes })
}

/// Unusual values of many BSON types, some of them almost valid. `None` removes the field.
fn odd_values() -> Vec<Option<Bson>> {
    let regex = Regex {
        pattern: "lock".try_into().expect("no NUL byte"),
        options: "".try_into().expect("no NUL byte"),
    };
    let timestamp = Timestamp {
        time: 1,
        increment: 1,
    };
    let values = [
        Bson::Null,
        true.into(),
        0.into(),
        1.into(),
        2.into(),
        300.into(),
        (-1_i64).into(),
        i64::MAX.into(),
        1.0.into(),
        f64::NAN.into(),
        "lock".into(),
        "lease".into(),
        "shared".into(),
        "".into(),
        Bson::Array(vec![]),
        Bson::Array(vec!["lock".into(), 1.into()]),
        Bson::Array(vec![doc! {}.into()]),
        doc! {}.into(),
        doc! { "claim": { "$literal": [null] }, "": 1 }.into(),
        DateTime::from_millis(5).into(),
        Bson::Timestamp(timestamp),
        Bson::RegularExpression(regex),
        Bson::Symbol("lock".to_owned()),
        Bson::MinKey,
        Bson::MaxKey,
        binary(BinarySubtype::Uuid, vec![8; 16]),
        binary(BinarySubtype::Uuid, vec![1; 15]),
        binary(BinarySubtype::Generic, vec![1; 16]),
    ];
    let present = values.into_iter().map(Some);
    present.chain([None]).collect()
}

fn lock() -> Document {
    document(&LockDocument {
        slot_owners: Vec::new(),
        token: token(7),
        slots: 0,
        holders: vec![held(1, EntryMode::Exclusive, 7)],
        queue: vec![entry(2, EntryMode::Exclusive)],
        ..LockDocument::default()
    })
}

fn put(document: &mut Document, path: &str, value: Option<Bson>) {
    let mut parts = path.split(".0");
    let (list, inner) = (parts.next().expect("a name"), parts.next());
    let Some(inner) = inner else {
        match value {
            Some(value) => drop(document.insert(path, value)),
            None => drop(document.remove(path)),
        }
        return;
    };
    let list = document.get_array_mut(list).expect("a list");
    let key = inner.trim_start_matches('.');
    match (key, value) {
        ("", Some(value)) => list[0] = value,
        ("", None) => list.clear(),
        (key, value) => {
            let entry = list[0].as_document_mut().expect("an entry");
            match value {
                Some(value) => drop(entry.insert(key, value)),
                None => drop(entry.remove(key)),
            }
        }
    }
}

fn writes() -> Vec<LockOperation> {
    let broken = LockOperation::Break {
        claims: vec![claim(1), claim(2)],
        seen: token(0),
    };
    vec![
        LockOperation::Create { seen: token(0) },
        join(NEW, EntryMode::Exclusive),
        renew(1, 20),
        renew(2, 21),
        leave(1),
        leave(2),
        sweep(&[1, 2], Some(2)),
        broken,
    ]
}

async fn untouched(store: &MongoLockStore, stored: &StoredLease, document: &Document) {
    stored.replace(document).await;
    let before = stored.bytes().await;
    for write in writes() {
        rejected(store, write).await;
    }
    let seen = document.get_i64("token").ok().and_then(Token::new);
    let pruned = store.prune(seen.unwrap_or_default()).await;
    assert_eq!(pruned.outcome, LockOutcome::Rejected, "{document}");
    assert_eq!(stored.bytes().await, before, "{document}");
}

async fn used(store: &MongoLockStore, document: &Document) {
    let lock = applied(store, join(NEW, EntryMode::Exclusive)).await;
    let found = lock.holders.iter().chain(&lock.queue);
    assert!(
        found.into_iter().any(|e| e.claim == claim(NEW)),
        "{document}"
    );
    applied(store, renew(NEW, 30)).await;
    let everybody = LockOperation::Evict {
        entries: lock
            .holders
            .iter()
            .chain(&lock.queue)
            .filter(|e| e.claim != claim(NEW))
            .map(|e| leasehold::lock::EntryVersion {
                claim: e.claim,
                revision: e.revision,
            })
            .collect(),
        me: Some(leasehold::lock::Writer {
            claim: claim(NEW),
            revision: revision(31),
        }),
        ending: Ending::Expired,
        seen: token(0),
    };
    if lock.holders.len() + lock.queue.len() > 1 {
        let lock = applied(store, everybody).await;
        assert_eq!(lock.holders[0].claim, claim(NEW), "{document}");
    }
    let lock = applied(store, leave(NEW)).await;
    assert!(
        lock.holders.is_empty() && lock.queue.is_empty(),
        "{document}"
    );
}

#[tokio::test]
async fn i11_only_valid_locks_are_used_and_changed() {
    let stage = shared_stage().await;
    let (store, stored) = (store(&stage), stored(&stage));
    let mut counts = [0, 0];
    for path in PATHS {
        for value in odd_values() {
            let mut document = lock();
            put(&mut document, path, value);
            stored.replace(&document).await;
            let read = store.perform(LockOperation::Read { confirm: false }).await;
            match read.outcome {
                LockOutcome::Applied(FoundLock::Foreign(why)) => {
                    assert!(!why.to_string().is_empty());
                    counts[0] += 1;
                    untouched(&store, &stored, &document).await;
                }
                LockOutcome::Applied(FoundLock::Lock(lock)) => {
                    counts[1] += 1;
                    let slots = lock.slots;
                    let empty = lock.holders.is_empty() && lock.queue.is_empty();
                    if slots == 0 || empty {
                        used(&store, &document).await;
                    } else {
                        rejected(&store, join(NEW, EntryMode::Exclusive)).await;
                    }
                }
                other => panic!("{other:?}: {document}"),
            }
        }
    }
    // Both kinds of document must occur often. Otherwise the test would compare almost nothing.
    assert!(counts[0] > 200 && counts[1] > 100, "{counts:?}");
}

#[tokio::test]
async fn i11_a_lease_with_the_name_of_a_lock_is_not_changed() {
    let stage = shared_stage().await;
    let (store, stored) = (store(&stage), stored(&stage));
    let lease = doc! {
        "schema": 1, "kind": "lease", "token": 7_i64,
        "revision": binary(BinarySubtype::Uuid, vec![1; 16]), "holder": null,
        "paused": false, "request": null, "reserved_for": null, "history": [],
    };
    untouched(&store, &stored, &lease).await;
    let read = store.perform(LockOperation::Read { confirm: false }).await;
    let why = ForeignDocument::Lease(NAME.to_owned());
    assert_eq!(read.outcome, LockOutcome::Applied(FoundLock::Foreign(why)));
    untouched(&store, &stored, &doc! { "hello": "world" }).await;
}
