//! Goal: if the document is deleted or rolled back, the current leader steps down, and no candidate
//! leads until every authority granted under the lost state has expired. The next token is above
//! all earlier tokens (I3). Method: delete, drop and restore the document as an operator would,
//! with and without a change stream.
//!
//! With a change stream, the event arrives first, and the reason is `store_went_back`. Without a
//! change stream, the next renewal comes first: the leader steps down with `rejected`, and reports
//! `store_went_back` at the next read. If the restored document has the leader's current claim and
//! token, the leader only sees a revision that it did not send (`duplicate`).

use leasehold_testbed::daemon::boottime_ns;
use leasehold_testbed::{Daemon, DaemonTimings, LeaderMonitor, Stage};
use mongodb::bson::Bson;

use crate::fixture::{
    LONG, eventually, leader_of, monitored_pair, shared_stage, without_change_stream,
};

const WENT_BACK: &str = "lease document is older";

/// Minimum time until the next leader: a lease duration, minus a tolerance for the test's own
/// delay.
const WAIT_MIN_NS: u64 = 5_800_000_000;

/// Returns a stage whose leader survives on a busy machine until its document changes.
async fn stage() -> Stage {
    shared_stage().await.timings(DaemonTimings::DEMO)
}

/// Starts a leader with token 2, so that a lower token can be restored.
async fn second_reign(stage: &Stage) -> Daemon {
    let first = stage.candidate("first").leading(LONG).await;
    first.term_and_exit(LONG).await;
    let a = stage.candidate("a").leading(LONG).await;
    assert_eq!(a.token(), Some(2));
    a
}

/// Asserts that `a` steps down, waits, and leads again with token 3.
async fn waits_and_leads_above(a: &Daemon, changed_ns: u64) {
    a.wait_not_leader(LONG).await;
    a.wait_leads(LONG).await;
    let waited = boottime_ns() - changed_ns;
    assert!(waited >= WAIT_MIN_NS, "led again after {waited} ns");
    assert_eq!(a.token(), Some(3));
}

#[tokio::test]
async fn i3_a_document_deleted_under_a_leader_is_noticed_by_the_change_stream() {
    let stage = stage().await;
    let a = second_reign(&stage).await;
    let monitor = LeaderMonitor::of([&a]);
    let changed = boottime_ns();
    stage.stored().delete().await;
    waits_and_leads_above(&a, changed).await;
    assert!(a.transitions("store_went_back").await >= 1.0);
    assert_eq!(a.logged(WENT_BACK), 1);
    assert_eq!(monitor.reigns().len(), 2);
}

#[tokio::test]
async fn i3_a_document_deleted_under_a_leader_is_noticed_by_its_renewal() {
    let stage = stage().await;
    let (_proxy, behind) = without_change_stream(&stage);
    let a = second_reign(&behind).await;
    let monitor = LeaderMonitor::of([&a]);
    let changed = boottime_ns();
    stage.stored().delete().await;
    waits_and_leads_above(&a, changed).await;
    let told = a.transitions("rejected").await + a.transitions("store_went_back").await;
    assert!(told >= 1.0);
    assert_eq!(a.logged(WENT_BACK), 1);
    assert_eq!(monitor.reigns().len(), 2);
}

#[tokio::test]
async fn i3_a_dropped_collection_is_a_store_that_went_back_for_leader_and_follower() {
    let stage = stage().await;
    let (a, b, monitor) = monitored_pair(&stage).await;
    let changed = boottime_ns();
    stage.stored().drop_collection().await;
    a.wait_not_leader(LONG).await;
    let next = leader_of(&[&a, &b]).await;
    assert!(boottime_ns() - changed >= WAIT_MIN_NS);
    assert_eq!(next.token(), Some(2));
    for daemon in [&a, &b] {
        assert!(daemon.logged(WENT_BACK) >= 1, "{}", daemon.logs());
    }
    // The leader keeps renewing after the drop has invalidated its stream.
    next.wait_renewal(LONG).await;
    assert_eq!(monitor.reigns().len(), 2);
}

