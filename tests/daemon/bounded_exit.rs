//! Goal: a daemon exits soon after SIGTERM with code 0, even if MongoDB does not answer. A daemon
//! that cannot send a release exits without waiting until the lease expires.

use std::time::Duration;

use leasehold_testbed::DaemonTimings;

use crate::contest::{Contest, LONG};

/// The lease lasts 24 s, and a hanging call times out after 3 s.
const TIMINGS: DaemonTimings = DaemonTimings::DEFAULT;
const EXIT_MAX: Duration = Duration::from_secs(12);

#[tokio::test]
async fn a_leader_exits_soon_after_term_if_mongodb_does_not_answer() {
    let contest = Contest::new("stalled-leader").await;
    let (proxy, daemon) = contest.behind_proxy(TIMINGS);
    let daemon = daemon.leading(LONG).await;
    proxy.stall();
    assert_eq!(daemon.term_and_exit(EXIT_MAX).await, 0);
    let last = daemon.status();
    assert_eq!(last["leader"], false, "{last}");
    assert_eq!(last["reason"], "shutdown", "{last}");
}

#[tokio::test]
async fn a_follower_exits_soon_after_term_if_mongodb_is_disconnected() {
    let contest = Contest::new("cut-follower").await;
    let _leader = contest.candidate("leader").leading(LONG).await;
    let (proxy, daemon) = contest.behind_proxy(TIMINGS);
    let daemon = daemon.following("leader", LONG).await;
    proxy.cut();
    assert_eq!(daemon.term_and_exit(EXIT_MAX).await, 0);
}
