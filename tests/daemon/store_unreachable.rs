//! Goal: a daemon that cannot reach MongoDB keeps trying, reports it without flooding the log, is
//! live but not ready, and leads as soon as it can.

use leasehold_testbed::{Daemon, DaemonTimings};
use serde_json::Value;

use crate::contest::{Contest, LONG, PROGRAM, eventually};

/// Number of failures to wait for. At the retry_interval of 200 ms they take at least 5 s; a
/// lasting failure may be logged after 0, 2 and 6 s.
const FAILURES: f64 = 25.0;
/// Maximum number of log lines: those, and one for each further kind of failure.
const LINES_MAX: usize = 6;
const FAILED: &str = " failed (attempt ";

#[tokio::test]
async fn a_host_that_does_not_exist_is_waited_for_without_a_flood_of_lines() {
    let daemon = Daemon::builder(PROGRAM)
        .uri("mongodb://no-such-host.invalid/?replicaSet=rs0")
        .timings(DaemonTimings::SHORT)
        .start();
    failed_often(&daemon).await;
    is_alive_and_not_ready(&daemon).await;
    let said = lines(&daemon, FAILED);
    assert!(!said.is_empty(), "never said");
    assert!(said.len() <= LINES_MAX, "{}", daemon.logs());
    assert_eq!(said[0]["level"], "WARN");
    // The missing change stream is a consequence, and not reported separately.
    assert!(
        lines(&daemon, "no change stream").is_empty(),
        "{}",
        daemon.logs()
    );
    let failures: Vec<u64> = said
        .iter()
        .map(|line| line["failures"].as_u64().unwrap())
        .collect();
    assert_eq!(failures[0], 1, "the first failure is told at once");
    assert!(
        daemon.logs().lines().count() <= LINES_MAX + 2,
        "{}",
        daemon.logs()
    );
    daemon.term();
    assert_eq!(daemon.wait_exit(LONG).await, 0);
}

#[tokio::test]
async fn a_store_that_comes_later_is_contended_on_at_once() {
    let contest = Contest::new("later").await;
    let proxy = contest.set().proxy();
    proxy.cut();
    let daemon = contest
        .candidate_with("a", DaemonTimings::SHORT, "0s")
        .uri(&contest.set().proxied_uri(&proxy))
        .start();
    eventually("it has failed", async || !lines(&daemon, FAILED).is_empty()).await;
    is_alive_and_not_ready(&daemon).await;
    proxy.resume();
    daemon.wait_leads(LONG).await;
    assert_eq!(daemon.http("/readyz").await.unwrap().0, 200);
    let answers_again = lines(&daemon, "MongoDB answers again");
    assert_eq!(answers_again.len(), 1, "{}", daemon.logs());
}

#[tokio::test]
async fn i4_a_leader_that_loses_the_store_says_so_in_two_lines_and_leads_again() {
    let contest = Contest::new("lost-store").await;
    let proxy = contest.set().proxy();
    let daemon = contest
        .candidate_with("a", DaemonTimings::SHORT, "0s")
        .uri(&contest.set().proxied_uri(&proxy))
        .start();
    daemon.wait_leads(LONG).await;
    proxy.cut();
    let lost = daemon
        .wait_until(|status| status["role"] != "leader", LONG)
        .await;
    assert_eq!(lost["reason"], "deadline");
    assert_eq!(
        daemon.http("/readyz").await.unwrap().0,
        200,
        "it was reached"
    );
    // The role becomes unknown once nothing has been read for a lease_duration.
    daemon
        .wait_until(|status| status["role"] == "unknown", LONG)
        .await;
    proxy.resume();
    let again = daemon.wait_leads(LONG).await;
    assert_eq!(again["token"], 2);
    let warned = lines(&daemon, FAILED);
    assert!(warned.len() <= LINES_MAX, "{}", daemon.logs());
    let changes = lines(&daemon, "role changed");
    let lost: Vec<&Value> = changes
        .iter()
        .filter(|line| line["from"] == "leader")
        .collect();
    let [line] = lost[..] else {
        panic!("leadership was lost once: {changes:?}");
    };
    assert_eq!(line["level"], "WARN");
    assert_eq!(line["reason"], "deadline");
}

async fn is_alive_and_not_ready(daemon: &Daemon) {
    assert_eq!(daemon.http("/livez").await.unwrap().0, 200);
    assert_eq!(daemon.http("/readyz").await.unwrap().0, 503);
    assert_eq!(daemon.http("/leader").await.unwrap().0, 503);
    // The failure may be logged before the first status file is written.
    let unknown = |status: &Value| status["role"] == "unknown";
    let status = daemon.wait_until(unknown, LONG).await;
    assert_eq!(status["leader"], false, "{status}");
    assert_eq!(status["holder"], Value::Null, "{status}");
    assert_eq!(daemon.exit_code(), None);
}

async fn failed_often(daemon: &Daemon) {
    daemon
        .wait_until(|status| status["role"] == "unknown", LONG)
        .await;
    eventually("it has tried often", async || {
        let read = "operation=\"read\"";
        let mut tried = 0.0;
        for outcome in ["failed", "unknown"] {
            let series = format!(
                "leasehold_store_operations_total{{lease=\"orders\",{read},outcome=\"{outcome}\"}}"
            );
            tried += daemon.metric(&series).await;
        }
        tried >= FAILURES
    })
    .await;
}

/// Log lines whose message contains this text.
fn lines(daemon: &Daemon, message: &str) -> Vec<Value> {
    let mut records = daemon.log_records();
    records.retain(|line| {
        line["message"]
            .as_str()
            .is_some_and(|m| m.contains(message))
    });
    records
}
