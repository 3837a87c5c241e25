//! Goal: after SIGTERM a daemon exits soon and with code 0 although MongoDB does not answer. A
//! release that cannot be sent does not delay the exit until the lease expires.

use std::time::Duration;

use leasehold_testbed::DaemonTimings;

use crate::contest::{Contest, LONG, wait_follows};

/// The lease lasts 24 s, and a call that hangs times out after 3 s.
const TIMINGS: DaemonTimings = DaemonTimings::DEFAULT;
const EXIT_MAX: Duration = Duration::from_secs(12);

#[tokio::test]
async fn term_is_bounded_for_a_leader_whose_store_does_not_answer() {
    let contest = Contest::new("stalled-leader").await;
    let proxy = contest.set().proxy();
    let daemon = contest
        .candidate_with("a", TIMINGS, "0s")
        .uri(&contest.set().proxied_uri(&proxy))
        .start();
    daemon.wait_leads(LONG).await;
    proxy.stall();
    daemon.term();
    assert_eq!(daemon.wait_exit(EXIT_MAX).await, 0);
    let last = daemon.status();
    assert_eq!(last["leader"], false, "{last}");
    assert_eq!(last["reason"], "shutdown", "{last}");
}

#[tokio::test]
async fn term_is_bounded_for_a_follower_whose_store_is_cut_off() {
    let contest = Contest::new("cut-follower").await;
    let leader = contest.candidate("leader").start();
    leader.wait_leads(LONG).await;
    let proxy = contest.set().proxy();
    let daemon = contest
        .candidate_with("a", TIMINGS, "0s")
        .uri(&contest.set().proxied_uri(&proxy))
        .start();
    wait_follows(&daemon, "leader").await;
    proxy.cut();
    daemon.term();
    assert_eq!(daemon.wait_exit(EXIT_MAX).await, 0);
}