#[tokio::test]
async fn i3_a_document_restored_to_an_earlier_reign_has_a_lower_token_and_is_noticed() {
    for streams in [true, false] {
        let stage = stage().await;
        let (_proxy, polling) = without_change_stream(&stage);
        let first = stage.candidate("first").leading(LONG).await;
        let backup = stage.stored().get().await;
        first.term_and_exit(LONG).await;
        let seen = if streams { &stage } else { &polling };
        let a = seen.candidate("a").leading(LONG).await;
        let monitor = LeaderMonitor::of([&a]);
        let changed = boottime_ns();
        stage.stored().replace(&backup).await;
        waits_and_leads_above(&a, changed).await;
        assert!(a.logged(WENT_BACK) >= 1, "{}", a.logs());
        drop(monitor);
    }
}

#[tokio::test]
async fn i1_a_document_restored_to_an_earlier_renewal_of_its_leader_counts_as_a_duplicate() {
    let stage = stage().await;
    let a = second_reign(&stage).await;
    let monitor = LeaderMonitor::of([&a]);
    let backup = stage.stored().get().await;
    a.wait_renewal(LONG).await;
    a.wait_renewal(LONG).await;
    let changed = boottime_ns();
    stage.stored().replace(&backup).await;
    waits_and_leads_above(&a, changed).await;
    assert_eq!(a.logged(WENT_BACK), 0);
    assert!(a.transitions("duplicate").await >= 1.0);
    assert_eq!(monitor.reigns().len(), 2);
}

#[tokio::test]
async fn i3_a_follower_that_sees_the_document_vanish_waits_before_it_leads() {
    let stage = stage().await;
    let (a, b, monitor) = monitored_pair(&stage).await;
    // The frozen leader does not notice the deletion and may resume with authority, so other
    // candidates must wait.
    a.stop();
    let changed = boottime_ns();
    stage.stored().delete().await;
    b.wait_leads(LONG).await;
    assert!(boottime_ns() - changed >= WAIT_MIN_NS);
    assert_eq!(b.token(), Some(2));
    a.cont();
    a.wait_follows("b", LONG).await;
    assert_eq!(monitor.leaders(), ["a", "b"]);
}

#[tokio::test]
async fn i3_a_restart_remembers_the_token_of_a_document_that_was_deleted_meanwhile() {
    let stage = stage().await;
    let mut a = second_reign(&stage).await;
    a.term_and_exit(LONG).await;
    stage.stored().delete().await;
    a.restart_same_directory();
    a.wait_leads(LONG).await;
    assert_eq!(a.token(), Some(3));
    assert_eq!(a.logged(WENT_BACK), 1);
}

#[tokio::test]
async fn a_majority_read_alone_never_proves_a_rollback_to_a_leader() {
    let stage = stage().await;
    let (proxy, behind) = stage.proxied();
    // Hold the linearizable read that would confirm the deletion.
    proxy.hold_requests_containing("linearizable");
    let a = behind.candidate("a").leading(LONG).await;
    let backup = stage.stored().get().await;
    stage.stored().delete().await;
    eventually("the confirmation is requested", async || {
        proxy.held_requests() > 0
    })
    .await;
    a.wait_not_leader(LONG).await;
    assert_eq!(a.transitions("store_went_back").await, 0.0);
    assert_eq!(a.logged(WENT_BACK), 0);
    // The document exists again, as if the earlier read had reached a deposed primary.
    let mut found = backup.clone();
    found.insert("holder", Bson::Null);
    stage.stored().replace(&found).await;
    proxy.resume();
    a.wait_leads(LONG).await;
    assert_eq!(a.transitions("store_went_back").await, 0.0);
    assert_eq!(a.logged(WENT_BACK), 0);
}
