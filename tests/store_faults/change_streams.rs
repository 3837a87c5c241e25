//! Goal: a dropped change stream is reopened, and an unresponsive one costs latency but never
//! causes a takeover.
//! Method: the fail point `failCommand` on getMore, a step-down of the primary, and a proxy that
//! holds back the replies to getMore.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_testbed::{Daemon, DaemonTimings, ReplicaSet, Witness, run};
use mongodb::bson::{DateTime, Document, doc};

use crate::scene::{
    LONG, eventually, follows, leader_of, pair, renews, said, shared_stage, stage_on, token,
};

const CONNECTED: &str = "leasehold_watch_connected";

async fn connected(daemon: &Daemon, wanted: f64) {
    eventually("the change stream is as wanted", async || {
        daemon.metric(CONNECTED).await == wanted
    })
    .await;
}

/// Asserts that a release reaches the follower through its stream, before any poll could.
async fn hears_at_once(leader: &Daemon, follower: &Daemon) {
    let asked = Instant::now();
    leader.term();
    follower.wait_leads(LONG).await;
    assert!(
        asked.elapsed() < Duration::from_secs(2),
        "{:?}",
        asked.elapsed()
    );
}

#[test]
fn a_change_stream_whose_getmore_fails_is_opened_again() {
    run(async {
        let set = Arc::new(ReplicaSet::builder().members(1).start().await);
        let stage = stage_on(&set).timings(DaemonTimings::DEMO);
        let (a, b) = pair(&stage).await;
        let witness = Witness::of([&a, &b]);
        connected(&b, 1.0).await;
        for failure in [
            doc! { "closeConnection": true },
            // After CursorKilled the driver does not resume by itself.
            doc! { "errorCode": 237 },
        ] {
            let mut data = doc! { "failCommands": ["getMore"], "appName": "leasehold/b" };
            data.extend(failure);
            set.fail_command(0, doc! { "mode": { "times": 1 }, "data": data })
                .await;
            // The next getMore comes with the next event.
            renews(&a).await;
            renews(&a).await;
            connected(&b, 1.0).await;
        }
        for line in ["no change stream, polling", "change stream reopened"] {
            eventually(line, async || said(&b, line) >= 1).await;
        }
        connected(&b, 1.0).await;
        hears_at_once(&a, &b).await;
        assert_eq!(witness.leaders(), ["a", "b"]);
    });
}

#[test]
fn a_change_stream_outlives_a_step_down_of_the_primary() {
    run(async {
        let set = Arc::new(ReplicaSet::start().await);
        let stage = stage_on(&set).timings(DaemonTimings::DEFAULT);
        let (a, b) = pair(&stage).await;
        let witness = Witness::of([&a, &b]);
        connected(&b, 1.0).await;
        set.step_down_primary().await;
        renews(&a).await;
        connected(&b, 1.0).await;
        // The leader's own stream is open again as well.
        eventually("the leader's too", async || {
            a.metric(CONNECTED).await == 1.0
        })
        .await;
        hears_at_once(&a, &b).await;
        assert_eq!(witness.leaders(), ["a", "b"]);
    });
}

#[test]
fn a_stream_that_falls_silent_costs_latency_and_no_takeover() {
    run(async {
        let stage = shared_stage().await;
        let a = stage.candidate("a").start();
        a.wait_leads(LONG).await;
        let proxy = stage.set().proxy();
        let uri = stage.set().proxied_uri(&proxy);
        let b = stage.candidate("b").uri(&uri).start();
        follows(&b, "a").await;
        connected(&b, 1.0).await;
        let witness = Witness::of([&a, &b]);
        // This text is in each reply to getMore, and in no other reply.
        proxy.hold_replies_containing("nextBatch");
        renews(&a).await;
        renews(&a).await;
        a.kill();
        b.wait_leads(LONG).await;
        assert_eq!(token(&b), Some(2));
        assert_eq!(witness.leaders(), ["a", "b"]);
        proxy.resume();
        connected(&b, 1.0).await;
    });
}

#[test]
fn i8_a_silent_stream_never_makes_a_follower_take_over_from_a_living_leader() {
    run(async {
        let stage = shared_stage().await;
        let a = stage.candidate("a").start();
        a.wait_leads(LONG).await;
        let proxy = stage.set().proxy();
        let uri = stage.set().proxied_uri(&proxy);
        let b = stage.candidate("b").uri(&uri).start();
        follows(&b, "a").await;
        connected(&b, 1.0).await;
        let witness = Witness::of([&a, &b]);
        proxy.hold_replies_containing("nextBatch");
        // `b` sees no renewal and considers the holder expired, so its compare-and-set has to fail.
        let end = Instant::now() + DaemonTimings::SHORT.lease_duration * 3;
        while Instant::now() < end {
            renews(&a).await;
        }
        assert_eq!(witness.leaders(), ["a"]);
        assert_eq!(token(&a), Some(1));
        proxy.resume();
        connected(&b, 1.0).await;
    });
}

#[test]
fn i2_an_event_that_shows_its_own_claim_gives_a_candidate_no_authority() {
    run(async {
        let stage = shared_stage().await;
        let first = stage.candidate("first").start();
        first.wait_leads(LONG).await;
        let proxy = stage.set().proxy();
        let uri = stage.set().proxied_uri(&proxy);
        let a = stage.candidate("a").uri(&uri).start();
        follows(&a, "first").await;
        connected(&a, 1.0).await;
        // Events pass, acknowledgements do not.
        proxy.hold_replies_containing("lastErrorObject");
        stage
            .stored()
            .set(doc! { "request": { "kind": "step_down", "token": 1_i64, "at": DateTime::now() } })
            .await;
        let stored = stage.stored();
        eventually("its acquisition is stored", async || {
            stored.holder().await.as_deref() == Some("a")
        })
        .await;
        let time = DaemonTimings::SHORT.renew_deadline;
        crate::scene::throughout(time, "it does not lead", async || !a.leads()).await;
        proxy.resume();
        let leader = leader_of(&[&a, &first]).await;
        assert!(token(leader) >= Some(2));
    });
}

#[test]
fn i3_a_release_that_is_heard_after_a_gap_gives_no_token_that_was_used() {
    run(async {
        let set = Arc::new(ReplicaSet::builder().members(1).start().await);
        let stage = stage_on(&set).timings(DaemonTimings::DEFAULT);
        let (a, b) = pair(&stage).await;
        connected(&b, 1.0).await;
        let of_b = |commands: &[&str], what: Document| {
            let mut data = doc! { "failCommands": commands, "appName": "leasehold/b" };
            data.extend(what);
            doc! { "mode": "alwaysOn", "data": data }
        };
        // Neither the stream nor a read of `b` gets through.
        let blind = of_b(&["getMore", "aggregate", "find"], doc! { "errorCode": 237 });
        set.fail_command(0, blind).await;
        renews(&a).await;
        connected(&b, 0.0).await;
        a.term();
        a.wait_exit(LONG).await;
        let c = stage.candidate("c").start();
        c.wait_leads(LONG).await;
        assert_eq!((token(&c), token(&b)), (Some(2), None));
        // The stream of `b` is open again, and the read that follows takes a while.
        let slow = of_b(
            &["find"],
            doc! { "blockConnection": true, "blockTimeMS": 2_000 },
        );
        set.fail_command(0, slow).await;
        connected(&b, 1.0).await;
        c.term();
        assert_eq!(c.wait_exit(LONG).await, 0);
        b.wait_leads(LONG).await;
        assert_eq!(token(&b), Some(3), "{}", b.logs());
    });
}
