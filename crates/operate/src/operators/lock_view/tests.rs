//! Goal: all outputs use identical words for the state of a lock, its holders and its waiters.

use leasehold_clock::boot_now;
use leasehold_mongodb::store::Failure;
use leasehold_mongodb::store::mongo::operators::{CollectionEntry, ViewEvent};
use mongodb::bson::{Bson, Document, Uuid, doc};

use super::*;
use crate::operators::observed::Observed;
use crate::operators::observed::tests::ago;

fn holder(number: u8, mode: &str, renewed: i64) -> Document {
    let uuid = |kind| {
        Bson::from(Uuid::from_bytes(
            [kind, number].repeat(8).try_into().expect("16 bytes"),
        ))
    };
    doc! {
        "claim": uuid(1), "session": uuid(2), "revision": uuid(3), "granted_revision": uuid(4),
        "identity": format!("job-{number}"), "mode": mode, "token": i64::from(number),
        "lease_duration_ms": 24_000_i64, "acquired_at": ago(90), "renewed_at": ago(renewed),
    }
}

fn observed(slots: i64, holders: Vec<Document>, queue: Vec<Document>) -> Observed {
    let document = doc! {
        "_id": "nightly", "schema": 1, "kind": "lock", "token": 9_i64, "slots": slots,
        "holders": holders, "queue": queue, "history": [{ "token": 8_i64 }], "successes": [],
    };
    let (mut observed, at) = (Observed::default(), boot_now());
    let entries = vec![CollectionEntry::of(&document).expect("a name")];
    observed.apply(ViewEvent::Listed { entries, at }, at);
    observed
}

#[test]
fn a_lock_and_its_json_have_one_state() {
    let exclusive = |renewed| holder(1, "exclusive", renewed);
    let shared = |number, renewed| holder(number, "shared", renewed);
    let slots = vec![holder(1, "slot", 60), holder(2, "slot", 1)];
    for (slots, holders, state, text) in [
        (0, vec![], "free", "free, "),
        (0, vec![exclusive(1)], "held", "held, "),
        (0, vec![exclusive(10)], "late", "late, "),
        (0, vec![exclusive(60)], "silent", "silent, "),
        (
            0,
            vec![shared(1, 1), shared(2, 1)],
            "held",
            "held, shared by 2, ",
        ),
        (
            0,
            vec![shared(1, 1), shared(2, 60)],
            "silent",
            "silent, shared by 2 (1 not renewing), ",
        ),
        (
            3,
            slots,
            "silent",
            "silent, 2 of 3 slots (1 not renewing), ",
        ),
    ] {
        let observed = observed(slots, holders, vec![]);
        let seen = observed.one().expect("a lock");
        let view = ObservedLock::new(seen, None, boot_now()).expect("a lock");
        let described = view.description(&StoreInfo::default());
        let line = format!("State:     {text}0 waiting\n");
        assert!(described.contains(&line), "{described}");
        for object in [
            view.object(),
            view.description_object(&StoreInfo::default()),
        ] {
            assert_eq!(object["state"], state, "{object}");
        }
    }
}

#[test]
fn holders_and_waiters_have_the_states_of_the_list_in_json() {
    let queue = vec![holder(3, "exclusive", 1)];
    let holders = vec![holder(1, "shared", 10), holder(2, "shared", 60)];
    let mut observed = observed(0, holders, queue);
    let mut states = Vec::new();
    for later in [Duration::ZERO, Duration::from_secs(10)] {
        let (seen, now) = (observed.one().expect("a lock"), boot_now() + later);
        let listed = rows([seen].into_iter(), None, now);
        let listed: Vec<_> = listed[1..].iter().map(|row| row.cells[2].clone()).collect();
        let found = object(seen, None, now);
        let entries = found["holders"].as_array().into_iter().flatten();
        let entries = entries.chain(found["queue"].as_array().into_iter().flatten());
        let entries: Vec<_> = entries
            .map(|it| it["state"].as_str().expect("a word"))
            .collect();
        assert_eq!(listed, entries, "{found}");
        states.push(listed);
        let failed = ViewEvent::Failed(Failure::new("no answer", ""));
        observed.apply(failed, boot_now());
    }
    assert_eq!(states[0], ["late", "silent", "waits"]);
    assert_eq!(states[1], ["unknown", "silent", "unknown"]);
    let (seen, now) = (
        observed.one().expect("a lock"),
        boot_now() + Duration::from_secs(10),
    );
    for row in &rows([seen].into_iter(), None, now)[1..] {
        assert_eq!(row.cells[6], "-", "{row:?}");
        assert!(
            row.cells[7].starts_with("no answer from MongoDB for "),
            "{row:?}"
        );
    }
}

#[test]
fn a_renewal_dated_in_the_future_is_noted() {
    let observed = observed(0, vec![holder(1, "exclusive", -3_600)], vec![]);
    let seen = observed.one().expect("a lock");
    for (later, state, note) in [
        (1, "held", "last renewal dated "),
        (
            4,
            "unknown",
            "others take over after watching for 24s; last renewal dated ",
        ),
    ] {
        let listed = rows(
            [seen].into_iter(),
            None,
            boot_now() + Duration::from_secs(later),
        );
        let cells = &listed[1].cells;
        assert_eq!(cells[2], state);
        assert!(
            cells[7].starts_with(note) && cells[7].ends_with(" in the future"),
            "{cells:?}"
        );
    }
}
