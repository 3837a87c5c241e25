//! Goal: an operator learns whether a lock was broken or pruned, even if MongoDB did not
//! acknowledge the write. Method: the server applies the write but returns an error, or closes the
//! connection before it applies the write.

use std::sync::Arc;

use leasehold_testbed::{ReplicaSet, run};
use mongodb::bson::{Bson, Document, doc};

use crate::job::{Output, Place};

const IDENTITY: &str = "--identity=operator";

fn own_set() -> Place {
    Place::on(Arc::new(run(ReplicaSet::builder().members(1).start())))
}

fn fail(place: &Place, mode: impl Into<Bson>, how: Document) {
    let writes = ["findAndModify"];
    let failing = place
        .set
        .fail_commands_of((0, "leasehold/operator"), &writes, mode, how);
    run(failing);
}

/// The server applies the write, but does not acknowledge it.
fn unacknowledged() -> Document {
    doc! { "writeConcernError": { "code": 64, "errmsg": "waiting for replication timed out" } }
}

/// The server closes the connection before it applies the write.
fn closed() -> Document {
    doc! { "closeConnection": true }
}

fn broken(place: &Place, lock: &str, flags: &[&str]) -> Output {
    let forced = ["locks", "break", lock, "--force", "--yes", IDENTITY];
    place.run(&[&forced, flags].concat())
}

#[test]
fn a_forced_break_that_was_applied_but_not_acknowledged_succeeds() {
    let place = own_set();
    let holder = place.holder("applied", &["--identity=holder"]);
    fail(&place, doc! { "times": 1 }, unacknowledged());
    let broken = broken(&place, "applied", &[]);
    assert_eq!(broken.code, 0, "{broken:?}");
    assert_eq!(
        broken.stdout,
        "lock applied: no longer held by holder (exclusive)\n"
    );
    assert!(!place.run(&["locks"]).stdout.contains("holder"));
    drop(holder);
}

#[test]
fn a_forced_break_that_was_not_applied_is_retried() {
    let place = own_set();
    let holder = place.holder("repeated", &["--identity=holder"]);
    fail(&place, doc! { "times": 2 }, closed());
    let broken = broken(&place, "repeated", &[]);
    assert_eq!(broken.code, 0, "{broken:?}");
    assert_eq!(
        broken.stdout,
        "lock repeated: broken: held by holder (exclusive)\n"
    );
    drop(holder);
}

#[test]
fn a_forced_break_without_an_answer_has_an_unknown_outcome() {
    let place = own_set();
    let holder = place.holder("unknown", &["--identity=holder"]);
    fail(&place, "alwaysOn", closed());
    let broken = broken(&place, "unknown", &["--timeout=3s"]);
    broken.says(69, "lock unknown: the outcome is not known");
    broken.says(69, " shows whether it was applied");
    assert_eq!(broken.stdout, "");
    // The server closed the connection without applying the write.
    assert!(place.run(&["locks"]).stdout.contains("holder"));
    drop(holder);
}

#[test]
fn a_prune_without_an_acknowledgement_reports_the_pruned_locks() {
    let place = own_set();
    for lock in ["first", "second", "third"] {
        assert_eq!(place.run_empty(lock, &[]).code, 0);
    }
    for (how, times) in [(unacknowledged(), 1), (closed(), 1)] {
        fail(&place, doc! { "times": times }, how);
        let pruned = place.run(&["locks", "prune", "--unused-for=0s", IDENTITY]);
        assert_eq!(pruned.code, 0, "{pruned:?}");
        for lock in ["first", "second", "third"] {
            assert!(
                pruned.stdout.contains(&format!("pruned {lock}\n")),
                "{pruned:?}"
            );
        }
        for lock in ["first", "second", "third"] {
            assert_eq!(place.run_empty(lock, &[]).code, 0);
        }
    }
}
