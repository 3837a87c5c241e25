//! Goal: the command is gone by its deadline, whatever happens to the daemon (I5), and a restarted
//! daemon leads again as soon as the command is gone.

use std::time::Duration;

use leasehold_testbed::daemon::{boottime_ns, nanos};
use leasehold_testbed::{Daemon, DaemonTimings, skip};
use rustix::process::{Pid, Signal, kill_process};

use crate::contest::{Contest, LONG, eventually};
use crate::journal::{Behaviour, Journal, Line};

const SHORT: DaemonTimings = DaemonTimings::SHORT;

/// True if a process exists and has not exited. An orphan stays a zombie as long as its new parent
/// does not wait for it, as in a container without an init.
fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.rsplit(") ").next().unwrap().starts_with('Z'))
}

fn process(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
}

/// Starts a leader with a command that ignores SIGTERM. Returns it with the command's process id.
async fn leader(contest: &Contest, journal: &Journal) -> (Daemon, u32) {
    let daemon = contest
        .candidate_at("a", SHORT)
        .workload(journal.command(&Behaviour::Stubborn))
        .start();
    let pid = journal.wait("start", 1).await.pid;
    (daemon, pid)
}

/// The guard, which is the parent of the command.
fn guard_of(pid: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after = stat.rsplit(')').next().unwrap();
    after.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Maximum delay on a busy machine: the time by which a lease outlasts the last deadline.
const LATE_MAX: Duration = Duration::from_millis(500);

/// Asserts that the first command wrote nothing after the deadline of a renewal that was sent at
/// `sent` or before, plus loss_grace.
fn assert_gone_in_time(journal: &Journal, sent: u64) {
    let first = |line: &Line| line.token == 1;
    let last = journal.lines().into_iter().rfind(first);
    let bound = sent + nanos(SHORT.renew_deadline + SHORT.loss_grace);
    let last = last.unwrap().at;
    assert!(
        last <= bound + nanos(LATE_MAX),
        "{} ns after the deadline",
        last - bound
    );
}

#[tokio::test]
async fn i5_a_killed_daemons_command_is_gone_by_its_deadline() {
    let (contest, journal) = (Contest::new("killed").await, Journal::new());
    let (daemon, pid) = leader(&contest, &journal).await;
    daemon.kill();
    let killed = boottime_ns();
    journal.wait("ignored", 1).await;
    eventually("the command is gone", async || !runs(pid)).await;
    assert_gone_in_time(&journal, killed);
}

#[tokio::test]
async fn i5_a_frozen_daemons_command_is_gone_by_its_deadline() {
    let (contest, journal) = (Contest::new("frozen").await, Journal::new());
    let (daemon, pid) = leader(&contest, &journal).await;
    daemon.stop();
    let stopped = boottime_ns();
    let frozen = daemon.status();
    eventually("the command is gone", async || !runs(pid)).await;
    assert_eq!(daemon.status(), frozen, "it was frozen all the time");
    assert_gone_in_time(&journal, stopped);
    daemon.cont();
    // The daemon leads again, since there is no other candidate, with a new token and a new
    // command.
    let start = journal.wait("start", 2).await;
    assert_eq!(start.token, 2);
    journal.assert_one_after_the_other();
}

#[tokio::test]
async fn i6_a_daemon_that_cannot_renew_starts_again_only_when_its_command_is_gone() {
    let (contest, journal) = (Contest::new("cut-off").await, Journal::new());
    let set = contest.set();
    let proxy = set.proxy();
    let daemon = contest
        .candidate_at("a", SHORT)
        .uri(&contest.set().proxied_uri(&proxy))
        .workload(journal.command(&Behaviour::Stubborn))
        .start();
    let pid = journal.wait("start", 1).await.pid;
    proxy.stall();
    let stalled = boottime_ns();
    journal.wait("ignored", 1).await;
    eventually("the command is gone", async || !runs(pid)).await;
    assert_gone_in_time(&journal, stalled);
    assert!(!daemon.leads());
    daemon.wait_not_leader(LONG).await;
    proxy.resume();
    assert_eq!(journal.wait("start", 2).await.token, 2);
    journal.assert_one_after_the_other();
}

/// The children of all threads of a process.
fn children_of(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    let tasks = tasks.into_iter().flatten().flatten();
    let children = tasks.map(|task| std::fs::read_to_string(task.path().join("children")));
    let children: String = children.map(Result::unwrap_or_default).collect();
    let pids = children.split_whitespace();
    pids.map(|pid| pid.parse().unwrap()).collect()
}

#[tokio::test]
async fn what_waits_for_authority_ends_with_its_daemon() {
    let (contest, journal) = (Contest::new("waiting").await, Journal::new());
    let (_leader, _) = leader(&contest, &journal).await;
    let waits = contest
        .candidate_at("b", SHORT)
        .workload(journal.command(&Behaviour::Stubborn))
        .start();
    let mut prepared = Vec::new();
    eventually("a guard and a shim wait", async || {
        let guard = children_of(waits.pid());
        let shim = guard
            .first()
            .map_or_else(Vec::new, |guard| children_of(*guard));
        prepared = [guard, shim].concat();
        prepared.len() == 2
    })
    .await;
    waits.kill();
    eventually("both are gone", async || {
        !prepared.iter().copied().any(runs)
    })
    .await;
    let starts = journal
        .lines()
        .into_iter()
        .filter(|line| line.what == "start");
    assert_eq!(starts.count(), 1);
}

#[tokio::test]
async fn a_killed_guard_ends_the_command_and_the_leadership() {
    let (contest, journal) = (Contest::new("guard-killed").await, Journal::new());
    let daemon = contest
        .candidate_at("a", SHORT)
        .flag("--workload-on-exit=release")
        .workload(journal.command(&Behaviour::Stubborn))
        .start();
    let pid = journal.wait("start", 1).await.pid;
    kill_process(process(guard_of(pid)), Signal::KILL).unwrap();
    eventually("the command is gone", async || !runs(pid)).await;
    let start = journal.wait("start", 2).await;
    assert_eq!(start.token, 2, "a new claim");
    assert_eq!(contest.last_ended().await.reason, "workload_exit");
    journal.assert_one_after_the_other();
    drop(daemon);
}

#[tokio::test]
async fn i8_a_restarted_daemon_waits_for_the_guard_and_then_leads_at_once() {
    let (contest, journal) = (Contest::new("restarted-guard").await, Journal::new());
    // A lease that does not expire within the test.
    let timings = DaemonTimings {
        lease_duration: Duration::from_secs(600),
        ..SHORT
    };
    let mut daemon = contest
        .candidate_at("a", timings)
        .workload(journal.command(&Behaviour::Stubborn))
        .start();
    let pid = journal.wait("start", 1).await.pid;
    daemon.restart_same_directory();
    let start = journal.wait("start", 2).await;
    assert!(!runs(pid), "the guard had the lock of the claim");
    assert_eq!(start.token, 2);
    journal.assert_one_after_the_other();
    let waited = daemon
        .logs()
        .contains("waiting for the guard of the previous daemon");
    assert!(waited, "{}", daemon.logs());
}

/// A process that no daemon ends. Killed on drop.
struct Ended(u32);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = kill_process(process(self.0), Signal::KILL);
    }
}

