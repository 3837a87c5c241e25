//! Goal: with default timings, a leader keeps its leadership during a MongoDB election with default
//! settings, unless the old primary was frozen. With shorter timings (lease 15 s, deadline 10 s, interval 2 s), the leader loses its
//! leadership, and a candidate leads again. Method: kill, freeze or step down the primary of
//! replica sets with an election timeout of 10 s.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_testbed::daemon::{boottime_ns, nanos};
use leasehold_testbed::{Daemon, DaemonTimings, LeaderMonitor, ReplicaSet};
use mongodb::bson::doc;

use crate::fixture::{LONG, POLL, eventually, leader_of, pair, stage_on, transitioned};

/// Maximum number of elections, because an election on a busy machine can take too long.
const ATTEMPTS_MAX: usize = 3;

async fn default_set() -> Arc<ReplicaSet> {
    Arc::new(ReplicaSet::builder().default_election().start().await)
}

#[tokio::test]
async fn i1_killing_the_primary_ends_a_15_10_2_leadership_but_not_a_default_leadership() {
    for _ in 0..ATTEMPTS_MAX {
        if kill_the_primary().await {
            return;
        }
    }
    panic!("MongoDB accepted no write for too long in each of {ATTEMPTS_MAX} elections");
}

/// Returns false if MongoDB accepted no write for so long that this attempt proves only I1.
async fn kill_the_primary() -> bool {
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
    kept
}

/// Returns true if a leader with default timings can survive this time without writes.
#[allow(clippy::print_stderr, reason = "explains a repeated attempt")]
fn survivable(without_writes: Duration) -> bool {
    let timings = DaemonTimings::DEFAULT;
    // The last renewal may be up to an interval before the gap, and the next renewal up to a retry
    // interval after the gap.
    let allowed = timings.renew_deadline - timings.renew_interval - timings.retry_interval;
    if without_writes >= allowed {
        eprintln!("MongoDB accepted no write for {without_writes:?}");
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

/// Unlike a crash of the primary, a freeze can end the leadership. With MongoDB's defaults, a
/// majority acknowledges no write for about 18 s after the freeze.
#[tokio::test]
async fn i1_i10_a_candidate_leads_after_a_freeze_of_the_primary() {
    let set = default_set().await;
    let timings = DaemonTimings::DEFAULT;
    let (a, b) = pair(&stage_on(&set).timings(timings)).await;
    let _monitor = LeaderMonitor::of([&a, &b]);
    let old = set.primary().await;
    set.stop(old);
    writes_again(&set, old).await;
    // Resume the deposed primary, which still considers itself primary for a moment.
    set.cont(old);
    let resumed = boottime_ns() + nanos(timings.renew_deadline);
    eventually(
        "a renewal is sent after that and acknowledged",
        async || {
            let renewed = |daemon: &Daemon| daemon.valid_until_ns() > Some(resumed);
            [&a, &b].into_iter().any(renewed)
        },
    )
    .await;
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
