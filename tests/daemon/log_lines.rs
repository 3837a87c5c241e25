//! Goal: a daemon's log is JSON unless it goes to a terminal, and reports each change of leadership
//! in exactly one complete line.

use leasehold_testbed::{Daemon, DaemonTimings};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::contest::{Contest, LONG, eventually, records, token};

#[tokio::test]
async fn every_change_of_leadership_is_one_line() {
    let contest = Contest::new("logged").await;
    let a = contest.candidate("a").leading(LONG).await;
    let b = contest.candidate("b").following("a", LONG).await;
    a.signal(Signal::USR1);
    b.wait_leads(LONG).await;
    a.wait_follows("b", LONG).await;
    b.signal(Signal::USR1);
    let again = a.wait_leads(LONG).await;
    assert_eq!(token(&again), 3);
    assert_eq!(a.term_and_exit(LONG).await, 0);

    assert_eq!(
        a.logs().lines().count(),
        a.log_records().len(),
        "every line is an object: {}",
        a.logs()
    );
    let changes = records(&a, "role changed");
    let mut role = "unknown".to_owned();
    for line in &changes {
        assert_eq!(line["from"], role.as_str(), "a line was dropped: {line}");
        role = line["to"].as_str().unwrap().to_owned();
        assert_eq!(line["lease"], "logged");
        assert!(line["lasted_ms"].is_u64(), "{line}");
        assert!(line["timestamp"].is_string(), "{line}");
    }
    let leadership: Vec<Value> = changes
        .iter()
        .filter(|line| line["to"] == "leader" || line["from"] == "leader")
        .map(|line| json!([line["to"], line["reason"], line["token"]]))
        .collect();
    assert_eq!(
        leadership,
        [
            json!(["leader", "acquired", 1]),
            json!(["stopping", "requested", 1]),
            json!(["leader", "acquired", 3]),
            json!(["stopping", "shutdown", 3]),
        ]
    );
    assert_eq!(a.status()["transitions"], changes.len());
    let [other] = &records(&a, "new leader")[..] else {
        panic!("expected one line about another leader: {}", a.logs());
    };
    assert_eq!(json!([other["holder"], other["token"]]), json!(["b", 2]));
}

#[tokio::test]
async fn an_uneventful_daemon_logs_no_lines() {
    let contest = Contest::new("quiet").await;
    // With these durations, the daemon does not warn about elections, and does not log calls that
    // take a second on a busy machine.
    // A candidate logs that it follows hints, possibly after it follows the leader.
    let candidate = |identity| {
        let candidate = contest.candidate_at(identity, DaemonTimings::DEFAULT);
        candidate.flag("--mongodb-watch=stream")
    };
    let leader = candidate("leader").leading(LONG).await;
    let follower = candidate("follower").following("leader", LONG).await;
    // The daemon publishes a change before it logs the change. Another task logs the connection to
    // MongoDB, possibly after the first leadership begins.
    for daemon in [&leader, &follower] {
        daemon.wait_logged("connected to MongoDB", LONG).await;
        eventually("the role is logged", async || {
            daemon.status()["transitions"] == records(daemon, "role changed").len()
        })
        .await;
    }
    follower.wait_logged("\"new leader\"", LONG).await;
    let lines = |daemon: &Daemon| daemon.log_records().len();
    let before = (lines(&leader), lines(&follower));
    let renewed = leader.operations("renew", "applied").await;
    leader
        .wait_operations("renew", "applied", renewed + 6.0)
        .await;
    assert_eq!((lines(&leader), lines(&follower)), before);
}
