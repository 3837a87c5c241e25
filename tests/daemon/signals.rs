//! Goal: a second SIGTERM, SIGUSR1 and SIGUSR2 behave as documented for operators.

use std::time::Duration;

use leasehold_testbed::DaemonTimings;
use leasehold_testbed::daemon::boottime_ns;
use rustix::process::Signal;

use crate::contest::{Contest, LONG, eventually, records, token};

const TIMINGS: DaemonTimings = DaemonTimings::SHORT;
/// Approximate time between the two signals that timeout(1) sends.
const MILLISECONDS_APART: Duration = Duration::from_millis(3);
/// A second signal within this time counts as a repetition of the first signal.
const SAME_REQUEST: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_second_term_exits_immediately_and_no_file_says_leader() {
    let contest = Contest::new("impatient").await;
    let daemon = contest
        .candidate_with("a", DaemonTimings::DEFAULT, "60s")
        .leading(LONG)
        .await;
    daemon.term();
    daemon.wait_role("stopping", LONG).await;
    tokio::time::sleep(SAME_REQUEST).await;
    daemon.term();
    // The first signal starts the handoff delay. The process exits long before this delay ends.
    assert_eq!(daemon.wait_exit(LONG).await, 1);
    let last = daemon.status();
    assert_eq!(last["leader"], false, "{last}");
    let environment = std::fs::read_to_string(daemon.status_directory().join("status.env"));
    assert!(environment.unwrap().contains("LEASEHOLD_LEADER='false'"));
    let document = contest.document().await;
    assert!(document.get_document("holder").is_ok(), "not released");
}

#[tokio::test]
async fn two_signals_within_milliseconds_count_as_one() {
    let contest = Contest::new("twice").await;
    let daemon = contest
        .candidate_with("a", DaemonTimings::DEFAULT, "500ms")
        .leading(LONG)
        .await;
    let next = contest.candidate("b").following("a", LONG).await;
    daemon.term();
    tokio::time::sleep(MILLISECONDS_APART).await;
    daemon.signal(Signal::INT);
    assert_eq!(
        daemon.wait_exit(LONG).await,
        0,
        "released, as after one signal"
    );
    let last = daemon.status();
    assert_eq!(last["leader"], false, "{last}");
    next.wait_leads(LONG).await;
    assert_eq!(contest.last_ended().await.reason, "shutdown", "released");
}

#[tokio::test]
async fn usr1_lets_another_follower_lead() {
    let contest = Contest::new("usr1").await;
    let old = contest.candidate("old").start();
    let led = old.wait_leads(LONG).await;
    let new = contest.candidate("new").following("old", LONG).await;
    old.signal(Signal::USR1);
    let leading = new.wait_leads(LONG).await;
    assert_eq!(token(&leading), token(&led) + 1);
    old.wait_follows("new", LONG).await;
    let ended = contest.last_ended().await;
    assert_eq!(ended.reason, "requested");
}

#[tokio::test]
async fn after_usr1_a_lone_candidate_does_not_lead_for_a_lease_duration() {
    let contest = Contest::new("usr1-alone").await;
    let daemon = contest.candidate_at("a", TIMINGS).start();
    let led = daemon.wait_leads(LONG).await;
    let signalled = boottime_ns();
    daemon.signal(Signal::USR1);
    daemon.wait_role("follower", LONG).await;
    let again = daemon.wait_leads(LONG).await;
    TIMINGS.assert_waited_since(signalled, &again);
    assert_eq!(token(&again), token(&led) + 1, "I3");
}

#[tokio::test]
async fn usr2_logs_a_full_status() {
    let contest = Contest::new("usr2").await;
    let daemon = contest.candidate("a").leading(LONG).await;
    daemon.signal(Signal::USR2);
    let reported = || records(&daemon, "status").pop();
    eventually("the status is logged", async || reported().is_some()).await;
    let status = reported().unwrap();
    assert_eq!(
        (&status["role"], &status["holder"]),
        (&"leader".into(), &"a".into())
    );
    assert_eq!(status["leader"], true, "{status}");
    assert_eq!(status["identity"], "a", "{status}");
    assert!(status["valid_until_boottime_ns"].is_u64(), "{status}");
}
