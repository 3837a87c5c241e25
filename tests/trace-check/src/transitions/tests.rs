//! Goal: calls that differ only in their answers are matched with the right changes. Real traces
//! rarely contain such calls.

use bson::{Bson, doc, spec::BinarySubtype};
use leasehold_core::election::{Claim, Found, Operation as LeaseOperation, Session};
use serde_json::json;

use super::*;
use crate::calls::{Calls, Reply};
use crate::state::Operation;

const HOLDER: [u8; 16] = [1; 16];
const STANDBY: [u8; 16] = [2; 16];

fn uuid(bytes: [u8; 16]) -> Bson {
    Bson::Binary(bson::Binary {
        subtype: BinarySubtype::Uuid,
        bytes: bytes.to_vec(),
    })
}

fn lease(revision: u8, has_standby: bool) -> Stored {
    let at = bson::DateTime::from_millis(1_000);
    let standby = has_standby.then(|| {
        Bson::from(doc! { "at": at, "identity": "b", "priority": 0_i64, "session": uuid(STANDBY) })
    });
    let stored = Stored::of(Some(doc! {
        "_id": "orders",
        "schema": 1,
        "kind": "lease",
        "token": 7_i64,
        "revision": uuid([revision; 16]),
        "holder": {
            "acquired_at": at,
            "claim": uuid(HOLDER),
            "identity": "a",
            "lease_duration_ms": 6_000_i64,
            "renewed_at": at,
            "session": uuid([3; 16]),
            "token": 7_i64,
        },
        "paused": false,
        "request": null,
        "reserved_for": null,
        "standby": standby.unwrap_or(Bson::Null),
        "history": [],
    }));
    assert!(matches!(stored.state, State::Lease(_)), "{stored:?}");
    stored
}

/// Returns the two calls of a standby: a registration with an unknown outcome, and a second
/// registration whose answer shows `revision`.
fn registrations(revision: u8) -> Calls {
    let operation = LeaseOperation::Register {
        holder: Claim::from_bytes(HOLDER),
        session: Session::from_bytes(STANDBY),
        priority: 0,
        replaces: None,
    };
    let mut calls = Calls::default();
    for (call, outcome) in [(1, "unknown"), (2, "applied")] {
        let id = serde_json::from_value(json!(call)).unwrap();
        let asked = vec![(id, Operation::Lease(operation.clone()))];
        calls.asked(call, asked).unwrap();
        calls
            .sent(&json!({ "call": call, "at": 10 * call }))
            .unwrap();
        let at = 10 * call + 1;
        let answered = json!({ "call": call, "at": at, "outcome": outcome, "late": false });
        calls.answered(&answered).unwrap();
    }
    let State::Lease(found) = lease(revision, true).state else {
        unreachable!("it is a lease");
    };
    let reply = Reply {
        call: serde_json::from_value(json!(2)).unwrap(),
        outcome: Outcome::Applied,
        found: Some(Found::Lease(*found).into()),
    };
    calls.replied(reply).unwrap();
    calls
}

/// Checks a standby that registers at revision 1, is removed by an edit, and registers again at
/// revision 2.
fn check(calls: &Calls) -> Report {
    let by = Identity::new("b").unwrap();
    let made: Vec<_> = calls
        .all()
        .map(|(id, call)| Made {
            machine: "b",
            by: &by,
            clock: None,
            id,
            call,
        })
        .collect();
    let states = [(1, false), (1, true), (2, false), (2, true)];
    let transitions: Vec<_> = states
        .windows(2)
        .enumerate()
        .map(|(number, pair)| Transition {
            line: number + 1,
            operation: "update".to_owned(),
            before: lease(pair[0].0, pair[0].1),
            after: lease(pair[1].0, pair[1].1),
            declared: 1,
        })
        .collect();
    let mut report = Report::default();
    let mut history = History {
        name: "orders",
        calls: &made,
        report: &mut report,
    };
    history.check(&transitions);
    report
}

#[test]
fn a_call_is_matched_with_the_change_that_its_answer_shows() {
    let report = check(&registrations(2));
    assert!(report.violations.is_empty(), "{:?}", report.violations);
    let counts = report.counts;
    assert_eq!((counts.calls, counts.unknown, counts.edits), (2, 1, 1));
}

#[test]
fn an_answer_that_no_change_shows_is_refused() {
    let report = check(&registrations(9));
    let [violation] = report.violations.as_slice() else {
        panic!("{:?}", report.violations);
    };
    let expected = "was answered with a document that differs from line 3: revision";
    assert!(violation.what.contains(expected), "{}", violation.what);
}
