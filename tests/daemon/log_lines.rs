//! Goal: the log of a daemon is JSON unless it goes to a terminal, and has each change of
//! leadership in exactly one complete line.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::contest::{Contest, LONG, eventually, token, wait_follows};

#[tokio::test]
async fn every_change_of_leadership_is_one_line() {
    let contest = Contest::new("logged").await;
    let a = contest.candidate("a").start();
    a.wait_leads(LONG).await;
    let b = contest.candidate("b").start();
    wait_follows(&b, "a").await;
    a.signal(Signal::USR1);
    b.wait_leads(LONG).await;
    wait_follows(&a, "b").await;
    b.signal(Signal::USR1);
    let again = a.wait_leads(LONG).await;
    assert_eq!(token(&again), 3);
    a.term();
    assert_eq!(a.wait_exit(LONG).await, 0);

    assert_eq!(
        a.logs().lines().count(),
        a.log_records().len(),
        "every line is an object: {}",
        a.logs()
    );
    let records = a.log_records();
    let changes: Vec<&Value> = records
        .iter()
        .filter(|line| line["message"] == "role changed")
        .collect();
    let mut role = "unknown".to_owned();
    for line in &changes {
        assert_eq!(line["from"], role.as_str(), "no line is missing: {line}");
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
    let leaders: Vec<Value> = records
        .iter()
        .filter(|line| line["message"] == "new leader")
        .map(|line| json!([line["holder"], line["token"]]))
        .collect();
    assert_eq!(leaders, [json!(["b", 2])], "its own are in the changes");
}

#[tokio::test]
async fn a_quiet_life_has_no_lines() {
    let contest = Contest::new("quiet").await;
    let leader = contest.candidate("leader").start();
    leader.wait_leads(LONG).await;
    let follower = contest.candidate("follower").start();
    wait_follows(&follower, "leader").await;
    // A change is published before it is logged.
    for daemon in [&leader, &follower] {
        eventually("its role is logged", async || {
            let records = daemon.log_records();
            let changes = daemon.status()["transitions"].as_u64();
            let logged = records.iter().filter(|l| l["message"] == "role changed");
            Some(logged.count() as u64) == changes
        })
        .await;
    }
    eventually("the follower says who leads", async || {
        let mut records = follower.log_records().into_iter();
        records.any(|line| line["message"] == "new leader")
    })
    .await;
    let lines = |daemon: &leasehold_testbed::Daemon| daemon.log_records().len();
    let before = (lines(&leader), lines(&follower));
    let renewals =
        "leasehold_store_operations_total{lease=\"quiet\",operation=\"renew\",outcome=\"applied\"}";
    let renewed = leader.metric(renewals).await;
    eventually("it renewed often", async || {
        leader.metric(renewals).await >= renewed + 6.0
    })
    .await;
    assert_eq!((lines(&leader), lines(&follower)), before);
}
