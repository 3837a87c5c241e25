//! Goal: no decision depends on a wall clock (I9).
//! Method: one daemon an hour ahead, another whose clock jumps, and one mongod an hour ahead that
//! is the primary at first and then steps down.

use std::sync::Arc;

use leasehold_testbed::{DaemonTimings, FakeClock, JumpingClock, ReplicaSet, Witness, run};
use serde_json::Value;

use crate::scene::{LONG, follows, nanos, renews, sent_ns, stage_on, token};

#[test]
fn i9_clocks_that_are_an_hour_off_or_jump_change_no_leader() {
    run(async {
        let ahead = FakeClock::offset("+1h").expect("libfaketime");
        let jumping = JumpingClock::new().expect("libfaketime");
        // The first member is the first primary.
        let set = ReplicaSet::builder().clock(0, &ahead).start().await;
        let set = Arc::new(set);
        let stage = stage_on(&set).timings(DaemonTimings::DEMO);
        let a = stage.candidate("a").clock(&ahead).start();
        a.wait_leads(LONG).await;
        let b = stage.candidate("b").clock(jumping.clock()).start();
        let c = stage.candidate("c").start();
        follows(&b, "a").await;
        follows(&c, "a").await;
        let witness = Witness::of([&a, &b, &c]);

        let seen_before = b.status()["transitions"].clone();
        for offset in ["+1h", "-1h", "+0s", "-30d", "+1s"] {
            jumping.jump(offset);
            // Long enough for a contender to consider the holder expired.
            renews(&a).await;
            renews(&a).await;
        }
        let (old, new) = set.step_down_primary().await;
        assert_ne!(old, new);
        renews(&a).await;
        for offset in ["+1h", "-1h"] {
            jumping.jump(offset);
            renews(&a).await;
        }
        assert_eq!(witness.leaders(), ["a"]);
        assert_eq!(token(&a), Some(1));
        assert_eq!(b.status()["transitions"], seen_before);
    });
}

#[test]
fn i9_a_leader_whose_clock_jumps_keeps_its_deadlines_and_its_successor_waits() {
    run(async {
        let jumping = JumpingClock::new().expect("libfaketime");
        let set = Arc::new(ReplicaSet::builder().members(1).start().await);
        let stage = stage_on(&set);
        let a = stage.candidate("a").clock(jumping.clock()).start();
        a.wait_leads(LONG).await;
        let b = stage.candidate("b").clock(jumping.clock()).start();
        follows(&b, "a").await;
        let witness = Witness::of([&a, &b]);
        jumping.jump("+2h");
        renews(&a).await;
        a.stop();
        // From here on only `b` decides, with a clock that jumps both ways.
        let last = sent_ns(&a, DaemonTimings::SHORT);
        jumping.jump("-2h");
        let leader = |status: &Value| status["leader"] == true;
        b.wait_until(leader, LONG).await;
        let waited = sent_ns(&b, DaemonTimings::SHORT) - last;
        let least = nanos(DaemonTimings::SHORT.lease_duration);
        assert!(waited >= least, "took over after {waited} ns");
        a.cont();
        follows(&a, "b").await;
        assert_eq!(witness.leaders(), ["a", "b"]);
    });
}
