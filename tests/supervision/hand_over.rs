//! Goal: the next command starts only when the previous one is gone, and then immediately (I6).

use std::time::Duration;

use leasehold_testbed::daemon::{boottime_ns, nanos};
use leasehold_testbed::{Daemon, DaemonTimings, Witness};

use crate::contest::{Contest, LONG};
use crate::journal::{Behaviour, Journal};

const SHORT: DaemonTimings = DaemonTimings::SHORT;
/// Interval after the first stop signal within which another one is the same request.
const SAME_REQUEST: Duration = Duration::from_secs(1);

/// Longer than any test waits. With a command, the handoff delay does not apply.
const HANDOFF_DELAY: &str = "1h";

async fn pair(
    contest: &Contest,
    journal: &Journal,
    behaviour: &Behaviour,
    flag: &str,
) -> [Daemon; 2] {
    let start = |identity| {
        contest
            .candidate_with(identity, SHORT, HANDOFF_DELAY)
            .flag(flag)
            .workload(journal.command(behaviour))
            .start()
    };
    let old = start("old");
    journal.wait("start", 1).await;
    let new = start("new");
    new.wait_follows("old", LONG).await;
    [old, new]
}

#[tokio::test]
async fn a_graceful_hand_over_waits_for_the_command_and_then_is_quick() {
    let (contest, journal) = (Contest::new("quick").await, Journal::new());
    let [old, _new] = pair(
        &contest,
        &journal,
        &Behaviour::Obedient,
        "--workload-on-exit=exit",
    )
    .await;
    assert_eq!(old.term_and_exit(LONG).await, 0);
    let (end, start) = (journal.wait("end", 1).await, journal.wait("start", 2).await);
    assert_eq!((end.token, start.token), (1, 2));
    assert!(start.at >= end.at);
    assert_eq!(contest.last_ended().await.reason, "shutdown", "released");
    journal.assert_one_after_the_other();
    let logs = old.logs();
    assert!(logs.contains("workload stopped"), "{logs}");
}

#[tokio::test]
async fn i6_a_drain_longer_than_the_lease_keeps_it() {
    let (contest, journal) = (Contest::new("long-drain").await, Journal::new());
    let behaviour = Behaviour::Slow("4");
    let [old, new] = pair(&contest, &journal, &behaviour, "--workload-stop-grace=20s").await;
    let witness = Witness::of([&old, &new]);
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
    assert_eq!(witness.violations(), [""; 0]);
    assert_eq!(contest.last_ended().await.reason, "shutdown");
}

#[tokio::test]
async fn a_command_that_ignores_the_signal_is_killed_after_its_grace() {
    let (contest, journal) = (Contest::new("stubborn").await, Journal::new());
    let [old, _new] = pair(
        &contest,
        &journal,
        &Behaviour::Stubborn,
        "--workload-stop-grace=500ms",
    )
    .await;
    // The shell records the signal when it is scheduled, which may be later.
    let asked = boottime_ns();
    old.term();
    journal.wait("ignored", 1).await;
    let start = journal.wait("start", 2).await;
    assert_eq!(old.wait_exit(LONG).await, 0);
    let grace = nanos(Duration::from_millis(500));
    // Lines are rounded to 10 ms.
    assert!(start.at + 10_000_000 >= asked + grace, "{} ns", start.at);
    assert_eq!(contest.last_ended().await.reason, "shutdown", "released");
    journal.assert_one_after_the_other();
}

#[tokio::test]
async fn two_signals_milliseconds_apart_are_one() {
    let (contest, journal) = (Contest::new("as-one").await, Journal::new());
    let [old, _new] = pair(
        &contest,
        &journal,
        &Behaviour::Slow("0.3"),
        "--workload-stop-grace=1h",
    )
    .await;
    old.term();
    tokio::time::sleep(Duration::from_millis(3)).await;
    assert_eq!(old.term_and_exit(LONG).await, 0);
    let (end, start) = (journal.wait("end", 1).await, journal.wait("start", 2).await);
    assert_eq!((end.token, start.token), (1, 2), "it had its grace");
    assert_eq!(contest.last_ended().await.reason, "shutdown", "released");
    journal.assert_one_after_the_other();
}

#[tokio::test]
async fn a_second_signal_ends_the_command_too() {
    let (contest, journal) = (Contest::new("twice").await, Journal::new());
    let [old, _new] = pair(
        &contest,
        &journal,
        &Behaviour::Stubborn,
        "--workload-stop-grace=1h",
    )
    .await;
    old.term();
    journal.wait("ignored", 1).await;
    tokio::time::sleep(SAME_REQUEST).await;
    assert_eq!(old.term_and_exit(LONG).await, 1);
    let start = journal.wait("start", 2).await;
    let last = journal.lines().into_iter().rfind(|line| line.token == 1);
    assert!(start.at >= last.unwrap().at);
    journal.assert_one_after_the_other();
}
