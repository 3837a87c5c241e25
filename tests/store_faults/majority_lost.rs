//! Goal: without a majority, the leader reports "not leader" everywhere by its deadline (I4), and
//! an unacknowledged write never extends its authority (I7). A candidate leads once the majority is
//! back (I10). Method: kill or freeze two of three members, with short timings.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_testbed::daemon::boottime_ns;
use leasehold_testbed::{Daemon, DaemonTimings, LeaderMonitor, ReplicaSet};

use crate::fixture::{LONG, SURVIVING, leader_of, pair, stage_on, transitioned};

/// Waits for the deadline in the status file, then checks that the daemon reports "not leader"
/// everywhere.
async fn says_no_by_its_deadline(daemon: &Daemon) {
    let begin = Instant::now();
    while let Some(until) = daemon.valid_until_ns() {
        if boottime_ns() >= until {
            break;
        }
        assert!(begin.elapsed() < LONG, "the leader still renews");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert!(!daemon.leads());
    let (code, body) = daemon.http("/leader").await.expect("an answer");
    assert_eq!(code, 503, "{body}");
    assert_eq!(daemon.metric("leasehold_leader").await, 0.0);
    assert_eq!(daemon.metric("leasehold_authority_seconds").await, 0.0);
}

async fn stage_of_three(timings: DaemonTimings) -> (Arc<ReplicaSet>, Vec<usize>, Daemon, Daemon) {
    let set = Arc::new(ReplicaSet::start().await);
    let (a, b) = pair(&stage_on(&set).timings(timings)).await;
    let primary = set.primary().await;
    let secondaries = (0..set.member_count()).filter(|n| *n != primary).collect();
    (set, secondaries, a, b)
}

/// Asserts that a candidate leads again, with a higher token.
async fn one_leads_again(monitor: &LeaderMonitor, daemons: &[&Daemon]) {
    let again = leader_of(daemons).await;
    assert!(again.token() > Some(1));
    again.wait_renewal(LONG).await;
    // The first candidate may lose the lease again while the members catch up.
    assert!(monitor.reigns().len() >= 2);
}

#[tokio::test]
async fn i4_with_two_of_three_members_killed_the_leader_says_no_by_its_deadline() {
    let (set, secondaries, a, b) = stage_of_three(DaemonTimings::SHORT).await;
    let monitor = LeaderMonitor::of([&a, &b]);
    secondaries.iter().for_each(|member| set.kill(*member));
    says_no_by_its_deadline(&a).await;
    transitioned(&a, "deadline", 1).await;
    for member in secondaries {
        set.restart(member).await;
    }
    one_leads_again(&monitor, &[&a, &b]).await;
}

#[tokio::test]
async fn i10_with_two_of_three_members_frozen_the_lease_waits_until_they_go_on() {
    let (set, secondaries, a, b) = stage_of_three(DaemonTimings::SHORT).await;
    let monitor = LeaderMonitor::of([&a, &b]);
    secondaries.iter().for_each(|member| set.stop(*member));
    says_no_by_its_deadline(&a).await;
    transitioned(&a, "deadline", 1).await;
    assert!(a.operations("renew", "unknown").await >= 1.0);
    secondaries.iter().for_each(|member| set.cont(*member));
    one_leads_again(&monitor, &[&a, &b]).await;
}

#[tokio::test]
async fn i7_a_write_concern_timeout_is_unknown_and_a_short_timeout_is_survived() {
    let (set, secondaries, a, b) = stage_of_three(SURVIVING).await;
    let monitor = LeaderMonitor::of([&a, &b]);
    let before = a.operations("renew", "unknown").await;
    secondaries.iter().for_each(|member| set.stop(*member));
    a.wait_operations("renew", "unknown", before + 1.0).await;
    secondaries.iter().for_each(|member| set.cont(*member));
    a.wait_renewal(LONG).await;
    assert_eq!(monitor.leaders(), ["a"]);
    assert_eq!(a.token(), Some(1));
}
