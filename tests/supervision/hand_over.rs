//! Goal: at a handoff, two commands never run at once (I6), and the next command starts immediately
//! after the previous command has exited.

use std::time::Duration;

use leasehold_testbed::daemon::{boottime_ns, nanos};
use leasehold_testbed::{Daemon, DaemonTimings, LeaderMonitor, assert_contains};

use crate::contest::{Contest, LONG, eventually};
use crate::journal::{Behaviour, Journal};

const SHORT: DaemonTimings = DaemonTimings::SHORT;
/// A second stop signal within this time counts as a repetition of the first signal.
const SAME_REQUEST: Duration = Duration::from_secs(1);

async fn pair(lease: &str, behaviour: Behaviour, flag: &str) -> (Contest, Journal, [Daemon; 2]) {
    pair_at(SHORT, lease, behaviour, flag).await
}

async fn pair_at(
    timings: DaemonTimings,
    lease: &str,
    behaviour: Behaviour,
    flag: &str,
) -> (Contest, Journal, [Daemon; 2]) {
    let (contest, journal) = (Contest::new(lease).await, Journal::new());
    let candidate = |identity| {
        let candidate = contest.candidate_at(identity, timings).flag(flag);
        journal.run_by(candidate, &behaviour)
    };
    let old = candidate("old").start();
    journal.wait("start", 1).await;
    let new = candidate("new").following("old", LONG).await;
    (contest, journal, [old, new])
}

#[tokio::test]
async fn a_graceful_hand_over_waits_for_the_command_and_then_is_quick() {
    let (contest, journal, [old, _new]) =
        pair("quick", Behaviour::Obedient, "--workload-on-exit=exit").await;
    assert_eq!(old.term_and_exit(LONG).await, 0);
    let (end, start) = (journal.wait("end", 1).await, journal.wait("start", 2).await);
    assert_eq!((end.token, start.token), (1, 2));
    assert!(start.at >= end.at);
    assert_eq!(contest.last_ended().await.reason, "shutdown", "released");
    journal.assert_one_after_the_other();
    assert_contains(&old.logs(), "workload stopped");
}

#[tokio::test]
async fn i6_a_drain_longer_than_the_lease_keeps_it() {
    let (contest, journal, [old, new]) = pair(
        "long-drain",
        Behaviour::Slow("4"),
        "--workload-stop-grace=20s",
    )
    .await;
    let monitor = LeaderMonitor::of([&old, &new]);
    old.term();
    let stopping = journal.wait("stopping", 1).await;
    old.wait_role("stopping", LONG).await;
    let (end, start) = (journal.wait("end", 1).await, journal.wait("start", 2).await);
    assert!(
        end.at - stopping.at > nanos(SHORT.lease_duration),
        "the lease is 3 s"
    );
    assert!(start.at >= end.at);
    assert_eq!(old.wait_exit(LONG).await, 0);
    journal.assert_one_after_the_other();
    assert_eq!(monitor.violations(), [""; 0]);
    assert_eq!(contest.last_ended().await.reason, "shutdown");
}

#[tokio::test]
async fn a_command_that_ignores_the_signal_is_killed_after_its_grace() {
    let (contest, journal, [old, _new]) =
        pair("stubborn", Behaviour::Stubborn, "--workload-stop-grace=2s").await;
    // Take the time before the signal, because the command may record the signal late.
    let asked = boottime_ns();
    old.term();
    journal.wait("ignored", 1).await;
    let start = journal.wait("start", 2).await;
    assert_eq!(old.wait_exit(LONG).await, 0);
    let grace = nanos(Duration::from_secs(2));
    // The journal's times are rounded down to 10 ms.
    assert!(start.at + 10_000_000 >= asked + grace, "{} ns", start.at);
    assert_eq!(contest.last_ended().await.reason, "shutdown", "released");
    journal.assert_one_after_the_other();
}

