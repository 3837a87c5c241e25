//! Goal: an operator's changes to the document take effect within a second with change streams, and
//! otherwise at the next renewal. The leader ignores a request that names another token. The
//! history records why each leadership ended. Method: set `paused` and `request` as the commands
//! do, without changing the revision.

use std::time::{Duration, Instant};

use leasehold_testbed::daemon::boottime_ns;
use leasehold_testbed::{Daemon, DaemonTimings, LeaderMonitor, Stage};
use mongodb::bson::{Bson, DateTime, Document, doc};
use serde_json::Value;

use crate::fixture::{
    LONG, SURVIVING, eventually, leader_of, monitored_pair, pair, shared_stage, throughout,
    without_change_stream,
};

/// The design limit is 1 s, and the measured time is about 10 ms. The test allows another second
/// for a busy machine.
const OBEYED_MAX: Duration = Duration::from_secs(2);

fn request(kind: &str, token: i64) -> Document {
    doc! { "request": { "kind": kind, "token": token, "at": DateTime::now(), "by": "test" } }
}

fn transfer(token: i64, to: &str) -> Document {
    doc! { "request": {
        "kind": "transfer", "token": token, "to": to, "reserve_ms": 5_000, "at": DateTime::now(),
    } }
}

/// Returns a stage with renewals every three seconds, so only the stream can explain a faster
/// reaction.
async fn slow_stage() -> Stage {
    shared_stage().await.timings(DaemonTimings::DEFAULT)
}

#[tokio::test]
async fn a_step_down_request_is_carried_out_within_a_second_and_another_leads() {
    let stage = slow_stage().await;
    let (a, b, monitor) = monitored_pair(&stage).await;
    a.wait_renewal(LONG).await;
    let asked = Instant::now();
    stage.stored().set(request("step_down", 1)).await;
    b.wait_leads(LONG).await;
    assert!(asked.elapsed() < OBEYED_MAX, "{:?}", asked.elapsed());
    a.wait_follows("b", LONG).await;
    assert_eq!(stage.stored().reasons().await, ["requested"]);
    let document = stage.stored().get().await;
    assert_eq!(document.get("request"), Some(&Bson::Null));
    assert_eq!(monitor.leaders(), ["a", "b"]);
}

#[tokio::test]
async fn without_a_stream_a_step_down_request_is_carried_out_at_the_next_renewal() {
    let stage = shared_stage().await.timings(DaemonTimings::DEMO);
    let (_proxy, polling) = without_change_stream(&stage);
    let a = polling.candidate("a").leading(LONG).await;
    let b = stage.candidate("b").following("a", LONG).await;
    let monitor = LeaderMonitor::of([&a, &b]);
    stage.stored().set(request("step_down", 1)).await;
    b.wait_leads(LONG).await;
    assert_eq!(stage.stored().reasons().await, ["requested"]);
    assert_eq!(monitor.leaders(), ["a", "b"]);
}

#[tokio::test]
async fn a_candidate_that_stepped_down_on_request_stays_out_for_a_lease_duration() {
    let stage = shared_stage().await;
    let a = stage.candidate("a").leading(LONG).await;
    let monitor = LeaderMonitor::of([&a]);
    let asked = boottime_ns();
    stage.stored().set(request("step_down", 1)).await;
    a.wait_role("follower", LONG).await;
    a.wait_leads(LONG).await;
    DaemonTimings::SHORT.assert_waited_since(asked, &a.status());
    assert_eq!(a.token(), Some(2));
    drop(monitor);
}

#[tokio::test]
async fn a_transfer_reaches_the_named_follower_and_no_other() {
    let stage = slow_stage().await;
    let (a, b) = pair(&stage).await;
    let c = stage.candidate("c").following("a", LONG).await;
    let monitor = LeaderMonitor::of([&a, &b, &c]);
    for (number, (from, to)) in [(&a, &c), (&c, &b), (&b, &a)].into_iter().enumerate() {
        let token = i64::try_from(number).expect("few") + 1;
        let asked = Instant::now();
        stage.stored().set(transfer(token, to.identity())).await;
        to.wait_leads(LONG).await;
        assert!(asked.elapsed() < OBEYED_MAX, "{:?}", asked.elapsed());
        // Sample now, so that the monitor does not miss a short leadership.
        monitor.reigns();
        from.wait_follows(to.identity(), LONG).await;
    }
    assert_eq!(monitor.leaders(), ["a", "c", "b", "a"]);
    let reasons = stage.stored().reasons().await;
    assert_eq!(reasons, ["transferred", "transferred", "transferred"]);
    let document = stage.stored().get().await;
    assert_eq!(document.get("reserved_for"), Some(&Bson::Null));
}

