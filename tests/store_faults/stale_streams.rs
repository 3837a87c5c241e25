//! Goal: followers do not trust a stale change stream, even if the stream still returns replies, so
//! followers notice changes in MongoDB within the bound. Method: make the primary step down while
//! cursors are open on it, and then lock this member (`fsyncLock`, as for a backup). A locked
//! member answers each getMore, but no longer applies writes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_testbed::wait::within;
use leasehold_testbed::{Daemon, DaemonTimings, LeaderMonitor, ReplicaSet};
use mongodb::bson::doc;

use crate::fixture::{LONG, leader_of, pair, stage_on};

/// The protocol's bound on a takeover after the holder's last write, plus a second for a busy
/// machine.
const BOUND: Duration = Duration::from_secs(6 + 2 * (1 + 1) + 1);

#[tokio::test]
async fn i10_followers_whose_streams_stayed_on_a_locked_member_act_within_the_bound() {
    let set = Arc::new(ReplicaSet::start().await);
    let stage = stage_on(&set).timings(DaemonTimings::DEMO);
    let (a, b) = pair(&stage).await;
    a.wait_stream().await;
    b.wait_stream().await;
    let monitor = LeaderMonitor::of([&a, &b]);
    let (old, _) = set.step_down_primary().await;
    set.command(old, doc! { "fsync": 1, "lock": true })
        .await
        .expect("lock the member");
    // The third member may sync from the locked member for most of a minute. During this time no
    // majority acknowledges writes, so the leadership may end.
    let renewed = |daemon: &&Daemon| daemon.valid_until_ns();
    let before = [&a, &b].iter().filter_map(renewed).max();
    within(2 * LONG, "a renewal", async || {
        [&a, &b].iter().filter_map(renewed).max() > before
    })
    .await;

    stage.stored().set(doc! { "paused": true }).await;
    for daemon in [&a, &b] {
        daemon.wait_role("paused", LONG).await;
    }
    stage.stored().set(doc! { "paused": false }).await;
    let resumed = Instant::now();
    let leader = leader_of(&[&a, &b]).await;
    assert!(resumed.elapsed() < BOUND, "{:?}", resumed.elapsed());

    let other = if leader.identity() == "a" { &b } else { &a };
    leader.wait_renewal(LONG).await;
    leader.kill();
    let killed = Instant::now();
    other.wait_leads(LONG).await;
    assert!(killed.elapsed() < BOUND, "{:?}", killed.elapsed());
    assert!(monitor.leaders().len() >= 3);
}
