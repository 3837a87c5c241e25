use leasehold_testbed::ReplicaSet;
use mongodb::bson::{Bson, DateTime, Document, doc, spec::BinarySubtype};

use crate::parts::Parts;
use crate::situation::Situation;

const QUEUE_MAX: usize = 512;

pub(crate) async fn situations(parts: &Parts) -> Vec<Situation> {
    let set = &parts.open;
    let uri = set.uri();
    let lock = |slots: i32| {
        doc! {
            "schema": 1, "kind": "lock", "token": 7_i64, "slots": slots,
            "holders": [entry(0, if slots == 0 { "exclusive" } else { "slot" }, Some(7))],
            "queue": [], "granted": "", "next": "", "history": [],
        }
    };
    let mut full = lock(0);
    let queue: Vec<_> = (1..=QUEUE_MAX)
        .map(|n| Bson::from(entry(n, "exclusive", None)))
        .collect();
    full.insert("queue", queue);
    let documents = [
        ("held", lock(0)),
        ("full", full),
        ("three", lock(3)),
        (
            "lease",
            doc! { "schema": 1, "kind": "lease", "token": 1_i64 },
        ),
        ("foreign", doc! { "precious": true }),
        (
            "newer",
            doc! { "schema": 99, "kind": "lock", "token": 1_i64 },
        ),
    ];
    for (name, document) in documents {
        store(set, name, document).await;
    }
    let asked = |name: &'static str, lock: &str| Situation::lock(name, &uri, lock);
    vec![
        asked("lock held", "held")
            .exits(75)
            .says("lock held: not acquired: held by holder-0 (exclusive) since 2026-"),
        asked("lock held, with --wait", "held")
            .flag("--wait=1s")
            .exits(75)
            .says("held by holder-0 (exclusive)")
            .says("not acquired within 1s"),
        asked("lock held, with a --wait shorter than a round trip", "held")
            .flag("--wait=1ms")
            .exits(75)
            .says("not acquired within 1ms: held by holder-0 (exclusive)"),
        asked("queue full", "full")
            .flag("--wait=1s")
            .exits(75)
            .says("lock full: not acquired within 1s: queue is full (512 waiting)"),
        asked("different number of slots", "three")
            .flag("--slots=2")
            .exits(78)
            .says("--slots 3"),
        asked("slots for a lock without slots", "held")
            .flag("--slots=2")
            .exits(78)
            .says("--slots"),
        asked("no slots for a lock with slots", "three")
            .exits(78)
            .says("--slots 3"),
        asked("lock named like a lease", "lease")
            .exits(78)
            .says("lock lease: lease is a lease; choose another lock name"),
        asked("foreign document", "foreign")
            .exits(78)
            .says("lock foreign: the document of this name is not a lock of this version: ")
            .says("it has no schema; upgrade this program, or restore the document"),
        asked("document of a newer version", "newer")
            .exits(78)
            .says("99"),
        Situation::run("lease named like a lock", &uri, "held")
            .exits(78)
            .says("held is a lock; choose another lease name")
            .says("leaving the document untouched"),
    ]
}

async fn store(set: &ReplicaSet, name: &str, mut document: Document) {
    document.insert("_id", name);
    let collection = set.client().database("leasehold").collection("leases");
    collection.insert_one(document).await.unwrap();
}

fn entry(number: usize, mode: &str, token: Option<i64>) -> Document {
    let id = |kind: u8| {
        let mut bytes = [kind; 16];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        mongodb::bson::Binary {
            subtype: BinarySubtype::Uuid,
            bytes: bytes.to_vec(),
        }
    };
    let name = if token.is_some() { "holder" } else { "waiter" };
    // The lease is much longer than the test, so that the entries are not evicted.
    doc! {
        "claim": id(1), "identity": format!("{name}-{number}"), "session": id(2), "mode": mode,
        "revision": id(3), "lease_duration_ms": 3_600_000_i64, "token": token,
        "acquired_at": DateTime::from_millis(1_770_000_000_000),
        // Without a recent renewal, a job would watch the holder before it reports the conflict.
        "renewed_at": DateTime::from_millis(DateTime::now().timestamp_millis() + 3_600_000),
    }
}
