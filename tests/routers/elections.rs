//! Goal: with the default timings, a leader behind a router keeps its leadership when a shard
//! elects a primary, although the leader's driver cannot see this election. Method: kill the
//! primary of a replica set with MongoDB's default election timeout. The routers keep the clients'
//! connections open, and answer either with an error or after the election.

use std::sync::Arc;
use std::time::Instant;

use leasehold_testbed::{DaemonTimings, LeaderMonitor, ReplicaSet};

use crate::fixture::{Cluster, LONG};

/// Maximum number of elections, because an election on a busy machine can take too long.
const ATTEMPTS_MAX: usize = 3;

#[tokio::test]
async fn a_leader_behind_routers_outlasts_an_election_at_default_settings() {
    for _ in 0..ATTEMPTS_MAX {
        if outlasts_an_election().await {
            return;
        }
    }
    panic!("there was no primary for too long in each of {ATTEMPTS_MAX} elections");
}

/// Returns false if the election took too long to prove anything.
#[allow(clippy::print_stderr, reason = "explains a repeated attempt")]
async fn outlasts_an_election() -> bool {
    let set = Arc::new(ReplicaSet::builder().default_election().start().await);
    let timings = DaemonTimings::DEFAULT;
    let mut cluster = Cluster::on(Arc::clone(&set));
    cluster.stage = cluster.stage.timings(timings);
    let (a, b) = cluster.pair().await;
    let monitor = LeaderMonitor::of([&a, &b]);
    let old = set.primary().await;
    a.wait_renewal(LONG).await;
    set.kill(old);
    let killed = Instant::now();
    set.primary().await;
    let without_writes = killed.elapsed();
    a.wait_renewal(LONG).await;
    // The leader has just renewed. A hanging attempt takes its full timeout, and the next attempt
    // follows a retry interval later.
    let allowed = timings.renew_deadline - timings.operation_timeout - timings.retry_interval;
    if without_writes >= allowed {
        eprintln!("no primary for {without_writes:?}");
        return false;
    }
    assert_eq!(monitor.leaders(), ["a"], "{}", a.logs());
    assert_eq!(a.token(), Some(1));
    b.wait_follows("a", LONG).await;
    a.term();
    b.wait_leads(LONG).await;
    true
}

#[tokio::test]
async fn a_planned_step_down_behind_routers_does_not_cost_the_leadership() {
    let set = Arc::new(ReplicaSet::start().await);
    let mut cluster = Cluster::on(Arc::clone(&set));
    cluster.stage = cluster.stage.timings(DaemonTimings::DEFAULT);
    let (a, b) = cluster.pair().await;
    let monitor = LeaderMonitor::of([&a, &b]);
    set.step_down_primary().await;
    a.wait_renewal(LONG).await;
    a.wait_renewal(LONG).await;
    assert_eq!(monitor.leaders(), ["a"], "{}", a.logs());
    assert_eq!(a.token(), Some(1));
    b.wait_follows("a", LONG).await;
}
