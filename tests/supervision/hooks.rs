//! Goal: hooks run when leadership begins and ends, in order, and never delay a deadline.

use std::time::Duration;

use leasehold_testbed::daemon::{boottime_ns, nanos};
use leasehold_testbed::pid::exists;
use leasehold_testbed::{DaemonTimings, assert_contains};

use crate::contest::{Contest, LONG, eventually};
use crate::journal::{Behaviour, Journal, Line};

/// Returns flags for hooks, each given as (event, word, rest of the script). A hook first writes a
/// journal line with the word.
fn hooks(journal: &Journal, hooks: &[(&str, &str, &str)]) -> Vec<String> {
    let journal = journal.path("journal").display().to_string();
    let flag = |(at, what, more): &(&str, &str, &str)| {
        let script = format!(
            "read -r up _ < /proc/uptime; echo \"${{up%.*}}${{up#*.}} {what} $LEASEHOLD_TOKEN \
             $LEASEHOLD_IDENTITY $$\" >> {journal}; {more}"
        );
        let hook = serde_json::to_string(&["sh", "-c", &script]).unwrap();
        format!("--hooks-on-{at}={hook}")
    };
    hooks.iter().map(flag).collect()
}

async fn wait_killed(line: &Line) {
    eventually("the hook is killed", async || !exists(line.pid)).await;
}

#[tokio::test]
async fn hooks_are_run_when_leadership_begins_and_before_the_release() {
    let (contest, journal) = (Contest::new("hooks").await, Journal::new());
    let hooks = hooks(
        &journal,
        &[("lead", "lead", ""), ("step-down", "down", "sleep 0.3")],
    );
    let start = |identity| contest.candidate(identity).flags(&hooks).start();
    let a = start("a");
    assert_eq!(journal.wait("lead", 1).await.token, 1);
    let b = start("b");
    b.wait_follows("a", LONG).await;
    a.term();
    let (down, lead) = (journal.wait("down", 1).await, journal.wait("lead", 2).await);
    assert_eq!((down.token, lead.token), (1, 2));
    assert_eq!(lead.identity, "b");
    assert!(
        lead.at >= down.at + nanos(Duration::from_millis(290)),
        "the release waited for the hook"
    );
    assert_eq!(a.wait_exit(LONG).await, 0);
}

#[tokio::test]
async fn a_hook_that_hangs_is_killed_and_holds_up_nothing_beyond_its_time() {
    let (contest, journal) = (Contest::new("hanging-hooks").await, Journal::new());
    let hang = [
        ("lead", "lead", "sleep 1000"),
        ("step-down", "down", "sleep 1000"),
    ];
    let a = contest
        .candidate("a")
        .flags(hooks(&journal, &hang))
        .flag("--hooks-timeout=2s")
        .leading(LONG)
        .await;
    let lead = journal.wait("lead", 1).await;
    wait_killed(&lead).await;
    assert!(a.leads(), "the leadership continues");
    assert_eq!(a.term_and_exit(LONG).await, 0);
    assert_eq!(contest.last_ended().await.reason, "shutdown");
    assert_contains(&a.logs(), "a hook failed");
}

#[tokio::test]
async fn i5_a_frozen_daemons_hook_has_no_more_than_the_deadline_and_the_other_is_run_on_waking() {
    let (contest, journal) = (Contest::new("frozen-hooks").await, Journal::new());
    let timings = DaemonTimings::SHORT;
    let a = contest
        .candidate_at("a", timings)
        .flags(hooks(
            &journal,
            &[("lead", "lead", "sleep 1000"), ("step-down", "down", "")],
        ))
        .flag("--hooks-timeout=1h")
        .start();
    let lead = journal.wait("lead", 1).await;
    a.stop();
    let stopped = boottime_ns();
    wait_killed(&lead).await;
    let bound = stopped + nanos(timings.renew_deadline + timings.loss_grace);
    assert!(boottime_ns() < bound + nanos(Duration::from_secs(1)));
    assert_eq!(journal.of("down"), []);
    // If the guard has not received the last renewal, it kills the hook before the leadership ends.
    let ended = stopped + nanos(timings.renew_deadline);
    eventually("the leadership ended", async || boottime_ns() > ended).await;
    a.cont();
    assert_eq!(journal.wait("down", 1).await.token, 1);
}

#[tokio::test]
async fn hooks_work_together_with_a_command() {
    let (contest, journal) = (Contest::new("both").await, Journal::new());
    let hooks = hooks(&journal, &[("step-down", "down", "")]);
    let a = contest.candidate("a").flags(hooks);
    let a = journal.run_by(a, &Behaviour::Obedient).start();
    journal.wait("start", 1).await;
    assert_eq!(a.term_and_exit(LONG).await, 0);
    let (end, down) = (journal.wait("end", 1).await, journal.wait("down", 1).await);
    assert!(
        down.at >= end.at,
        "the hook runs after the command has exited"
    );
}

/// Starts a leader with this step-down hook and a handoff delay of 2 s. Returns the time from the
/// leader's SIGTERM until the follower leads.
async fn handed_over_after(lease: &str, hook: &str, flags: &[&str]) -> Duration {
    let contest = Contest::new(lease).await;
    let hook = serde_json::to_string(&["sh", "-c", hook]).unwrap();
    let a = contest
        .candidate_with("a", DaemonTimings::DEMO, "2s")
        .flag(&format!("--hooks-on-step-down={hook}"))
        .flags(flags)
        .leading(LONG)
        .await;
    let b = contest.candidate("b").following("a", LONG).await;
    let asked = boottime_ns();
    a.term();
    b.wait_leads_with(2, LONG).await;
    let took = boottime_ns() - asked;
    assert_eq!(contest.last_ended().await.reason, "shutdown", "released");
    Duration::from_nanos(took)
}

#[tokio::test]
async fn i6_a_hook_confirms_only_if_it_is_declared_to_stop_the_workload_and_exits_0() {
    let declared = ["--hooks-on-step-down-stops-workload=true"];
    let delay = Duration::from_millis(1_990);
    let notified = handed_over_after("hook-notifies", "exit 0", &[]).await;
    assert!(notified >= delay, "a notification: {notified:?}");
    let failed = handed_over_after("hook-fails", "exit 1", &declared).await;
    assert!(failed >= delay, "failing step-down hook: {failed:?}");
    let stopped = handed_over_after("hook-stops", "exit 0", &declared).await;
    assert!(stopped < delay, "successful step-down hook: {stopped:?}");
}

#[tokio::test]
async fn a_restarted_daemon_waits_for_a_hook_that_may_take_longer_than_the_lease() {
    let (contest, journal) = (Contest::new("hook-outlives").await, Journal::new());
    let script = [(
        "step-down",
        "down",
        "trap '' TERM; while :; do sleep 0.1; done",
    )];
    let mut a = contest
        .candidate_at("a", DaemonTimings::SHORT)
        .flags(hooks(&journal, &script))
        .flag("--hooks-timeout=9s")
        .leading(LONG)
        .await;
    a.signal(rustix::process::Signal::USR1);
    let hook = journal.wait("down", 1).await;
    a.kill();
    a.restart_same_directory();
    wait_killed(&hook).await;
    assert_eq!(a.exit_code(), None, "the leader waits for the hook");
    a.wait_leads_with(2, LONG).await;
}
