//! Goal: no decision depends on a wall clock (I9). Method: set one daemon's clock an hour ahead,
//! make another daemon's clock jump, and set one mongod's clock an hour ahead. This mongod is the
//! first primary and later steps down.

use std::sync::Arc;

use leasehold_testbed::{DaemonTimings, FakeClock, JumpingClock, LeaderMonitor, ReplicaSet};
use serde_json::Value;

use crate::fixture::{LONG, SURVIVING, set_of_one, stage_on};

#[tokio::test]
async fn i9_clocks_that_are_an_hour_off_or_jump_change_no_leader() {
    let ahead = FakeClock::offset("+1h").expect("libfaketime");
    let jumping = JumpingClock::new().expect("libfaketime");
    // Set the clock of the first member, which becomes the first primary.
    let set = ReplicaSet::builder().clock(0, &ahead).start().await;
    let set = Arc::new(set);
    let stage = stage_on(&set).timings(SURVIVING);
    let a = stage.candidate("a").clock(&ahead).leading(LONG).await;
    let b = stage.candidate("b").clock(jumping.clock()).start();
    let c = stage.candidate("c").start();
    b.wait_follows("a", LONG).await;
    c.wait_follows("a", LONG).await;
    let monitor = LeaderMonitor::of([&a, &b, &c]);

    let seen_before = b.status()["transitions"].clone();
    for offset in ["+1h", "-1h", "+0s", "-30d", "+1s"] {
        jumping.jump(offset);
        // A contender that used its wall clock would now consider the holder expired.
        a.wait_renewal(LONG).await;
        a.wait_renewal(LONG).await;
    }
    let (old, new) = set.step_down_primary().await;
    assert_ne!(old, new);
    a.wait_renewal(LONG).await;
    for offset in ["+1h", "-1h"] {
        jumping.jump(offset);
        a.wait_renewal(LONG).await;
    }
    assert_eq!(monitor.leaders(), ["a"]);
    assert_eq!(a.token(), Some(1));
    assert_eq!(b.status()["transitions"], seen_before);
}

#[tokio::test]
async fn i9_a_leader_whose_clock_jumps_keeps_its_deadlines_and_its_successor_waits() {
    let jumping = JumpingClock::new().expect("libfaketime");
    let set = set_of_one().await;
    let stage = stage_on(&set);
    let a = stage
        .candidate("a")
        .clock(jumping.clock())
        .leading(LONG)
        .await;
    let b = stage
        .candidate("b")
        .clock(jumping.clock())
        .following("a", LONG)
        .await;
    let monitor = LeaderMonitor::of([&a, &b]);
    jumping.jump("+2h");
    a.wait_renewal(LONG).await;
    a.stop();
    // From here on, only `b` contends, and its clock jumps in both directions.
    let last = DaemonTimings::SHORT.sent_ns(&a.status());
    jumping.jump("-2h");
    let leader = |status: &Value| status["leader"] == true;
    b.wait_until(leader, LONG).await;
    DaemonTimings::SHORT.assert_waited_since(last, &b.status());
    a.cont();
    a.wait_follows("b", LONG).await;
    assert_eq!(monitor.leaders(), ["a", "b"]);
}
