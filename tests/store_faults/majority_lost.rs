//! Goal: without a majority the leader reports "not leader" by its deadline on every surface (I4),
//! an unacknowledged write never extends its authority (I7), and a candidate leads when the
//! majority is back (I10).
//! Method: two of three members killed, or frozen, with short timings.

use std::sync::Arc;
use std::time::Duration;

use leasehold_testbed::daemon::boottime_ns;
use leasehold_testbed::{Daemon, DaemonTimings, ReplicaSet, Witness, run};

use crate::scene::{
    eventually, leader_of, operations, pair, renews, stage_on, token, transitioned, valid_until_ns,
};

/// Waits for the deadline in the status file, then checks all surfaces.
async fn says_no_by_its_deadline(daemon: &Daemon) {
    while let Some(until) = valid_until_ns(daemon) {
        if boottime_ns() >= until {
            break;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert!(!daemon.leads());
    let (code, body) = daemon.http("/leader").await.expect("an answer");
    assert_eq!(code, 503, "{body}");
    assert_eq!(daemon.metric("leasehold_leader").await, 0.0);
    assert_eq!(daemon.metric("leasehold_authority_seconds").await, 0.0);
}

async fn secondaries(set: &ReplicaSet) -> Vec<usize> {
    let primary = set.primary().await;
    (0..set.member_count()).filter(|n| *n != primary).collect()
}

#[test]
fn i4_with_two_of_three_members_killed_the_leader_says_no_by_its_deadline() {
    run(async {
        let set = Arc::new(ReplicaSet::start().await);
        let (a, b) = pair(&stage_on(&set)).await;
        let witness = Witness::of([&a, &b]);
        let secondaries = secondaries(&set).await;
        secondaries.iter().for_each(|member| set.kill(*member));
        says_no_by_its_deadline(&a).await;
        transitioned(&a, "deadline", 1).await;
        for member in secondaries {
            set.restart(member).await;
        }
        let again = leader_of(&[&a, &b]).await;
        assert!(token(again) > Some(1));
        renews(again).await;
        assert_eq!(witness.reigns().len(), 2);
    });
}

#[test]
fn i10_with_two_of_three_members_frozen_the_lease_waits_until_they_go_on() {
    run(async {
        let set = Arc::new(ReplicaSet::start().await);
        let (a, b) = pair(&stage_on(&set)).await;
        let witness = Witness::of([&a, &b]);
        let secondaries = secondaries(&set).await;
        secondaries.iter().for_each(|member| set.stop(*member));
        says_no_by_its_deadline(&a).await;
        transitioned(&a, "deadline", 1).await;
        assert!(operations(&a, "renew", "unknown").await >= 1.0);
        secondaries.iter().for_each(|member| set.cont(*member));
        let again = leader_of(&[&a, &b]).await;
        assert!(token(again) > Some(1));
        renews(again).await;
        assert_eq!(witness.reigns().len(), 2);
    });
}

#[test]
fn i7_a_write_concern_that_times_out_is_unknown_and_a_short_one_is_ridden_out() {
    run(async {
        let set = Arc::new(ReplicaSet::start().await);
        let (a, b) = pair(&stage_on(&set).timings(DaemonTimings::DEMO)).await;
        let witness = Witness::of([&a, &b]);
        let before = operations(&a, "renew", "unknown").await;
        let secondaries = secondaries(&set).await;
        secondaries.iter().for_each(|member| set.stop(*member));
        eventually("a renewal has an unknown outcome", async || {
            operations(&a, "renew", "unknown").await > before
        })
        .await;
        secondaries.iter().for_each(|member| set.cont(*member));
        renews(&a).await;
        assert_eq!(witness.leaders(), ["a"]);
        assert_eq!(token(&a), Some(1));
    });
}
