//! Documents as a command first reads them.

use leasehold_clock::boot_now;
use mongodb::bson::{Bson, DateTime, Document, Uuid, doc};

use super::*;

pub(in crate::operators) fn ago(seconds: i64) -> DateTime {
    DateTime::from_millis(wall().0 - 1_000 * seconds)
}

/// Returns the first read of a lease with these changes; `renewed_at` adds holder `a`.
pub(in crate::operators) fn observed(mut changes: Document) -> Observed {
    let uuid = |number| Bson::from(Uuid::from_bytes([number; 16]));
    let holder = changes.remove("renewed_at").map(|renewed_at| {
        doc! {
            "identity": "a", "session": uuid(1), "claim": uuid(1), "token": 7_i64,
            "acquired_at": ago(900), "renewed_at": renewed_at, "lease_duration_ms": 24_000_i64,
        }
    });
    let mut document = doc! {
        "_id": "orders", "schema": 1, "kind": "lease", "token": 7_i64, "revision": uuid(1),
        "holder": holder, "paused": false, "request": Bson::Null,
        "reserved_for": Bson::Null, "history": [],
    };
    document.extend(changes);
    let (mut observed, at) = (Observed::default(), boot_now());
    let entries = vec![CollectionEntry::of(&document).expect("a name")];
    observed.apply(ViewEvent::Listed { entries, at }, at);
    observed
}
