//! Goal: the next process on the same status directory leads again immediately; no other process
//! does, whatever its name and whatever it copied (I8).

use std::process::Command;

use leasehold_testbed::DaemonTimings;

use crate::command::Files;
use crate::contest::{Contest, LONG, eventually, nanos, renews, sent_ns, token, wait_follows};

const TIMINGS: DaemonTimings = DaemonTimings::SHORT;

#[tokio::test]
async fn a_killed_leader_leads_again_at_once_on_the_same_directory() {
    let contest = Contest::new("restarted").await;
    let timings = DaemonTimings::DEFAULT;
    let mut daemon = contest.candidate_with("a", timings, "0s").start();
    let before = daemon.wait_leads(LONG).await;
    daemon.restart_same_directory();
    let again = daemon
        .wait_until(
            |status| status["leader"] == true && status["session"] != before["session"],
            LONG,
        )
        .await;
    assert_eq!(token(&again), token(&before) + 1, "a new token (I3)");
    let gap = sent_ns(&again, timings) - sent_ns(&before, timings);
    assert!(
        gap < nanos(timings.lease_duration / 2),
        "far from the lease's 24 s: {gap} ns"
    );
    // The change is published before it is logged.
    eventually("it says why", async || {
        daemon.log_records().iter().any(|line| {
            let message = line["message"].as_str().unwrap_or_default();
            message.starts_with("took over immediately") && line["token"] == token(&before)
        })
    })
    .await;
    assert_eq!(contest.last_ended().await.reason, "took_over");
}

#[tokio::test]
async fn i8_the_same_identity_on_another_directory_waits() {
    let contest = Contest::new("namesake").await;
    let old = contest.candidate_with("a", TIMINGS, "0s").start();
    old.wait_leads(LONG).await;
    old.kill();
    let last = old.status();
    let new = contest.candidate_with("a", TIMINGS, "0s").start();
    let leading = new.wait_leads(LONG).await;
    let waited = sent_ns(&leading, TIMINGS) - sent_ns(&last, TIMINGS);
    assert!(waited >= nanos(TIMINGS.lease_duration), "{waited} ns");
}

#[tokio::test]
async fn i8_a_copy_of_the_status_directory_proves_nothing() {
    let contest = Contest::new("copied").await;
    let files = Files::new();
    let old = contest.candidate_with("a", TIMINGS, "0s").start();
    old.wait_leads(LONG).await;
    let copy = files.path("copy");
    // Stopped, because a running daemon may rename a file while it is copied.
    old.stop();
    let copied = Command::new("cp")
        .arg("-a")
        .args([old.status_directory(), &copy])
        .status();
    old.cont();
    assert!(copied.unwrap().success());
    let new = contest
        .candidate_with("b", TIMINGS, "0s")
        .status_directory(&copy)
        .start();
    wait_follows(&new, "a").await;
    // If it trusted the copy, it would have taken over with its first read.
    renews(&old).await;
    renews(&old).await;
    assert_eq!(new.status()["role"], "follower");
    assert_eq!(contest.document().await.get_i64("token").unwrap(), 1);

    old.kill();
    let last = old.status();
    let leading = new.wait_leads(LONG).await;
    let waited = sent_ns(&leading, TIMINGS) - sent_ns(&last, TIMINGS);
    assert!(waited >= nanos(TIMINGS.lease_duration), "{waited} ns");
}
