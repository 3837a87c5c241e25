//! Goal: the outcome of a call is classified as the protocol defines it: applied, rejected, failed,
//! unknown. A short failure is survived, and an unknown outcome never extends anything (I7).
//! Method: the fail point `failCommand` on findAndModify, a proxy that cuts connections, and a
//! document that another client edits.

use std::sync::Arc;
use std::time::Duration;

use leasehold_testbed::{Daemon, DaemonTimings, ReplicaSet, SharedSet, Stage, Witness, run};
use mongodb::bson::{Document, Uuid, doc};
use tokio::sync::{Mutex, MutexGuard};

use crate::scene::{
    LONG, eventually, operations, renews, shared_stage, stage_on, throughout, token, transitions,
    valid_until_ns,
};

/// A member has one fail point of this name, so the tests run one at a time.
static TURN: Mutex<()> = Mutex::const_new(());
static FAILING: SharedSet = SharedSet::new(ReplicaSet::builder);

/// A set whose primary fails commands on request.
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

    /// Makes the candidate's writes end as `how` describes.
    async fn fail_writes(&self, mode: impl Into<mongodb::bson::Bson>, how: Document) {
        let mut data = doc! { "failCommands": ["findAndModify"], "appName": "leasehold/a" };
        data.extend(how);
        let settings = doc! { "mode": mode.into(), "data": data };
        self.set.fail_command(self.primary, settings).await;
    }

    async fn stop_failing(&self) {
        self.set.clear_fail_point(self.primary).await;
    }
}

/// Makes one renewal fail in this way. Its outcome is unknown, and the leadership continues.
async fn one_failure_is_unknown_and_ridden_out(how: Document) {
    one_failure_is_ridden_out_with(DaemonTimings::DEMO, how).await;
}

/// Does the same with other timings. Returns the candidate's log.
async fn one_failure_is_ridden_out_with(timings: DaemonTimings, how: Document) -> String {
    let failing = Failing::set().await;
    let stage = stage_on(&failing.set).timings(timings);
    let a = stage.candidate("a").start();
    a.wait_leads(LONG).await;
    let witness = Witness::of([&a]);
    let before = operations(&a, "renew", "unknown").await;
    failing.fail_writes(doc! { "times": 1 }, how).await;
    eventually("a renewal has an unknown outcome", async || {
        operations(&a, "renew", "unknown").await > before
    })
    .await;
    renews(&a).await;
    renews(&a).await;
    assert_eq!(witness.leaders(), ["a"], "{}", a.logs());
    assert_eq!(token(&a), Some(1));
    failing.stop_failing().await;
    a.logs()
}

#[test]
fn i7_a_connection_closed_under_a_renewal_makes_it_unknown() {
    run(one_failure_is_unknown_and_ridden_out(
        doc! { "closeConnection": true },
    ));
}

#[test]
fn i7_a_write_concern_that_timed_out_makes_a_renewal_unknown() {
    let error = doc! { "code": 64, "errmsg": "planted", "errInfo": { "wtimeout": true } };
    run(one_failure_is_unknown_and_ridden_out(
        doc! { "writeConcernError": error },
    ));
}

#[test]
fn i7_a_write_concern_that_met_a_shutdown_makes_a_renewal_unknown() {
    // The driver considers the server lost. Since nothing changed there in fact, it learns
    // otherwise only with the next heartbeat, after 10 s. The default timings have room for that.
    let error = doc! { "code": 91, "errmsg": "planted" };
    run(async {
        let how = doc! { "writeConcernError": error };
        let log = one_failure_is_ridden_out_with(DaemonTimings::DEFAULT, how).await;
        assert!(log.contains("the server is shutting down"), "{log}");
    });
}

#[test]
fn i7_a_renewal_blocked_for_longer_than_the_time_out_is_unknown() {
    // The operation_timeout of these timings is 1 s.
    run(one_failure_is_unknown_and_ridden_out(
        doc! { "blockConnection": true, "blockTimeMS": 1_500 },
    ));
}

#[test]
fn i7_a_renewal_that_met_no_primary_is_unknown() {
    run(one_failure_is_unknown_and_ridden_out(
        doc! { "errorCode": 10107 },
    ));
}

