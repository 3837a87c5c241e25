//! Goal: a daemon never writes to a document that is not a lease of this version (I11), logs one
//! error, and does not lead. Fields that a newer version adds to a lease survive every write.
//! Method: store other documents under the lease's name and compare them byte by byte; change the
//! schema while a leader runs.

use leasehold_testbed::{DaemonTimings, LeaderMonitor, Stage};
use mongodb::bson::{Document, Uuid, doc};

use crate::fixture::{LONG, eventually, monitored_pair, shared_stage, throughout};

const FOREIGN: &str = "cannot lead, leaving the document untouched";

fn lease(change: Document) -> Document {
    let mut document = doc! {
        "_id": "orders", "schema": 1, "kind": "lease", "token": 7_i64, "revision": Uuid::new(),
        "holder": null, "paused": false, "request": null, "reserved_for": null, "history": [],
    };
    document.extend(change);
    document
}

/// Asserts that for a lease duration no daemon writes to this document, that each daemon logs one
/// error, and that a daemon leads once the document is removed.
async fn is_left_alone(document: Document) {
    let stage = shared_stage().await;
    let stored = stage.stored();
    stored.replace(&document).await;
    let before = stored.bytes().await;
    let a = stage.candidate("a").start();
    let b = stage.candidate("b").start();
    let monitor = LeaderMonitor::of([&a, &b]);
    for daemon in [&a, &b] {
        eventually("the log reports the document", async || {
            daemon.logged(FOREIGN) == 1
        })
        .await;
    }
    let time = DaemonTimings::SHORT.lease_duration;
    throughout(time, "no candidate leads", async || {
        !a.leads() && !b.leads()
    })
    .await;
    assert_eq!(stored.bytes().await, before, "{document}");
    for daemon in [&a, &b] {
        assert_eq!(daemon.logged(FOREIGN), 1, "{}", daemon.logs());
    }
    assert!(monitor.reigns().is_empty());
    // The daemons never read a token from this document, so they need not wait after its deletion.
    stored.delete().await;
    eventually("a candidate leads", async || a.leads() || b.leads()).await;
    assert_eq!(monitor.reigns()[0].token, 1);
}

#[tokio::test]
async fn i11_a_document_of_another_shape_is_left_alone() {
    is_left_alone(doc! { "_id": "orders", "hello": "world" }).await;
}

#[tokio::test]
async fn i11_a_lock_of_the_same_name_is_left_alone_and_ends_a_daemon_that_starts() {
    let stage = shared_stage().await;
    let stored = stage.stored();
    stored.replace(&lease(doc! { "kind": "lock" })).await;
    let before = stored.bytes().await;
    let a = stage.candidate("a").start();
    assert_eq!(a.wait_exit(LONG).await, 78);
    for line in [
        "orders is a lock; choose another lease name",
        "exiting with code 78, because a lock has the name of this lease",
    ] {
        assert_eq!(a.logged(line), 1, "{line}: {}", a.logs());
    }
    assert_eq!(stored.bytes().await, before);
    // A daemon that runs keeps waiting for its lease.
    stored.delete().await;
    let b = stage.candidate("b").leading(LONG).await;
    stored.replace(&lease(doc! { "kind": "lock" })).await;
    eventually("readiness names the lock", async || {
        let (_, ready) = b.http("/readyz").await.unwrap();
        ready.contains("cannot lead: orders is a lock")
    })
    .await;
}

#[tokio::test]
async fn i11_a_lease_of_a_newer_schema_is_left_alone() {
    is_left_alone(lease(doc! { "schema": 2 })).await;
}

#[tokio::test]
async fn i11_a_lease_whose_token_is_a_double_is_left_alone() {
    is_left_alone(lease(doc! { "token": 7.0 })).await;
}

#[tokio::test]
async fn i11_a_schema_that_is_raised_under_a_leader_ends_its_leadership_and_is_never_written() {
    let stage = shared_stage().await;
    let (a, b, monitor) = monitored_pair(&stage).await;
    let stored = stage.stored();
    stored.set(doc! { "schema": 2 }).await;
    let before = stored.bytes().await;
    a.wait_not_leader(LONG).await;
    assert!(a.transitions("rejected").await >= 1.0, "{}", a.logs());
    for daemon in [&a, &b] {
        eventually("the log reports the document", async || {
            daemon.logged(FOREIGN) == 1
        })
        .await;
    }
    let time = DaemonTimings::SHORT.lease_duration * 2;
    throughout(time, "no candidate leads", async || {
        !a.leads() && !b.leads()
    })
    .await;
    assert_eq!(stored.bytes().await, before);
    // After the schema is restored, a daemon leads once the old holder's lease has expired.
    stored.set(doc! { "schema": 1 }).await;
    eventually("a candidate leads", async || a.leads() || b.leads()).await;
    assert_eq!(monitor.reigns().len(), 2);
    assert_eq!(monitor.reigns()[1].token, 2);
}

#[tokio::test]
async fn i11_fields_of_a_newer_version_survive_acquire_renew_release_and_takeover() {
    let stage = shared_stage().await;
    let stored = stage.stored();
    let extra = doc! { "priority": [1, 2], "note": { "by": "v2" } };
    stored.replace(&lease(extra.clone())).await;
    let survives = async |stage: &Stage, when: &str| {
        let document = stage.stored().get().await;
        for (key, value) in &extra {
            assert_eq!(document.get(key), Some(value), "{when}: {document}");
        }
    };
    let a = stage.candidate("a").leading(LONG).await;
    survives(&stage, "acquired").await;
    assert_eq!(a.token(), Some(8));
    a.wait_renewal(LONG).await;
    survives(&stage, "renewed").await;
    a.term_and_exit(LONG).await;
    survives(&stage, "released").await;
    let b = stage.candidate("b").leading(LONG).await;
    let c = stage.candidate("c").following("b", LONG).await;
    b.kill();
    c.wait_leads(LONG).await;
    survives(&stage, "taken over").await;
    assert_eq!(stored.reasons().await, ["shutdown", "took_over"]);
}
