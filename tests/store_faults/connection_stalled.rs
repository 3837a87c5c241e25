//! Goal: a leader whose connection hangs reports "not leader" before another candidate leads (I1),
//! and the leader's pending requests do no harm when they arrive late. Method: connect only the
//! leader through a proxy that holds back all traffic.

use leasehold_testbed::{DaemonTimings, LeaderMonitor};

use crate::fixture::{LONG, leader_of, shared_stage, undisturbed};

#[tokio::test]
async fn i1_a_leader_with_a_stalled_connection_says_no_before_another_leads() {
    let stage = shared_stage().await.timings(DaemonTimings::DEMO);
    let (proxy, behind) = stage.proxied();
    let a = behind.candidate("a").leading(LONG).await;
    let (b, c) = (stage.candidate("b").start(), stage.candidate("c").start());
    b.wait_follows("a", LONG).await;
    c.wait_follows("a", LONG).await;
    let monitor = LeaderMonitor::of([&a, &b, &c]);

    proxy.stall();
    let next = leader_of(&[&b, &c]).await;
    assert!(!a.leads());
    let (code, _) = a.http("/leader").await.expect("an answer");
    assert_eq!(code, 503);
    let reigns = monitor.reigns();
    assert!(reigns[0].last_ns < reigns[1].first_ns, "{reigns:?}");

    let claim = stage.stored().claim().await;
    assert!(proxy.held_requests() > 0);
    proxy.resume();
    a.wait_follows(next.identity(), LONG).await;
    // A harmful late write would take effect within a lease duration.
    undisturbed(&stage, &claim, DaemonTimings::DEMO.lease_duration).await;
    assert_eq!(next.token(), Some(2));
    assert_eq!(monitor.leaders(), ["a", next.identity()]);
}
