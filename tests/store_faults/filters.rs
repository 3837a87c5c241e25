//! Goal: each write has the same outcome on a real server and in the election's reference store,
//! which the simulator, the model and the unit tests use. Method: apply every write to every
//! document of a table with the shipped store.

use std::time::Duration;

use leasehold::election::{
    Acquisition, Claim, Declared, Found, HistoryEntry, Identity, Lease, Operation, Outcome, Reason,
    Reservation, Revision, Session, Token, WallMillis,
};
use leasehold::store::Store;
use leasehold::store::mongo::MongoStore;
use leasehold_reference::election as reference;
use leasehold_testbed::Stage;
use mongodb::bson::{Bson, Document, Uuid, doc};

use crate::fixture::{patient_store, shared_stage};

const NAME: &str = "orders";

fn identity() -> Identity {
    Identity::new("b").expect("legal")
}

fn uuid(byte: u8) -> Uuid {
    Uuid::from_bytes([byte; 16])
}

fn revision(byte: u8) -> Revision {
    Revision::from_bytes([byte; 16])
}

fn store(stage: &Stage) -> MongoStore {
    patient_store(stage, NAME, identity().as_str(), Duration::from_secs(10))
}

/// Returns a lease with revision 1 that claim 1 holds.
fn held() -> Document {
    let mut document = free();
    document.insert(
        "holder",
        doc! {
            "identity": "a", "session": uuid(9), "claim": uuid(1),
            "lease_duration_ms": 24_000_i64,
        },
    );
    document
}

/// Returns a free lease with revision 1.
fn free() -> Document {
    doc! {
        "_id": NAME, "schema": 1, "kind": "lease", "token": 4_i64, "revision": uuid(1),
        "holder": null, "paused": false, "request": null, "reserved_for": null, "history": [],
    }
}

fn with(mut document: Document, key: &str, value: impl Into<Bson>) -> Document {
    document.insert(key, value);
    document
}

fn without(mut document: Document, key: &str) -> Document {
    document.remove(key);
    document
}

/// Returns leases as candidates, humans and other drivers write them.
fn leases() -> Vec<Document> {
    let kept = doc! { "identity": "c", "for_ms": 5_000_i64 };
    let asked = doc! { "kind": "step_down", "token": 4_i64 };
    let standby = doc! { "identity": "c", "session": uuid(8) };
    let preferred = with(standby.clone(), "priority", 2_i64);
    let mut all = vec![
        without(free(), "holder"),
        with(free(), "reserved_for", kept),
        with(held(), "request", asked),
        with(held(), "standby", standby.clone()),
        with(held(), "standby", preferred),
        with(held(), "standby", with(standby.clone(), "priority", "high")),
        with(held(), "standby", Bson::Null),
        with(free(), "standby", standby),
    ];
    for lease in [free(), held()] {
        all.extend([
            lease.clone(),
            with(lease.clone(), "paused", true),
            with(lease.clone(), "paused", Bson::Null),
            without(lease.clone(), "paused"),
            with(lease.clone(), "token", 4_i32),
            with(lease.clone(), "schema", 1_i64),
            with(lease.clone(), "revision", uuid(2)),
            with(lease, "newer", "unknown"),
        ]);
    }
    all
}

/// Returns documents that no write may change. The filters must protect these documents, whatever
/// state the sender read last.
fn foreign() -> Vec<Document> {
    let mut all = Vec::new();
    for lease in [free(), held()] {
        all.extend([
            with(lease.clone(), "schema", 2),
            with(lease.clone(), "schema", "1"),
            without(lease.clone(), "schema"),
            with(lease.clone(), "kind", "lock"),
            with(lease.clone(), "token", 4.0),
            with(lease.clone(), "token", "4"),
            without(lease.clone(), "token"),
            with(lease.clone(), "revision", "1"),
            with(lease.clone(), "revision", vec![uuid(1)]),
            with(lease.clone(), "holder", "a"),
            with(lease.clone(), "holder", doc! { "claim": uuid(1) }),
            without(lease, "revision"),
        ]);
    }
    all
}

fn ended() -> HistoryEntry {
    HistoryEntry {
        token: Token::new(4).expect("not negative"),
        identity: identity(),
        acquired_at: WallMillis(0),
        reason: Reason::Requested,
    }
}

fn acquisition(expected: u8) -> Acquisition {
    Acquisition {
        claim: Claim::from_bytes([5; 16]),
        revision: revision(6),
        token: Token::new(5).expect("not negative"),
        expected: revision(expected),
        session: Session::from_bytes([7; 16]),
        lease_duration: Declared { millis: 24_000 },
        renew_interval: None,
    }
}

