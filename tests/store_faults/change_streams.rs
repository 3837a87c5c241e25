//! Goal: candidates reopen a broken change stream, and an unresponsive stream delays reactions but
//! never causes a takeover. Method: make getMore fail (fail point `failCommand`), step down the
//! primary, and hold back the replies to getMore with a proxy.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_testbed::{Daemon, DaemonTimings, LeaderMonitor, Proxy, ReplicaSet, Stage};
use mongodb::bson::{DateTime, doc};

use crate::fixture::{
    LONG, eventually, leader_of, monitored_pair, pair, set_of_one, shared_stage, stage_on,
    throughout,
};

/// All replies to getMore contain this text, and no other reply does.
const EVENTS: &str = "nextBatch";

/// Index of the replica set's only member, and the application name of `b`.
const OF_B: (usize, &str) = (0, "leasehold/b");

/// Asserts that the stream notifies the follower of a release before any poll.
async fn receives_at_once(leader: &Daemon, follower: &Daemon) {
    let asked = Instant::now();
    leader.term();
    follower.wait_leads(LONG).await;
    let took = asked.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
}

async fn pair_with_proxy(leader: &str, follower: &str) -> (Stage, Daemon, Daemon, Proxy) {
    let stage = shared_stage().await.timings(DaemonTimings::DEMO);
    let first = stage.candidate(leader).leading(LONG).await;
    let (proxy, behind) = stage.proxied();
    let second = behind.candidate(follower).following(leader, LONG).await;
    second.wait_stream().await;
    (stage, first, second, proxy)
}

#[tokio::test]
async fn a_change_stream_whose_getmore_fails_is_opened_again() {
    let set = set_of_one().await;
    let stage = stage_on(&set).timings(DaemonTimings::DEMO);
    let (a, b, monitor) = monitored_pair(&stage).await;
    b.wait_stream().await;
    for failure in [
        doc! { "closeConnection": true },
        // CursorKilled: the driver does not resume the stream by itself.
        doc! { "errorCode": 237 },
    ] {
        set.fail_commands_of(OF_B, &["getMore"], doc! { "times": 1 }, failure)
            .await;
        // The driver sends the next getMore after the next event.
        a.wait_renewal(LONG).await;
        a.wait_renewal(LONG).await;
        b.wait_stream().await;
    }
    for line in ["no change stream, polling", "change stream reopened"] {
        b.wait_logged(line, LONG).await;
    }
    b.wait_stream().await;
    receives_at_once(&a, &b).await;
    assert_eq!(monitor.leaders(), ["a", "b"]);
}

#[tokio::test]
async fn a_change_stream_outlives_a_step_down_of_the_primary() {
    let set = Arc::new(ReplicaSet::start().await);
    let stage = stage_on(&set).timings(DaemonTimings::DEFAULT);
    let (a, b, monitor) = monitored_pair(&stage).await;
    b.wait_stream().await;
    set.step_down_primary().await;
    a.wait_renewal(LONG).await;
    // The leader's own stream is open again too.
    b.wait_stream().await;
    a.wait_stream().await;
    receives_at_once(&a, &b).await;
    assert_eq!(monitor.leaders(), ["a", "b"]);
}

#[tokio::test]
async fn an_unresponsive_stream_costs_latency_and_no_takeover() {
    let (_stage, a, b, proxy) = pair_with_proxy("a", "b").await;
    let monitor = LeaderMonitor::of([&a, &b]);
    proxy.hold_replies_containing(EVENTS);
    a.wait_renewal(LONG).await;
    a.wait_renewal(LONG).await;
    a.kill();
    b.wait_leads(LONG).await;
    assert_eq!(b.token(), Some(2));
    assert_eq!(monitor.leaders(), ["a", "b"]);
    proxy.resume();
    b.wait_stream().await;
}

#[tokio::test]
async fn i8_an_unresponsive_stream_never_causes_a_takeover_from_a_live_leader() {
    let (_stage, a, b, proxy) = pair_with_proxy("a", "b").await;
    let monitor = LeaderMonitor::of([&a, &b]);
    proxy.hold_replies_containing(EVENTS);
    // `b` sees no renewals and considers the holder expired, so only the compare-and-set prevents a
    // takeover.
    let end = Instant::now() + DaemonTimings::DEMO.lease_duration * 2;
    while Instant::now() < end {
        a.wait_renewal(LONG).await;
    }
    assert_eq!(monitor.leaders(), ["a"]);
    assert_eq!(a.token(), Some(1));
    proxy.resume();
    b.wait_stream().await;
}

#[tokio::test]
async fn i2_an_event_that_shows_its_own_claim_gives_a_candidate_no_authority() {
    let (stage, first, a, proxy) = pair_with_proxy("first", "a").await;
    // The proxy passes events but holds back acknowledgements.
    proxy.hold_replies_containing("lastErrorObject");
    let stored = stage.stored();
    let request = doc! { "kind": "step_down", "token": 1_i64, "at": DateTime::now() };
    stored.set(doc! { "request": request }).await;
    eventually("its acquisition is stored", async || {
        stored.holder().await.as_deref() == Some("a")
    })
    .await;
    let time = DaemonTimings::DEMO.renew_deadline;
    throughout(time, "the candidate does not lead", async || !a.leads()).await;
    proxy.resume();
    let leader = leader_of(&[&a, &first]).await;
    assert!(leader.token() >= Some(2));
}

#[tokio::test]
async fn i3_a_release_event_after_a_gap_gives_no_used_token() {
    let set = set_of_one().await;
    let stage = stage_on(&set).timings(DaemonTimings::DEFAULT);
    let (a, b) = pair(&stage).await;
    b.wait_stream().await;
    // Both the stream and the reads of `b` fail.
    let reads = ["getMore", "aggregate", "find"];
    let lost = doc! { "errorCode": 237 };
    set.fail_commands_of(OF_B, &reads, "alwaysOn", lost).await;
    a.wait_renewal(LONG).await;
    eventually("close the change stream", async || {
        b.metric("leasehold_watch_connected").await == 0.0
    })
    .await;
    a.term_and_exit(LONG).await;
    let c = stage.candidate("c").leading(LONG).await;
    assert_eq!((c.token(), b.token()), (Some(2), None));
    // Let the stream of `b` reopen, but delay the read that must follow.
    let slow = doc! { "blockConnection": true, "blockTimeMS": 2_000 };
    set.fail_commands_of(OF_B, &["find"], "alwaysOn", slow)
        .await;
    b.wait_stream().await;
    assert_eq!(c.term_and_exit(LONG).await, 0);
    b.wait_leads(LONG).await;
    assert_eq!(b.token(), Some(3), "{}", b.logs());
}
