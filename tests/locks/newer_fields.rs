//! Goal: a client of this version never erases fields of a newer version, neither in the document
//! nor in an entry that moves from the queue to the holders.

use std::time::Duration;

use leasehold::lock::{EntryMode, LockDocument, LockOperation, WorkKey};
use mongodb::bson::{Bson, Document, doc};

use crate::fixture::{
    applied, claim, document, entry, held, join, leave, renew, revision, shared_stage, store,
    stored, sweep, token,
};

fn newer() -> Bson {
    doc! { "deep": [{ "er": [] }], "nan": f64::NAN, "$dollar": "$$NOW" }.into()
}

fn marked(number: u16) -> Bson {
    doc! { "of": i32::from(number) }.into()
}

/// Returns each entry's number, with the newer version's field if the entry still has this field.
fn marks(document: &Document) -> Vec<(u16, Option<Bson>)> {
    let lists = ["holders", "queue"].map(|list| document.get_array(list).expect("a list"));
    let entries = lists.into_iter().flatten().filter_map(Bson::as_document);
    let mark = |entry: &Document| {
        let Some(Bson::Binary(claim)) = entry.get("claim") else {
            panic!("no claim: {entry}")
        };
        let number = u16::from_be_bytes([claim.bytes[0], claim.bytes[1]]);
        (number, entry.get("newer").cloned())
    };
    entries.map(mark).collect()
}

#[tokio::test]
async fn fields_of_a_newer_version_survive_every_write() {
    let stage = shared_stage().await;
    let (store, stored) = (store(&stage), stored(&stage));
    let mut lock = document(&LockDocument {
        slot_owners: Vec::new(),
        token: token(7),
        slots: 0,
        holders: vec![held(1, EntryMode::Exclusive, 7)],
        queue: [2, 3, 4].map(|n| entry(n, EntryMode::Exclusive)).into(),
        ..LockDocument::default()
    });
    lock.insert("newer", newer());
    lock.insert("holders.claim", "a name with a dot");
    for list in ["holders", "queue"] {
        for entry in lock.get_array_mut(list).expect("a list") {
            let entry = entry.as_document_mut().expect("an entry");
            let Some(Bson::Binary(claim)) = entry.get("claim").cloned() else {
                panic!("no claim: {entry}")
            };
            let number = u16::from_be_bytes([claim.bytes[0], claim.bytes[1]]);
            entry.insert("newer", marked(number));
        }
    }
    stored.replace(&lock).await;
    let broken = LockOperation::Break {
        claims: vec![claim(3)],
        seen: token(0),
    };
    let confirm = LockOperation::Renew {
        claim: claim(2),
        revision: revision(22),
        mine: vec![revision(2)],
        seen: token(30),
        min_hold: None,
    };
    let keep = LockOperation::Keep {
        claim: claim(2),
        revision: revision(23),
        mine: vec![revision(22)],
        min_hold: Duration::from_secs(55),
        success: Some(WorkKey::default()),
    };
    let steps: [(LockOperation, &[u16]); 8] = [
        (renew(1, 20), &[1, 2, 3, 4]),
        (renew(3, 21), &[1, 2, 3, 4]),
        (join(5, EntryMode::Exclusive), &[1, 2, 3, 4, 5]),
        (leave(1), &[2, 3, 4, 5]),
        (confirm, &[2, 3, 4, 5]),
        (keep, &[2, 3, 4, 5]),
        (broken, &[2, 4, 5]),
        (sweep(&[4], None), &[2, 5]),
    ];
    for (operation, left) in steps {
        applied(&store, operation.clone()).await;
        let document = stored.get().await;
        let expected: Vec<_> = left
            .iter()
            // Entry 5 has joined without the newer version's field.
            .map(|number| (*number, (*number != 5).then(|| marked(*number))))
            .collect();
        assert_eq!(marks(&document), expected, "{operation:?}");
        let kept = format!("{:?}", document.get("newer"));
        assert_eq!(kept, format!("{:?}", Some(newer())), "{operation:?}");
        assert!(document.contains_key("holders.claim"), "{operation:?}");
    }
}
