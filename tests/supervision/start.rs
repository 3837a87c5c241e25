//! Goal: the command never starts before MongoDB has acknowledged the acquisition. The command's
//! environment describes the lease but contains no secret of the daemon.

use std::process::Command;

use leasehold_testbed::assert_contains;

use crate::contest::{Contest, LONG, eventually, token};
use crate::journal::{Behaviour, Journal};

#[tokio::test]
async fn only_the_leaders_command_runs_and_it_knows_its_lease() {
    let (contest, journal) = (Contest::new("start").await, Journal::new());
    let command = |out: &str| {
        let out = journal.path(out).display().to_string();
        let script = "env > \"$0.tmp\"; mv \"$0.tmp\" \"$0\"; exec sleep 1000";
        ["sh", "-c", script, &out].map(str::to_owned)
    };
    let leader = contest
        .candidate("a")
        .env("LEASEHOLD_LOG__LEVEL", "debug")
        .env("NOTIFY_SOCKET", "@nobody")
        .env("MINE", "kept")
        .workload(command("a"))
        .start();
    let status = leader.wait_leads(LONG).await;
    let follower = contest
        .candidate("b")
        .workload(command("b"))
        .following("a", LONG)
        .await;
    let path = journal.path("a");
    eventually("the command runs", async || path.exists()).await;
    let environment = std::fs::read_to_string(&path).unwrap();
    let value = |name: &str| {
        let line = environment.lines().find_map(|line| {
            let (key, value) = line.split_once('=')?;
            (key == name).then_some(value)
        });
        line.map(str::to_owned)
    };
    assert_eq!(value("LEASEHOLD_LEASE").as_deref(), Some("start"));
    assert_eq!(value("LEASEHOLD_IDENTITY").as_deref(), Some("a"));
    for name in ["LEASEHOLD_TOKEN", "LEASEHOLD_LEASE_TOKEN"] {
        assert_eq!(value(name), Some(token(&status).to_string()), "{name}");
    }
    let file = leader.status_directory().join("status.json");
    assert_eq!(value("LEASEHOLD_STATUS_FILE").as_deref(), file.to_str());
    assert_eq!(value("MINE").as_deref(), Some("kept"));
    assert_eq!(value("LEASEHOLD_LOG__LEVEL"), None, "ours");
    assert_eq!(
        value("NOTIFY_SOCKET"),
        None,
        "the command must not send notifications to systemd as the daemon"
    );
    assert!(!journal.path("b").exists(), "a follower starts no command");
    assert_eq!(leader.metric("leasehold_workload_up").await, 1.0);
    assert_eq!(follower.metric("leasehold_workload_up").await, 0.0);
}

#[tokio::test]
async fn without_mongodb_no_command_runs() {
    let journal = Journal::new();
    let daemon = leasehold_testbed::Daemon::builder(crate::contest::PROGRAM)
        .lease("nowhere")
        .uri("mongodb://127.0.0.1:1/?replicaSet=none")
        .workload(journal.command(&Behaviour::Obedient))
        .start();
    daemon.wait_logged("MongoDB read failed", LONG).await;
    assert_eq!(journal.lines(), []);
    assert_eq!(daemon.term_and_exit(LONG).await, 0);
}

#[test]
fn no_command_after_two_dashes_is_a_usage_error() {
    let flags = ["--lease=x", "--mongodb-uri=mongodb://localhost", "--"];
    let mut command = Command::new(crate::contest::PROGRAM);
    let output = command.arg("run").args(flags).output().unwrap();
    assert_eq!(output.status.code(), Some(64));
    assert_contains(&String::from_utf8_lossy(&output.stderr), "after --");
}
