//! Goal: after SIGTERM or SIGINT, a daemon hands the lease over. The old leader reports "not
//! leader" in every output before the new leader leads, records the reason in the history, and
//! exits with code 0.

use std::sync::Arc;
use std::time::Duration;

use leasehold_testbed::daemon::{boottime_ns, nanos};
use leasehold_testbed::{Daemon, DaemonTimings};
use rustix::process::Signal;

use crate::contest::{Contest, LONG, token};
use crate::monitor::{Monitor, assert_one_after_the_other};

#[tokio::test]
async fn i4_term_hands_over_only_after_the_old_leader_reports_not_leader() {
    hands_over("term", Signal::TERM, Duration::from_millis(300)).await;
}

#[tokio::test]
async fn i4_int_hands_over_in_the_same_order_without_a_delay() {
    hands_over("int", Signal::INT, Duration::ZERO).await;
}

async fn hands_over(lease: &str, signal: Signal, delay: Duration) {
    let contest = Contest::new(lease).await;
    let handoff_delay = format!("{}ms", delay.as_millis());
    let start = |identity| -> Arc<Daemon> {
        let timings = DaemonTimings::DEMO;
        Arc::new(
            contest
                .candidate_with(identity, timings, &handoff_delay)
                .start(),
        )
    };
    let old = start("old");
    let led = old.wait_leads(LONG).await;
    let new = start("new");
    new.wait_follows("old", LONG).await;

    let lookouts = [Monitor::on(&old), Monitor::on(&new)];
    lookouts[0].sees_leader().await;
    let signalled = boottime_ns();
    old.signal(signal);
    let stopping = old.wait_role("stopping", LONG).await;
    assert_eq!(stopping["leader"], false);
    assert_eq!(stopping["reason"], "shutdown");
    let leading = new.wait_leads(LONG).await;
    assert_eq!(old.wait_exit(LONG).await, 0);
    let [old_seen, new_seen] = lookouts;
    assert_one_after_the_other(&old_seen.end().await, &new_seen.end().await);

    assert_eq!(token(&leading), token(&led) + 1);
    let acquired = DaemonTimings::DEMO.sent_ns(&leading);
    assert!(
        acquired >= signalled + nanos(delay),
        "released before the handoff delay had passed"
    );
    let ended = contest.last_ended().await;
    assert_eq!(ended.reason, "shutdown", "released, not expired");
    assert!(contest.stored().gap().await < DaemonTimings::DEMO.lease_duration / 2);
    assert_eq!(ended.identity, "old");
    assert_eq!(ended.token, token(&led));
    let last = old.status();
    assert_eq!(last["leader"], false, "{last}");
}
