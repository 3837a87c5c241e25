//! Goal: with default timings, a leader keeps its leadership during a MongoDB election with default
//! settings. With shorter timings (lease 15 s, deadline 10 s, interval 2 s), the leader loses its
//! leadership, and a candidate leads again. Method: kill, freeze or step down the primary of
//! replica sets with an election timeout of 10 s.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_testbed::{DaemonTimings, LeaderMonitor, ReplicaSet};
use mongodb::bson::doc;

use crate::fixture::{LONG, POLL, leader_of, pair, stage_on, transitioned};

async fn default_set() -> Arc<ReplicaSet> {
    Arc::new(ReplicaSet::builder().default_election().start().await)
}

#[tokio::test]
async fn i1_killing_the_primary_ends_a_15_10_2_leadership_but_not_a_default_leadership() {
    let set = default_set().await;
    let defaults = stage_on(&set).timings(DaemonTimings::DEFAULT);
    let (a, b) = pair(&defaults).await;
    let fast = stage_on(&set).timings(DaemonTimings::KUBERNETES);
    let (c, d) = pair(&fast).await;
    let of_defaults = LeaderMonitor::of([&a, &b]);
    let of_fast = LeaderMonitor::of([&c, &d]);

    let old = set.primary().await;
    set.kill(old);
    let kept = survivable(writes_again(&set, old).await);
    // The candidate may already lead again.
    transitioned(&c, "deadline", 1).await;
    let again = leader_of(&[&c, &d]).await;
    assert_eq!(again.token(), Some(2));
    assert_eq!(of_fast.reigns().len(), 2);

    leader_of(&[&a, &b]).await.wait_renewal(LONG).await;
    if kept {
        assert_eq!(of_defaults.leaders(), ["a"]);
        assert_eq!(a.token(), Some(1));
    }
}

/// Returns true if a leader with default timings can survive this time without writes. Otherwise
/// prints that this case is skipped.
#[allow(clippy::print_stderr, reason = "report a case that cannot be tested")]
fn survivable(without_writes: Duration) -> bool {
    let timings = DaemonTimings::DEFAULT;
    // The last renewal may be up to an interval before the gap, and the next renewal up to a retry
    // interval after the gap.
    let allowed = timings.renew_deadline - timings.renew_interval - timings.retry_interval;
    if without_writes >= allowed {
        eprintln!("MongoDB accepted no write for {without_writes:?}: checking only I1");
    }
    without_writes < allowed
}

/// Waits until a majority accepts writes again after the primary `old` has stopped. Returns the
/// elapsed time.
async fn writes_again(set: &ReplicaSet, old: usize) -> Duration {
    let begun = Instant::now();
    let others = || (0..set.member_count()).filter(|index| *index != old);
    let write = doc! {
        "insert": "writes", "documents": [{}], "writeConcern": { "w": "majority" },
    };
    // A member that is not primary refuses the write immediately. The primary answers once a
    // majority has the write.
    for index in others().cycle() {
        if set.command(index, write.clone()).await.is_ok() {
            break;
        }
        assert!(begun.elapsed() < LONG, "no member accepts a write");
        tokio::time::sleep(POLL).await;
    }
    begun.elapsed()
}

/// The assertion depends on the measured time without writes, because a majority may acknowledge no
/// write for up to 18 s after the primary freezes. A new primary is elected after 12 s, and the
/// remaining secondary waits a few more seconds for its old sync source.
#[tokio::test]
async fn freezing_the_primary_does_not_end_a_default_leadership() {
    let set = default_set().await;
    let timings = DaemonTimings::DEFAULT;
    let (a, b) = pair(&stage_on(&set).timings(timings)).await;
    let monitor = LeaderMonitor::of([&a, &b]);
    let old = set.primary().await;
    set.stop(old);
    let kept = survivable(writes_again(&set, old).await);
    if kept {
        a.wait_renewal(LONG).await;
    }
    // Resume the deposed primary, which still considers itself primary for a moment.
    set.cont(old);
    let leader = leader_of(&[&a, &b]).await;
    leader.wait_renewal(LONG).await;
    leader.wait_renewal(LONG).await;
    if kept {
        assert_eq!(monitor.leaders(), ["a"], "{}", a.logs());
        assert_eq!(a.token(), Some(1));
    }
}

#[tokio::test]
async fn a_step_down_of_the_primary_does_not_end_a_default_leadership() {
    let set = default_set().await;
    let (a, b) = pair(&stage_on(&set).timings(DaemonTimings::DEFAULT)).await;
    let monitor = LeaderMonitor::of([&a, &b]);
    set.step_down_primary().await;
    a.wait_renewal(LONG).await;
    a.wait_renewal(LONG).await;
    assert_eq!(monitor.leaders(), ["a"]);
    assert_eq!(a.token(), Some(1));
}