#[tokio::test]
async fn a_transfer_to_an_absent_candidate_reserves_the_lease_for_a_limited_time() {
    let stage = shared_stage().await;
    let (a, b, monitor) = monitored_pair(&stage).await;
    let mut request = transfer(1, "nobody");
    let inner = request.get_document_mut("request").expect("just made");
    inner.insert("reserve_ms", 1_500);
    let asked = Instant::now();
    stage.stored().set(request).await;
    let next = leader_of_token(&[&a, &b], 2).await;
    assert!(asked.elapsed() >= Duration::from_millis(1_400));
    assert_eq!(next.identity(), "b", "the other candidate leads");
    assert_eq!(monitor.leaders(), ["a", "b"]);
}

#[tokio::test]
async fn i10_no_candidate_leads_while_the_lease_is_paused_and_one_does_afterwards() {
    let stage = slow_stage().await;
    let (a, b, monitor) = monitored_pair(&stage).await;
    a.wait_renewal(LONG).await;
    let asked = Instant::now();
    stage.stored().set(doc! { "paused": true }).await;
    a.wait_not_leader(LONG).await;
    assert!(asked.elapsed() < OBEYED_MAX, "{:?}", asked.elapsed());
    let paused = |status: &Value| status["role"] == "paused";
    for daemon in [&a, &b] {
        daemon.wait_until(paused, LONG).await;
    }
    eventually("the lease is released", async || {
        stage.stored().holder().await.is_none()
    })
    .await;
    let time = Duration::from_secs(2);
    throughout(time, "no candidate leads", async || {
        !a.leads() && !b.leads()
    })
    .await;
    let late = stage.candidate("late").start();
    late.wait_until(paused, LONG).await;
    stage.stored().set(doc! { "paused": false }).await;
    let next = leader_of(&[&a, &b, &late]).await;
    assert_eq!(next.token(), Some(2));
    assert_eq!(stage.stored().reasons().await, ["paused"]);
    assert_eq!(monitor.reigns()[0].identity, "a");
}

#[tokio::test]
async fn requests_that_name_another_token_or_make_no_sense_are_ignored() {
    let stage = shared_stage().await.timings(SURVIVING);
    let (a, _b, monitor) = monitored_pair(&stage).await;
    for nonsense in [
        request("step_down", 0),
        request("step_down", 2),
        transfer(7, "b"),
        request("dance", 1),
        request("transfer", 1),
        transfer(1, "a"),
        doc! { "request": 1 },
        doc! { "request": { "kind": "step_down", "token": "1" } },
    ] {
        stage.stored().set(nonsense).await;
        // After two renewals, the leader has received the request both from the stream and in a
        // reply.
        a.wait_renewal(LONG).await;
        a.wait_renewal(LONG).await;
    }
    assert_eq!(monitor.leaders(), ["a"]);
    assert_eq!(a.token(), Some(1));
}

#[tokio::test]
async fn a_request_repeated_indefinitely_does_not_delay_the_takeover_of_an_expired_leader() {
    let stage = shared_stage().await;
    let (a, b, monitor) = monitored_pair(&stage).await;
    a.kill();
    eventually("the follower leads", async || {
        // Repeat the request, as a cron job would.
        stage.stored().set(request("step_down", 1)).await;
        b.leads()
    })
    .await;
    assert_eq!(b.token(), Some(2));
    assert_eq!(monitor.leaders(), ["a", "b"]);
}

async fn leader_of_token<'a>(daemons: &[&'a Daemon], wanted: i64) -> &'a Daemon {
    let mut found = None;
    eventually("a candidate leads with that token", async || {
        let leads = |daemon: &&&Daemon| daemon.leads() && daemon.token() == Some(wanted);
        found = daemons.iter().find(leads).copied();
        found.is_some()
    })
    .await;
    found.expect("just found")
}