/// A lease that does not expire within the test, so that a takeover needs a proof of death.
const NEVER_EXPIRES: DaemonTimings = DaemonTimings {
    lease_duration: Duration::from_secs(600),
    ..SHORT
};

/// Kills a daemon together with the guard of its command, and restarts the daemon.
fn kill_both_and_restart(daemon: &mut Daemon, command: u32) {
    // Stopped, because the running daemon would end the processes that its guard leaves.
    daemon.stop();
    kill_process(process(guard_of(command)), Signal::KILL).unwrap();
    daemon.restart_same_directory();
}

#[tokio::test]
async fn i8_a_daemon_whose_guard_was_killed_with_it_leads_again_when_its_command_is_gone() {
    let (contest, journal) = (Contest::new("both-killed").await, Journal::new());
    let mut daemon = contest
        .candidate_at("a", NEVER_EXPIRES)
        .workload(journal.command(&Behaviour::Stubborn))
        .start();
    let pid = journal.wait("start", 1).await.pid;
    kill_both_and_restart(&mut daemon, pid);
    assert_eq!(journal.wait("start", 2).await.token, 2);
    assert!(!runs(pid), "the kernel ends it with its guard");
    journal.assert_one_after_the_other();
}

#[tokio::test]
async fn i8_a_command_that_outlives_its_guard_is_no_proof_of_death() {
    if !rustix::process::geteuid().is_root() {
        skip("needs root, to run a command as another user");
        return;
    }
    let (contest, journal) = (Contest::new("outlives").await, Journal::new());
    journal.open_to_everybody();
    let as_another = ["setpriv", "--reuid=65534", "--clear-groups"].map(str::to_owned);
    let command = [
        &as_another,
        journal.command(&Behaviour::Stubborn).as_slice(),
    ]
    .concat();
    let mut daemon = contest
        .candidate_at("a", NEVER_EXPIRES)
        .workload(command)
        .start();
    let pid = journal.wait("start", 1).await.pid;
    let _ended = Ended(pid);
    kill_both_and_restart(&mut daemon, pid);
    daemon.wait_role("follower", LONG).await;
    daemon.wait_said("may still run", LONG).await;
    assert!(runs(pid), "nothing ended it");
    // With a proof it would have taken over with its first read.
    let read = journal.of("tick").len();
    journal.wait("tick", read + 25).await;
    assert_eq!(journal.of("start").len(), 1);
}

#[tokio::test]
async fn a_guard_that_waits_and_was_stopped_is_gone_before_its_daemon() {
    let (contest, journal) = (Contest::new("waits-stopped").await, Journal::new());
    let (_leader, _) = leader(&contest, &journal).await;
    let waits = contest
        .candidate_at("b", SHORT)
        .workload(journal.command(&Behaviour::Stubborn))
        .start();
    let mut guards = Vec::new();
    eventually("a guard waits with its shim", async || {
        guards = children_of(waits.pid());
        guards
            .first()
            .is_some_and(|guard| !children_of(*guard).is_empty())
    })
    .await;
    let _ended = Ended(guards[0]);
    kill_process(process(guards[0]), Signal::STOP).unwrap();
    assert_eq!(waits.term_and_exit(Duration::from_secs(10)).await, 0);
    // Not even a zombie is left, which process 1 would have to reap.
    let process = format!("/proc/{}", guards[0]);
    assert!(!std::path::Path::new(&process).exists());
}

#[tokio::test]
async fn a_second_daemon_on_a_living_ones_directory_is_refused_at_once() {
    let (contest, journal) = (Contest::new("second").await, Journal::new());
    let (daemon, _) = leader(&contest, &journal).await;
    let second = contest
        .candidate_at("b", SHORT)
        .status_directory(daemon.status_directory())
        .start();
    // The first daemon is alive, so waiting for its directory would never end.
    assert_eq!(second.wait_exit(LONG).await, 78);
}