/// Returns every kind of write, both with values that match a document and with other values.
fn writes() -> Vec<Operation> {
    let mut all = vec![Operation::Create {
        revision: revision(6),
        token: Token::ZERO,
    }];
    for expected in [1, 2] {
        all.push(Operation::Acquire(acquisition(expected)));
        for holder in [1, 2] {
            all.push(Operation::TakeOver {
                acquisition: acquisition(expected),
                holder: Claim::from_bytes([holder; 16]),
                ended: ended(),
            });
        }
        // These tokens are not above the document's token.
        for token in [4, 3] {
            let acquisition = Acquisition {
                token: Token::new(token).expect("not negative"),
                ..acquisition(expected)
            };
            all.push(Operation::Acquire(acquisition.clone()));
            all.push(Operation::TakeOver {
                acquisition,
                holder: Claim::from_bytes([1; 16]),
                ended: ended(),
            });
        }
    }
    for (claim, chain) in [
        (1, vec![1]),
        (1, vec![2]),
        (1, vec![3, 1, 2]),
        (2, vec![1, 2]),
    ] {
        let claim = Claim::from_bytes([claim; 16]);
        let chain: Vec<_> = chain.into_iter().map(revision).collect();
        all.push(Operation::Renew {
            claim,
            revision: revision(6),
            chain: chain.clone(),
        });
        for reserved_for in [
            None,
            Some(Reservation {
                identity: identity(),
                duration: Duration::from_secs(5),
            }),
        ] {
            all.push(Operation::Release {
                claim,
                revision: revision(6),
                chain: chain.clone(),
                ended: ended(),
                reserved_for,
            });
        }
    }
    for holder in [1, 2] {
        let (holder, session) = (
            Claim::from_bytes([holder; 16]),
            Session::from_bytes([7; 16]),
        );
        for replaces in [None, Some(Session::from_bytes([8; 16]))] {
            all.push(Operation::Register {
                holder,
                session,
                priority: 3,
                replaces,
            });
        }
    }
    for session in [7, 8] {
        let session = Session::from_bytes([session; 16]);
        all.push(Operation::Withdraw { session });
    }
    all
}

async fn read(store: &MongoStore) -> Option<Lease> {
    let read = store.perform(Operation::Read { confirm: true }).await;
    match undated(read.outcome) {
        Outcome::Applied(Found::Lease(lease)) => Some(lease),
        Outcome::Applied(Found::Missing) => None,
        other => panic!("no lease was read: {other:?}"),
    }
}

/// Removes the dates, because they come from a real clock and affect no decision.
fn undated(mut outcome: Outcome) -> Outcome {
    if let Outcome::Applied(Found::Lease(lease)) = &mut outcome
        && let Some(holder) = &mut lease.holder
    {
        holder.acquired_at = WallMillis(0);
    }
    outcome
}

#[tokio::test]
async fn a_server_applies_each_write_like_the_reference_store() {
    let stage = shared_stage().await;
    let (store, stored) = (store(&stage), stage.stored());
    let mut applied = std::collections::BTreeMap::new();
    let documents = leases().into_iter().map(Some);
    for document in documents.chain([None]) {
        for write in writes() {
            match &document {
                Some(document) => stored.replace(document).await,
                None => stored.delete().await,
            }
            let mut lease = read(&store).await;
            let matched = reference::write(&mut lease, &identity(), WallMillis(0), &write);
            let expected = reference::outcome(matched, lease.as_ref());
            let answer = store.perform(write.clone()).await;
            let context = format!("{write:?} on {document:?}: {:?}", answer.failure);
            assert_eq!(undated(answer.outcome), expected, "{context}");
            assert_eq!(read(&store).await, lease, "{context}");
            if matched && let Some(entry) = reference::ends(&write) {
                let history = stored.history().await;
                let token = history.last().and_then(|e| e.get_i64("token").ok());
                assert_eq!(token, Some(entry.token.get()), "{context}");
            }
            *applied.entry(write.as_str()).or_insert(0) += usize::from(matched);
        }
    }
    assert_eq!(applied.len(), 7, "{applied:?}");
    assert!(applied.values().all(|times| *times > 0), "{applied:?}");
}

#[tokio::test]
async fn i11_no_write_matches_a_foreign_document() {
    let stage = shared_stage().await;
    let (store, stored) = (store(&stage), stage.stored());
    for document in foreign() {
        stored.replace(&document).await;
        let before = stored.bytes().await;
        for write in writes() {
            let answer = store.perform(write.clone()).await;
            let context = format!("{write:?} on {document:?}");
            // A create is rejected too, because the name is in use.
            assert_eq!(answer.outcome, Outcome::Rejected, "{context}");
            assert_eq!(stored.bytes().await, before, "{context}");
        }
    }
}
