//! Goal: a command never outlives its deadline, even if the daemon is killed or frozen (I5). A
//! restarted daemon does not wait for the lease to expire, but leads again as soon as the command
//! has exited.

use std::time::Duration;

use leasehold_testbed::daemon::{boottime_ns, nanos};
use leasehold_testbed::pid::{self, exists, is_alive};
use leasehold_testbed::{Daemon, DaemonBuilder, DaemonTimings, assert_contains, skip};
use rustix::process::Signal;

use crate::contest::{Contest, LONG, eventually};
use crate::journal::{Behaviour, Journal, Line};

const SHORT: DaemonTimings = DaemonTimings::SHORT;
/// With these timings, a shell on a busy machine has enough time to write a line between SIGTERM
/// and SIGKILL.
const PATIENT: DaemonTimings = DaemonTimings {
    lease_duration: Duration::from_secs(6),
    loss_grace: Duration::from_secs(2),
    ..SHORT
};

/// Starts a leader whose command ignores SIGTERM. Returns the daemon and the command's process id.
async fn leader_of(journal: &Journal, candidate: DaemonBuilder) -> (Daemon, u32) {
    let daemon = journal.run_by(candidate, &Behaviour::Stubborn).start();
    let pid = journal.wait("start", 1).await.pid;
    (daemon, pid)
}

async fn leader(contest: &Contest, journal: &Journal) -> (Daemon, u32) {
    leader_of(journal, contest.candidate_at("a", PATIENT)).await
}

fn waiting(contest: &Contest, journal: &Journal) -> Daemon {
    let candidate = contest.candidate_at("b", PATIENT);
    journal.run_by(candidate, &Behaviour::Stubborn).start()
}

async fn wait_gone(pid: u32) {
    eventually("the command exits", async || !is_alive(pid)).await;
}

/// Tolerated delay on a busy machine, equal to the time between the last deadline and the expiry of
/// the lease.
const LATE_MAX: Duration = Duration::from_millis(500);

/// Asserts that the first command wrote nothing after its deadline, which is `renew_deadline` +
/// `loss_grace` after the last renewal. The last renewal was sent no later than `sent`.
fn assert_gone_in_time(journal: &Journal, sent: u64) {
    let first = |line: &Line| line.token == 1;
    let last = journal.lines().into_iter().rfind(first);
    let bound = sent + nanos(PATIENT.renew_deadline + PATIENT.loss_grace);
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
    wait_gone(pid).await;
    assert_gone_in_time(&journal, killed);
}

#[tokio::test]
async fn i5_a_frozen_daemons_command_is_gone_by_its_deadline() {
    let (contest, journal) = (Contest::new("frozen").await, Journal::new());
    let (daemon, pid) = leader(&contest, &journal).await;
    daemon.stop();
    let stopped = boottime_ns();
    let frozen = daemon.status();
    wait_gone(pid).await;
    assert_eq!(daemon.status(), frozen, "the daemon did not run meanwhile");
    assert_gone_in_time(&journal, stopped);
    daemon.cont();
    // There is no other candidate, so the daemon leads again, with a new token and a new command.
    let start = journal.wait("start", 2).await;
    assert_eq!(start.token, 2);
    journal.assert_one_after_the_other();
}

#[tokio::test]
async fn i6_a_daemon_that_cannot_renew_starts_again_only_when_its_command_is_gone() {
    let (contest, journal) = (Contest::new("cut-off").await, Journal::new());
    let (proxy, candidate) = contest.behind_proxy(PATIENT);
    let (daemon, pid) = leader_of(&journal, candidate).await;
    proxy.stall();
    let stalled = boottime_ns();
    journal.wait("ignored", 1).await;
    wait_gone(pid).await;
    assert_gone_in_time(&journal, stalled);
    assert!(!daemon.leads());
    daemon.wait_not_leader(LONG).await;
    proxy.resume();
    assert_eq!(journal.wait("start", 2).await.token, 2);
    journal.assert_one_after_the_other();
}

#[tokio::test]
async fn a_standby_guard_ends_with_its_daemon() {
    let (contest, journal) = (Contest::new("waiting").await, Journal::new());
    let (_leader, _) = leader(&contest, &journal).await;
    let waits = waiting(&contest, &journal);
    let mut prepared = Vec::new();
    eventually("a guard and a shim wait", async || {
        let guard = pid::children(waits.pid());
        let shim = guard.iter().flat_map(|guard| pid::children(*guard));
        prepared = shim.chain(guard.iter().copied()).collect();
        prepared.len() == 2
    })
    .await;
    waits.kill();
    eventually("both are gone", async || {
        !prepared.iter().copied().any(is_alive)
    })
    .await;
    assert_eq!(journal.of("start").len(), 1);
}

#[tokio::test]
async fn a_killed_guard_ends_the_command_and_the_leadership() {
    let (contest, journal) = (Contest::new("guard-killed").await, Journal::new());
    let candidate = contest.candidate_at("a", SHORT);
    let candidate = candidate.flag("--workload-on-exit=release");
    let (_daemon, pid) = leader_of(&journal, candidate).await;
    pid::signal(pid::parent(pid), Signal::KILL);
    wait_gone(pid).await;
    let start = journal.wait("start", 2).await;
    assert_eq!(start.token, 2, "a new claim");
    assert_eq!(contest.last_ended().await.reason, "workload_exit");
    journal.assert_one_after_the_other();
}

