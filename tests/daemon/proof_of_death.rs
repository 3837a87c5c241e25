//! Goal: after a leader is killed, the next process that uses its status directory leads
//! immediately. Any other process must wait, even with the same name or a copy of the directory
//! (I8).

use std::process::Command;

use leasehold_testbed::DaemonTimings;
use leasehold_testbed::daemon::nanos;
use serde_json::Value;

use crate::command::Files;
use crate::contest::{Contest, LONG, eventually, records, token};

const TIMINGS: DaemonTimings = DaemonTimings::SHORT;

#[tokio::test]
async fn a_killed_leader_leads_again_immediately_on_the_same_directory() {
    let contest = Contest::new("restarted").await;
    let timings = DaemonTimings::DEFAULT;
    let mut daemon = contest.candidate_at("a", timings).start();
    let before = daemon.wait_leads(LONG).await;
    daemon.restart_same_directory();
    let anew = |status: &Value| status["leader"] == true && status["session"] != before["session"];
    let again = daemon.wait_until(anew, LONG).await;
    assert_eq!(token(&again), token(&before) + 1, "a new token (I3)");
    let gap = timings.sent_ns(&again) - timings.sent_ns(&before);
    let most = nanos(timings.lease_duration / 2);
    assert!(gap < most, "much less than the lease's 24 s: {gap} ns");
    // The daemon publishes a change before it logs the change.
    eventually("the log contains the reason", async || {
        let why = records(&daemon, "took over immediately");
        why.iter().any(|line| line["token"] == token(&before))
    })
    .await;
    assert_eq!(contest.last_ended().await.reason, "took_over");
}

#[tokio::test]
async fn i8_the_same_identity_on_another_directory_waits() {
    let contest = Contest::new("namesake").await;
    let old = contest.candidate_at("a", TIMINGS).leading(LONG).await;
    old.kill();
    let last = old.status();
    let new = contest.candidate_at("a", TIMINGS).start();
    let leading = new.wait_leads(LONG).await;
    TIMINGS.assert_waited_since(TIMINGS.sent_ns(&last), &leading);
}

#[tokio::test]
async fn i8_a_copy_of_the_status_directory_proves_nothing() {
    let contest = Contest::new("copied").await;
    let files = Files::new();
    let old = contest.candidate_at("a", TIMINGS).leading(LONG).await;
    let copy = files.path("copy");
    // Without the freeze, the daemon might rename a file during the copy.
    old.stop();
    let copied = Command::new("cp")
        .arg("-a")
        .args([old.status_directory(), &copy])
        .status();
    old.cont();
    assert!(copied.unwrap().success());
    let new = contest
        .candidate_at("b", TIMINGS)
        .status_directory(&copy)
        .following("a", LONG)
        .await;
    // A candidate that trusted the copy would take over at its first read.
    old.wait_renewal(LONG).await;
    old.wait_renewal(LONG).await;
    assert_eq!(new.status()["role"], "follower");
    assert_eq!(contest.document().await.get_i64("token").unwrap(), 1);

    old.kill();
    let last = old.status();
    let leading = new.wait_leads(LONG).await;
    TIMINGS.assert_waited_since(TIMINGS.sent_ns(&last), &leading);
}
