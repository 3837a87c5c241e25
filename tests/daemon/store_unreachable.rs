//! Goal: a daemon that cannot reach MongoDB keeps retrying, reports the failure without flooding
//! the log, is live but not ready, and leads as soon as it can.

use leasehold_testbed::{Daemon, DaemonTimings};
use serde_json::Value;

use crate::contest::{Contest, LONG, PROGRAM, eventually, records};

/// Number of failures to wait for. With a retry_interval of 200 ms, these failures take at least 5
/// s. A lasting failure is logged after 0, 2 and 6 s.
const FAILURES: f64 = 25.0;
/// Maximum number of log lines: some for the lasting failure, and one for each other kind of
/// failure.
const LINES_MAX: usize = 6;
const FAILED: &str = " failed (attempt ";

#[tokio::test]
async fn a_host_that_does_not_exist_causes_retries_without_a_flood_of_lines() {
    let daemon = Daemon::builder(PROGRAM)
        .uri("mongodb://no-such-host.invalid/?replicaSet=rs0")
        .timings(DaemonTimings::SHORT)
        .start();
    failed_often(&daemon).await;
    is_alive_and_not_ready(&daemon).await;
    let said = records(&daemon, FAILED);
    assert!(!said.is_empty(), "never said");
    assert!(said.len() <= LINES_MAX, "{}", daemon.logs());
    assert_eq!(said[0]["level"], "WARN");
    // The daemon does not report the missing change stream separately, because both problems have
    // one cause.
    assert_eq!(daemon.logged("no change stream"), 0, "{}", daemon.logs());
    assert_eq!(
        said[0]["failures"], 1,
        "the first failure is logged immediately"
    );
    let logs = daemon.logs();
    assert!(logs.lines().count() <= LINES_MAX + 2, "{logs}");
    assert_eq!(daemon.term_and_exit(LONG).await, 0);
}

#[tokio::test]
async fn a_daemon_contends_as_soon_as_mongodb_starts() {
    let contest = Contest::new("later").await;
    // Uses default timings, because a call that times out would be a second failure.
    let (proxy, daemon) = contest.behind_proxy(DaemonTimings::DEFAULT);
    proxy.cut();
    let daemon = daemon.start();
    eventually("a call has failed", async || {
        !records(&daemon, FAILED).is_empty()
    })
    .await;
    is_alive_and_not_ready(&daemon).await;
    proxy.resume();
    daemon.wait_leads(LONG).await;
    daemon.wait_logged("MongoDB answers again", LONG).await;
    let (ready, body) = daemon.http("/readyz").await.unwrap();
    assert_eq!((ready, body.trim_end()), (200, "ok; connected to MongoDB"));
    let answers_again = records(&daemon, "MongoDB answers again");
    assert_eq!(answers_again.len(), 1, "{}", daemon.logs());
}

#[tokio::test]
async fn i4_a_leader_that_loses_mongodb_logs_two_lines_and_leads_again() {
    let contest = Contest::new("lost-store").await;
    let (proxy, daemon) = contest.behind_proxy(DaemonTimings::SHORT);
    let daemon = daemon.leading(LONG).await;
    proxy.cut();
    let lost = daemon
        .wait_until(|status| status["role"] != "leader", LONG)
        .await;
    assert_eq!(lost["reason"], "deadline");
    let (ready, body) = daemon.http("/readyz").await.unwrap();
    assert_eq!(ready, 200, "MongoDB was reached once");
    assert!(
        body.contains("ok; MongoDB has been failing since 20"),
        "{body}"
    );
    // The role becomes unknown one lease_duration after the last read.
    daemon.wait_role("unknown", LONG).await;
    proxy.resume();
    let again = daemon.wait_leads(LONG).await;
    assert_eq!(again["token"], 2);
    let warned = records(&daemon, FAILED);
    assert!(warned.len() <= LINES_MAX, "{}", daemon.logs());
    let changes = records(&daemon, "role changed");
    let lost = changes.iter().filter(|line| line["from"] == "leader");
    let [line] = lost.collect::<Vec<_>>()[..] else {
        panic!("leadership was lost once: {changes:?}");
    };
    assert_eq!(line["level"], "WARN");
    assert_eq!(line["reason"], "deadline");
}

async fn is_alive_and_not_ready(daemon: &Daemon) {
    assert_eq!(daemon.http("/livez").await.unwrap().0, 200);
    assert_eq!(daemon.http("/readyz").await.unwrap().0, 503);
    assert_eq!(daemon.http("/leader").await.unwrap().0, 503);
    // The daemon may log the failure before it writes the first status file.
    let status = daemon.wait_role("unknown", LONG).await;
    assert_eq!(status["leader"], false, "{status}");
    assert_eq!(status["holder"], Value::Null, "{status}");
    assert_eq!(daemon.exit_code(), None);
}

async fn failed_often(daemon: &Daemon) {
    daemon.wait_role("unknown", LONG).await;
    eventually("the daemon has retried often", async || {
        let failed = daemon.operations("read", "failed").await;
        failed + daemon.operations("read", "unknown").await >= FAILURES
    })
    .await;
}