#[tokio::test]
async fn i8_a_restarted_daemon_waits_for_the_guard_and_then_leads_at_once() {
    let (contest, journal) = (Contest::new("restarted-guard").await, Journal::new());
    let candidate = contest.candidate_at("a", NEVER_EXPIRES);
    let (mut daemon, pid) = leader_of(&journal, candidate).await;
    daemon.restart_same_directory();
    let start = journal.wait("start", 2).await;
    assert!(
        !is_alive(pid),
        "the guard kept the claim file locked until the command had exited"
    );
    assert_eq!(start.token, 2);
    journal.assert_one_after_the_other();
    let waited = "waiting for the guard of the previous daemon";
    assert_contains(&daemon.logs(), waited);
}

/// As process 1 of a container, a daemon without handlers would ignore SIGTERM.
#[tokio::test]
async fn a_daemon_that_waits_for_the_guard_can_be_stopped() {
    let (contest, journal) = (Contest::new("stopped-wait").await, Journal::new());
    let candidate = contest.candidate_at("a", NEVER_EXPIRES);
    let mut daemon = journal.run_by(candidate, &Behaviour::Stubborn).start();
    let command = Ended(journal.wait("start", 1).await.pid);
    daemon.restart_same_directory();
    let waits = "waiting for the guard of the previous daemon";
    daemon.wait_logged(waits, LONG).await;
    assert_eq!(daemon.term_and_exit(LONG).await, 0);
    assert!(is_alive(command.0), "its deadline is not reached");
    assert_contains(&daemon.logs(), "stopped");
}

/// Kills a process on drop, because its daemon may leave the process running.
pub(crate) struct Ended(pub(crate) u32);

impl Drop for Ended {
    fn drop(&mut self) {
        if exists(self.0) {
            pid::signal(self.0, Signal::KILL);
        }
    }
}

/// The lease does not expire during the test, so a takeover requires proof that the command has
/// exited.
const NEVER_EXPIRES: DaemonTimings = DaemonTimings {
    lease_duration: Duration::from_secs(600),
    ..SHORT
};

fn kill_both_and_restart(daemon: &mut Daemon, command: u32) {
    // Freeze the daemon first, because a running daemon would end the processes that the killed
    // guard leaves behind.
    daemon.stop();
    pid::signal(pid::parent(command), Signal::KILL);
    daemon.restart_same_directory();
}

#[tokio::test]
async fn i8_a_daemon_whose_guard_was_killed_with_it_leads_again_when_its_command_is_gone() {
    let (contest, journal) = (Contest::new("both-killed").await, Journal::new());
    let candidate = contest.candidate_at("a", NEVER_EXPIRES);
    let (mut daemon, pid) = leader_of(&journal, candidate).await;
    kill_both_and_restart(&mut daemon, pid);
    assert_eq!(journal.wait("start", 2).await.token, 2);
    assert!(!is_alive(pid), "the kernel kills the command");
    journal.assert_one_after_the_other();
}

#[tokio::test]
async fn i8_a_command_that_outlives_its_guard_does_not_prove_an_exit() {
    if !rustix::process::geteuid().is_root() {
        skip("needs root, to run a command as another user");
        return;
    }
    let (contest, journal) = (Contest::new("outlives").await, Journal::new());
    journal.open_to_all_users();
    let as_another = ["setpriv", "--reuid=65534", "--clear-groups"].map(str::to_owned);
    let command = journal.command(&Behaviour::Stubborn);
    let command = as_another.into_iter().chain(command);
    let mut daemon = contest
        .candidate_at("a", NEVER_EXPIRES)
        .workload(command)
        .start();
    let pid = journal.wait("start", 1).await.pid;
    let _ended = Ended(pid);
    kill_both_and_restart(&mut daemon, pid);
    daemon.wait_role("follower", LONG).await;
    daemon.wait_logged("may still run", LONG).await;
    assert!(is_alive(pid), "nothing ended it");
    // With proof that the command had exited, the daemon would have taken over at its first read,
    // long before this many ticks.
    let read = journal.of("tick").len();
    journal.wait("tick", read + 25).await;
    assert_eq!(journal.of("start").len(), 1);
}

#[tokio::test]
async fn a_guard_that_waits_and_was_stopped_is_gone_before_its_daemon() {
    let (contest, journal) = (Contest::new("waits-stopped").await, Journal::new());
    let (_leader, _) = leader(&contest, &journal).await;
    let waits = waiting(&contest, &journal);
    let mut guards = Vec::new();
    eventually("a guard waits with its shim", async || {
        guards = pid::children(waits.pid());
        guards
            .first()
            .is_some_and(|guard| !pid::children(*guard).is_empty())
    })
    .await;
    let _ended = Ended(guards[0]);
    // An idle daemon sets a large timer slack, which only a privileged process may read.
    let slack = || std::fs::read_to_string(format!("/proc/{}/timerslack_ns", waits.pid()));
    if slack().is_ok() {
        eventually("the daemon is idle", async || {
            slack().unwrap().trim() == "1000000000"
        })
        .await;
    }
    pid::signal(guards[0], Signal::STOP);
    assert_eq!(waits.term_and_exit(Duration::from_secs(10)).await, 0);
    // The guard's process has been reaped, so not even a zombie remains.
    assert!(!exists(guards[0]));
}

#[tokio::test]
async fn a_second_daemon_on_a_used_directory_is_refused_immediately() {
    let (contest, journal) = (Contest::new("second").await, Journal::new());
    let (daemon, _) = leader(&contest, &journal).await;
    let second = contest
        .candidate_at("b", SHORT)
        .status_directory(daemon.status_directory())
        .start();
    // The second daemon must not wait for the directory, because the first daemon keeps running.
    assert_eq!(second.wait_exit(LONG).await, 78);
}
