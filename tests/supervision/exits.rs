//! Goal: after a command has ended, no replica keeps the lease without a command. Depending on the
//! configuration, the daemon exits or another replica takes over.

use std::time::Duration;

use leasehold_testbed::pid::is_alive;
use leasehold_testbed::{Daemon, DaemonTimings};
use mongodb::bson::Bson;

use crate::contest::{Contest, LONG, eventually};
use crate::journal::{Behaviour, Journal};

#[tokio::test]
async fn its_exit_code_is_the_daemons_and_the_lease_is_free_at_once() {
    let (contest, journal) = (Contest::new("exit-code").await, Journal::new());
    let daemon = journal.run_by(contest.candidate("a"), &Behaviour::Exits(7));
    let daemon = daemon.start();
    assert_eq!(daemon.wait_exit(LONG).await, 7);
    assert_eq!(contest.document().await["holder"], Bson::Null);
    assert_eq!(contest.last_ended().await.reason, "workload_exit");
    assert_eq!(daemon.status()["leader"], false);
}

#[tokio::test]
async fn a_signal_has_the_exit_code_that_shells_use() {
    let contest = Contest::new("exit-signal").await;
    let daemon = contest
        .candidate("a")
        .workload(["sh", "-c", "kill -KILL $$"])
        .start();
    assert_eq!(daemon.wait_exit(LONG).await, 128 + 9);
}

#[tokio::test]
async fn a_command_that_cannot_be_executed_has_the_exit_code_that_shells_use() {
    let (contest, journal) = (Contest::new("not-executable").await, Journal::new());
    let daemon = contest.candidate("a").workload(["/nowhere/at-all"]).start();
    assert_eq!(daemon.wait_exit(LONG).await, 127);
    // All log lines are JSON, even the line about the failed start.
    let records = daemon.log_records();
    assert_eq!(records.len(), daemon.logs().lines().count());
    let told = |r: &serde_json::Value| {
        r["message"] == "cannot execute /nowhere/at-all: no such file or directory"
    };
    assert!(records.iter().any(told), "{records:?}");
    let file = journal.path("plain");
    std::fs::write(&file, "#!/nowhere/interpreter\n").unwrap();
    let run = |name| contest.candidate(name).workload([file.to_str().unwrap()]);
    let daemon = run("b").start();
    assert_eq!(daemon.wait_exit(LONG).await, 126);
    let document = contest.stored().try_get().await;
    assert_eq!(document, None, "the lease was not acquired");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&file, executable).unwrap();
    let daemon = run("c").start();
    assert_eq!(daemon.wait_exit(LONG).await, 127);
    let why = "its interpreter \"/nowhere/interpreter\" does not exist";
    let message = format!("cannot execute {}: {why}", file.display());
    let told = |r: &serde_json::Value| r["message"] == message;
    assert!(daemon.log_records().iter().any(told), "{}", daemon.logs());
    let document = contest.stored().try_get().await;
    assert_eq!(document, None, "the lease was not acquired");
    // Only exec itself finds a relative interpreter.
    std::fs::write(&file, "#!nowhere/interpreter\n").unwrap();
    let daemon = run("d").start();
    assert_eq!(daemon.wait_exit(LONG).await, 127);
    let told = |r: &serde_json::Value| {
        r["message"] == "failed to execute the workload"
            && r["why"] == "its interpreter or its loader does not exist"
    };
    assert!(daemon.log_records().iter().any(told), "{}", daemon.logs());
}

#[tokio::test]
async fn a_graceful_stop_exits_0_whatever_the_command_says_then() {
    let (contest, journal) = (Contest::new("stopped-code").await, Journal::new());
    let ready = journal.path("ready");
    let script = "trap 'exit 9' TERM; : > \"$0\"; while :; do sleep 0.02; done";
    let command = ["sh", "-c", script, ready.to_str().unwrap()];
    let daemon = contest.candidate("a").workload(command).start();
    eventually("the command has installed its trap", async || {
        ready.exists()
    })
    .await;
    assert_eq!(daemon.term_and_exit(LONG).await, 0);
}

#[tokio::test]
async fn a_loss_that_cuts_off_a_lingering_filter_is_not_an_exit_of_the_command() {
    let (contest, journal) = (Contest::new("lingers").await, Journal::new());
    let (proxy, candidate) = contest.behind_proxy(DaemonTimings::SHORT);
    let starts = journal.path("starts");
    let script = "echo $$ >> \"$0\"; sleep 1000 & exit 0";
    let command = ["sh", "-c", script, starts.to_str().unwrap()];
    let candidate = candidate.flag("--workload-linger=60s").workload(command);
    let daemon = candidate.start();
    let started = || std::fs::read_to_string(&starts).unwrap_or_default();
    let exited = |text: &str| text.trim().parse().is_ok_and(|pid| !is_alive(pid));
    eventually("the command has exited", async || exited(&started())).await;
    proxy.stall();
    daemon.wait_not_leader(LONG).await;
    proxy.resume();
    eventually("leads again, or exits", async || {
        started().lines().count() > 1 || daemon.exit_code().is_some()
    })
    .await;
    assert_eq!(daemon.exit_code(), None, "{}", daemon.logs());
    let logs = daemon.logs();
    assert!(!logs.contains("exited by itself"), "{logs}");
}

fn crash_looping(contest: &Contest, journal: &Journal, identity: &str) -> Daemon {
    let candidate = contest.candidate(identity);
    let candidate = candidate.flag("--workload-on-exit=release");
    journal.run_by(candidate, &Behaviour::Exits(1)).start()
}

#[tokio::test]
async fn a_crash_loop_gives_the_lease_to_a_healthy_replica() {
    let (contest, journal) = (Contest::new("crash-loop").await, Journal::new());
    let crashing = crash_looping(&contest, &journal, "crashing");
    // Without another candidate, the daemon retries at growing intervals.
    let second = journal.wait("start", 2).await;
    assert_eq!((second.token, second.identity.as_str()), (2, "crashing"));
    let healthy = journal.run_by(contest.candidate("healthy"), &Behaviour::Obedient);
    let _healthy = healthy.leading(LONG).await;
    crashing.wait_follows("healthy", LONG).await;
    assert_eq!(crashing.exit_code(), None, "remains a candidate");
    journal.assert_one_after_the_other();
}

#[tokio::test]
async fn a_lone_crash_loop_restarts_at_growing_intervals() {
    let (contest, journal) = (Contest::new("spaced").await, Journal::new());
    let daemon = crash_looping(&contest, &journal, "a");
    journal.wait("start", 4).await;
    let starts: Vec<_> = journal.of("start").iter().map(|line| line.at).collect();
    let gaps: Vec<_> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let at_least = |gap: u64, millis: u64| {
        // The journal's times are rounded down to 10 ms.
        assert!(gap + 10_000_000 >= millis * 1_000_000, "{gaps:?}");
    };
    // The intervals start at `retry_interval`, 250 ms here, and double.
    at_least(gaps[0], 250);
    at_least(gaps[1], 500);
    at_least(gaps[2], 1_000);
    daemon.term();
    assert_eq!(daemon.wait_exit(LONG + Duration::from_secs(1)).await, 0);
}