#[tokio::test]
async fn two_signals_milliseconds_apart_count_as_one() {
    let (contest, journal, [old, _new]) =
        pair("as-one", Behaviour::Slow("0.3"), "--workload-stop-grace=1h").await;
    old.term();
    tokio::time::sleep(Duration::from_millis(3)).await;
    assert_eq!(old.term_and_exit(LONG).await, 0);
    let (end, start) = (journal.wait("end", 1).await, journal.wait("start", 2).await);
    assert_eq!(
        (end.token, start.token),
        (1, 2),
        "the command had time to exit by itself"
    );
    assert_eq!(contest.last_ended().await.reason, "shutdown", "released");
    journal.assert_one_after_the_other();
}

#[tokio::test]
async fn a_second_signal_ends_the_command_too() {
    let (_contest, journal, [old, _new]) =
        pair("twice", Behaviour::Stubborn, "--workload-stop-grace=1h").await;
    old.term();
    journal.wait("ignored", 1).await;
    tokio::time::sleep(SAME_REQUEST).await;
    assert_eq!(old.term_and_exit(LONG).await, 1);
    let start = journal.wait("start", 2).await;
    let last = journal.lines().into_iter().rfind(|line| line.token == 1);
    assert!(start.at >= last.unwrap().at);
    journal.assert_one_after_the_other();
}

#[tokio::test]
async fn after_a_second_signal_the_command_has_time_until_its_deadline() {
    let behaviour = Behaviour::Slow("3");
    let flag = "--workload-stop-grace=1h";
    let (_contest, journal, [old, _new]) =
        pair_at(DaemonTimings::DEFAULT, "twice-slow", behaviour, flag).await;
    old.term();
    journal.wait("stopping", 1).await;
    tokio::time::sleep(SAME_REQUEST).await;
    assert_eq!(old.term_and_exit(LONG).await, 1);
    let end = journal.wait("end", 1).await;
    let start = journal.wait("start", 2).await;
    assert_eq!((end.token, start.token), (1, 2));
    journal.assert_one_after_the_other();
}

/// Runs a shell script, which gets the words of a command as `$@`.
fn script(contest: &Contest, script: &str, command: Vec<String>, grace: &str) -> Daemon {
    let script = ["sh", "-c", script, "sh"].map(str::to_owned);
    let candidate = contest.candidate_at("a", SHORT);
    let candidate = candidate.flag(&format!("--workload-stop-grace={grace}"));
    candidate
        .workload(script.into_iter().chain(command))
        .start()
}

/// timeout(1) has a process group of its own, so it does not get the signal of its parent's group.
#[tokio::test]
async fn a_process_in_another_group_is_asked_to_stop_once_its_parent_is_gone() {
    let (contest, journal) = (Contest::new("other-group").await, Journal::new());
    let command = journal.command(&Behaviour::Obedient);
    let daemon = script(&contest, r#"timeout 600 "$@"; :"#, command, "1h");
    // A process that started within 10 ms of the signal may count as started by its handler.
    journal.wait("tick", 2).await;
    assert_eq!(daemon.term_and_exit(LONG).await, 0);
    assert_eq!(journal.of("end").len(), 1);
}

#[tokio::test]
async fn an_orphan_in_another_session_is_asked_to_stop_once() {
    let (contest, journal) = (Contest::new("other-session").await, Journal::new());
    let command = journal.command(&Behaviour::Stubborn);
    let orphan = r#"(setsid "$@" &); exec sleep 600"#;
    let daemon = script(&contest, orphan, command, "2s");
    journal.wait("start", 1).await;
    assert_eq!(daemon.term_and_exit(LONG).await, 0);
    assert_eq!(journal.of("ignored").len(), 1);
}

#[tokio::test]
async fn a_process_that_a_handler_of_the_stop_signal_starts_is_not_asked_to_stop() {
    let (contest, journal) = (Contest::new("of-handler").await, Journal::new());
    let command = journal.command(&Behaviour::Obedient);
    let ready = journal.path("ready");
    let handler = format!(
        r#"trap 'setsid "$@" & exit 0' TERM; : >{}; while :; do sleep 0.02; done"#,
        ready.display()
    );
    let daemon = script(&contest, &handler, command, "6s");
    eventually("the script has its handler", async || ready.exists()).await;
    assert_eq!(daemon.term_and_exit(LONG).await, 0);
    let started = journal.of("start").len();
    assert_eq!(started, 1, "{}: {}", journal.text(), daemon.logs());
    assert_eq!(journal.of("end").len(), 0, "{}", journal.text());
}
