//! Goal: the store classifies each call's outcome as the protocol defines: applied, rejected,
//! failed or unknown. A leader survives a short failure, and an unknown outcome never extends its
//! authority (I7). Method: make findAndModify fail (fail point `failCommand`), cut connections with
//! a proxy, and edit the document with another client.

use std::sync::Arc;
use std::time::Duration;

use leasehold_testbed::daemon::boottime_ns;
use leasehold_testbed::{DaemonTimings, LeaderMonitor, ReplicaSet, SharedSet};
use mongodb::bson::{Bson, Document, Uuid, doc};
use tokio::sync::{Mutex, MutexGuard};

use crate::fixture::{LONG, SURVIVING, eventually, shared_stage, stage_on, throughout};

/// A member has only one `failCommand` fail point, so the tests run one at a time.
static TURN: Mutex<()> = Mutex::const_new(());
static FAILING: SharedSet = SharedSet::new(ReplicaSet::builder);

struct Failing {
    set: Arc<ReplicaSet>,
    primary: usize,
    _turn: MutexGuard<'static, ()>,
}

impl Failing {
    async fn set() -> Self {
        let set = FAILING.get().await;
        let turn = TURN.lock().await;
        let primary = set.primary().await;
        Self {
            set,
            primary,
            _turn: turn,
        }
    }

    async fn fail_writes(&self, mode: impl Into<Bson>, how: Document) {
        let of_a = (self.primary, "leasehold/a");
        let writes = ["findAndModify"];
        self.set.fail_commands_of(of_a, &writes, mode, how).await;
    }

    async fn stop_failing(&self) {
        self.set.clear_fail_point(self.primary).await;
    }
}

async fn one_failure_is_unknown_and_ridden_out(how: Document) {
    one_failure_is_ridden_out_with(SURVIVING, how).await;
}

async fn one_failure_is_ridden_out_with(timings: DaemonTimings, how: Document) -> String {
    let failing = Failing::set().await;
    let stage = stage_on(&failing.set).timings(timings);
    let a = stage.candidate("a").leading(LONG).await;
    let monitor = LeaderMonitor::of([&a]);
    let before = a.operations("renew", "unknown").await;
    failing.fail_writes(doc! { "times": 1 }, how).await;
    a.wait_operations("renew", "unknown", before + 1.0).await;
    a.wait_renewal(LONG).await;
    a.wait_renewal(LONG).await;
    assert_eq!(monitor.leaders(), ["a"], "{}", a.logs());
    assert_eq!(a.token(), Some(1));
    failing.stop_failing().await;
    a.logs()
}

#[tokio::test]
async fn i7_a_connection_closed_under_a_renewal_makes_it_unknown() {
    one_failure_is_unknown_and_ridden_out(doc! { "closeConnection": true }).await;
}

#[tokio::test]
async fn i7_a_write_concern_that_timed_out_makes_a_renewal_unknown() {
    let error = doc! { "code": 64, "errmsg": "planted", "errInfo": { "wtimeout": true } };
    one_failure_is_unknown_and_ridden_out(doc! { "writeConcernError": error }).await;
}

#[tokio::test]
async fn i7_a_write_concern_that_met_a_shutdown_makes_a_renewal_unknown() {
    // The driver marks the server as unknown. The driver recovers only at the next heartbeat, after
    // 10 s, because the server's state has not changed. The default timings allow this delay.
    let error = doc! { "code": 91, "errmsg": "planted" };
    let how = doc! { "writeConcernError": error };
    let log = one_failure_is_ridden_out_with(DaemonTimings::DEFAULT, how).await;
    assert!(log.contains("the server is shutting down"), "{log}");
}

#[tokio::test]
async fn i7_a_renewal_blocked_for_longer_than_the_time_out_is_unknown() {
    // The operation_timeout of these timings is 1 s.
    one_failure_is_unknown_and_ridden_out(doc! { "blockConnection": true, "blockTimeMS": 1_500 })
        .await;
}

