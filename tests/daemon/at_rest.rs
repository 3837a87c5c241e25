//! Goal: the daemon sets a coarse timer slack only while idle. Processes that the daemon starts get
//! the normal slack.

use std::io::ErrorKind;

use leasehold_testbed::{Daemon, DaemonTimings, Scratch, skip};

use crate::contest::{Contest, LONG, eventually};

/// Timer slack of an idle daemon in nanoseconds.
const COARSE: &str = "1000000000";

/// Returns the timer slack of the daemon's first thread, which runs the event loop.
fn slack(daemon: &Daemon) -> String {
    try_slack(daemon).unwrap().trim().to_owned()
}

fn try_slack(daemon: &Daemon) -> std::io::Result<String> {
    std::fs::read_to_string(format!("/proc/{}/timerslack_ns", daemon.pid()))
}

fn is_shown(daemon: &Daemon) -> bool {
    let refused = try_slack(daemon).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
    if refused {
        skip("reading another process's timer slack needs CAP_SYS_NICE");
    }
    !refused
}

/// Returns this thread's timer slack, which its daemons inherit.
fn exact() -> String {
    let slack = rustix::thread::current_timer_slack().unwrap();
    slack.to_string()
}

async fn wait_slack(daemon: &Daemon, expected: &str, when: &str) {
    eventually(when, async || slack(daemon) == expected).await;
}

#[tokio::test]
async fn timers_are_coarse_while_idle_and_exact_while_mongodb_is_unresponsive() {
    let contest = Contest::new("at-rest").await;
    let (proxy, behind) = contest.behind_proxy(DaemonTimings::DEMO);
    let leader = behind.leading(LONG).await;
    if !is_shown(&leader) {
        return;
    }
    assert_eq!(slack(&leader), exact(), "the daemon has just begun to lead");
    wait_slack(&leader, COARSE, "the leader is idle").await;
    proxy.stall();
    wait_slack(&leader, &exact(), "a renewal is pending").await;
    leader.wait_not_leader(LONG).await;
    assert_eq!(slack(&leader), exact(), "MongoDB is unreachable");
    proxy.resume();
    leader.wait_leads_with(2, LONG).await;
    wait_slack(&leader, COARSE, "the leader is idle again").await;
}

#[tokio::test]
async fn a_hook_of_an_idle_daemon_has_exact_timers() {
    let contest = Contest::new("hook-at-rest").await;
    let scratch = Scratch::new();
    let file = scratch.path().join("slack");
    let script = format!("cat /proc/self/timerslack_ns > {}", file.display());
    let hook = serde_json::to_string(&["sh", "-c", &script]).unwrap();
    let leader = contest.candidate("a").leading(LONG).await;
    let follower = contest
        .candidate("b")
        .flag(&format!("--hooks-on-lead={hook}"))
        .following("a", LONG)
        .await;
    if !is_shown(&follower) {
        return;
    }
    wait_slack(&follower, COARSE, "the follower is idle").await;
    leader.term();
    let read = || std::fs::read_to_string(&file).unwrap_or_default();
    eventually("the hook has run", async || !read().trim().is_empty()).await;
    assert_eq!(read().trim(), exact());
}

#[tokio::test]
async fn a_daemon_with_a_health_check_has_exact_timers() {
    let contest = Contest::new("health-at-rest").await;
    let watched = contest
        .candidate("a")
        .flag(r#"--workload-health-command=["true"]"#)
        .leading(LONG)
        .await;
    let other = Contest::new("no-health-at-rest").await;
    let plain = other.candidate("b").leading(LONG).await;
    if !is_shown(&plain) {
        return;
    }
    wait_slack(&plain, COARSE, "the daemon without a health check is idle").await;
    assert_eq!(slack(&watched), exact());
}