#[test]
fn i7_writes_that_are_applied_but_never_acknowledged_extend_nothing_and_grant_nothing() {
    run(async {
        let failing = Failing::set().await;
        let stage = stage_on(&failing.set);
        let a = stage.candidate("a").start();
        a.wait_leads(LONG).await;
        let witness = Witness::of([&a]);
        let before = operations(&a, "renew", "unknown").await;
        let error = doc! { "code": 64, "errmsg": "planted" };
        failing
            .fail_writes("alwaysOn", doc! { "writeConcernError": error })
            .await;
        eventually("a renewal has an unknown outcome", async || {
            operations(&a, "renew", "unknown").await > before
        })
        .await;
        let until = valid_until_ns(&a);
        let revision = stage.stored().get().await.get("revision").cloned();
        eventually("it does not lead any more", async || {
            let now = valid_until_ns(&a);
            assert!(now.is_none() || now == until, "an unknown outcome extended");
            now.is_none()
        })
        .await;
        assert_eq!(transitions(&a, "deadline").await, 1.0);
        assert_ne!(
            stage.stored().get().await.get("revision").cloned(),
            revision
        );
        // A lease duration in which an applied acquisition would show.
        let time = DaemonTimings::SHORT.lease_duration;
        throughout(time, "nobody leads", async || !a.leads()).await;
        failing.stop_failing().await;
        a.wait_leads(LONG).await;
        assert_eq!(witness.reigns().len(), 2);
    });
}

#[test]
fn a_renewal_that_no_server_could_be_found_for_has_failed_and_is_repeated() {
    run(async {
        let stage = shared_stage().await.timings(DaemonTimings::DEMO);
        let proxy = stage.set().proxy();
        let a = behind(&stage, &stage.set().proxied_uri(&proxy)).await;
        let witness = Witness::of([&a]);
        proxy.cut();
        eventually("a renewal has failed", async || {
            operations(&a, "renew", "failed").await >= 1.0
        })
        .await;
        proxy.resume();
        renews(&a).await;
        assert_eq!(witness.leaders(), ["a"]);
        assert_eq!(token(&a), Some(1));
    });
}

#[test]
fn a_renewal_whose_claim_is_gone_from_the_document_is_rejected() {
    run(async {
        let stage = shared_stage().await;
        let a = stage.candidate("a").start();
        a.wait_leads(LONG).await;
        let witness = Witness::of([&a]);
        let stranger = doc! { "holder.claim": Uuid::new(), "revision": Uuid::new() };
        stage.stored().set(stranger).await;
        a.wait_until(|status| status["leader"] == false, LONG).await;
        assert!(operations(&a, "renew", "rejected").await >= 1.0);
        assert_eq!(transitions(&a, "duplicate").await, 0.0);
        assert!(transitions(&a, "rejected").await >= 1.0);
        // The stranger's lease duration has to pass, as for any holder.
        let lost = leasehold_testbed::daemon::boottime_ns();
        a.wait_leads(LONG).await;
        let waited = leasehold_testbed::daemon::boottime_ns() - lost;
        assert!(waited > 2_500_000_000, "took over after {waited} ns");
        assert_eq!(token(&a), Some(2));
        drop(witness);
    });
}

async fn behind(stage: &Stage, uri: &str) -> Daemon {
    let daemon = stage.candidate("a").uri(uri).start();
    daemon.wait_leads(LONG).await;
    daemon
}

#[test]
fn i2_authority_is_counted_from_before_the_send_and_not_from_the_reply() {
    // Every reply is delayed for longer than a renewal takes, and the deadline must not move with
    // it.
    run(async {
        let failing = Failing::set().await;
        let stage = stage_on(&failing.set).timings(DaemonTimings::DEMO);
        let a = stage.candidate("a").start();
        a.wait_leads(LONG).await;
        let blocked = Duration::from_millis(700);
        failing
            .fail_writes(
                "alwaysOn",
                doc! { "blockConnection": true, "blockTimeMS": 700 },
            )
            .await;
        renews(&a).await;
        for _ in 0..3 {
            renews(&a).await;
            let left =
                valid_until_ns(&a).expect("it leads") - leasehold_testbed::daemon::boottime_ns();
            let most = DaemonTimings::DEMO.renew_deadline - blocked;
            assert!(Duration::from_nanos(left) <= most, "{left} ns left");
        }
        failing.stop_failing().await;
    });
}