#[tokio::test]
async fn i7_a_renewal_that_met_no_primary_is_unknown() {
    one_failure_is_unknown_and_ridden_out(doc! { "errorCode": 10107 }).await;
}

#[tokio::test]
async fn i7_writes_that_are_applied_but_never_acknowledged_extend_nothing_and_grant_nothing() {
    let failing = Failing::set().await;
    let stage = stage_on(&failing.set);
    let a = stage.candidate("a").leading(LONG).await;
    let monitor = LeaderMonitor::of([&a]);
    let before = a.operations("renew", "unknown").await;
    let error = doc! { "writeConcernError": { "code": 64, "errmsg": "planted" } };
    failing.fail_writes("alwaysOn", error).await;
    a.wait_operations("renew", "unknown", before + 1.0).await;
    let until = a.valid_until_ns();
    let revision = async || stage.stored().get().await.get("revision").cloned();
    let before = revision().await;
    eventually("the authority has ended", async || {
        let now = a.valid_until_ns();
        assert!(now.is_none() || now == until, "an unknown outcome extended");
        now.is_none()
    })
    .await;
    assert_eq!(a.transitions("deadline").await, 1.0);
    assert_ne!(revision().await, before);
    // A candidate whose acquisition was applied would lead within a lease duration.
    let time = DaemonTimings::SHORT.lease_duration;
    throughout(time, "the candidate does not lead", async || !a.leads()).await;
    failing.stop_failing().await;
    a.wait_leads(LONG).await;
    assert_eq!(monitor.reigns().len(), 2);
}

#[tokio::test]
async fn a_renewal_without_a_reachable_server_fails_and_is_repeated() {
    let stage = shared_stage().await.timings(SURVIVING);
    let (proxy, behind) = stage.proxied();
    let a = behind.candidate("a").leading(LONG).await;
    let monitor = LeaderMonitor::of([&a]);
    proxy.cut();
    a.wait_operations("renew", "failed", 1.0).await;
    proxy.resume();
    a.wait_renewal(LONG).await;
    assert_eq!(monitor.leaders(), ["a"]);
    assert_eq!(a.token(), Some(1));
}

#[tokio::test]
async fn a_renewal_whose_claim_is_gone_from_the_document_is_rejected() {
    let stage = shared_stage().await;
    let a = stage.candidate("a").leading(LONG).await;
    let monitor = LeaderMonitor::of([&a]);
    let stranger = doc! { "holder.claim": Uuid::new(), "revision": Uuid::new() };
    stage.stored().set(stranger).await;
    a.wait_not_leader(LONG).await;
    assert!(a.operations("renew", "rejected").await >= 1.0);
    assert_eq!(a.transitions("duplicate").await, 0.0);
    assert!(a.transitions("rejected").await >= 1.0);
    // The candidate waits a lease duration for the unknown holder, as for any other holder.
    let lost = boottime_ns();
    a.wait_leads(LONG).await;
    let waited = boottime_ns() - lost;
    assert!(waited > 2_500_000_000, "took over after {waited} ns");
    assert_eq!(a.token(), Some(2));
    drop(monitor);
}

#[tokio::test]
async fn i2_authority_is_counted_from_before_the_send_and_not_from_the_reply() {
    // Each reply arrives later than the reply to a normal renewal. The deadline must count from the
    // request, not from the reply.
    let failing = Failing::set().await;
    let stage = stage_on(&failing.set).timings(DaemonTimings::DEMO);
    let a = stage.candidate("a").leading(LONG).await;
    let blocked = Duration::from_millis(700);
    let slow = doc! { "blockConnection": true, "blockTimeMS": 700 };
    failing.fail_writes("alwaysOn", slow).await;
    a.wait_renewal(LONG).await;
    for _ in 0..3 {
        a.wait_renewal(LONG).await;
        let left = a.valid_until_ns().expect("the candidate leads") - boottime_ns();
        let most = DaemonTimings::DEMO.renew_deadline - blocked;
        assert!(Duration::from_nanos(left) <= most, "{left} ns left");
    }
    failing.stop_failing().await;
}
