//! Goal: a command that survives SIGKILL does not block the lease indefinitely (I10). The replica
//! must not release the lease while the command runs (I6), so it lets the lease expire within a
//! bounded time.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use leasehold_testbed::daemon::{boottime_ns, nanos};
use leasehold_testbed::pid::{self, exists};
use leasehold_testbed::{Daemon, DaemonBuilder, DaemonTimings, LeaderMonitor, skip};
use mongodb::bson::Bson;
use rustix::process::Signal;

use crate::contest::{Contest, LONG, PROGRAM, eventually};
use crate::journal::{Behaviour, Journal};

const SHORT: DaemonTimings = DaemonTimings::SHORT;
const STOP_GRACE: Duration = Duration::from_secs(1);
/// Tolerance for a busy machine, in addition to the documented bound.
const LATE_MAX: Duration = Duration::from_secs(3);

/// A command that runs as another user, so that its daemon may not signal it. Killed on drop.
struct Foreign(u32);

impl Drop for Foreign {
    fn drop(&mut self) {
        if exists(self.0) {
            pid::signal(self.0, Signal::KILL);
        }
    }
}

/// Writes a script that drops the capability to signal other users' processes and then runs
/// leasehold.
fn powerless(journal: &Journal) -> PathBuf {
    let path = journal.path("powerless");
    let script =
        format!("#!/bin/sh\nexec setpriv --bounding-set=-kill --inh-caps=-kill {PROGRAM} \"$@\"\n");
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    path
}

/// Builds a daemon that may not signal its own command.
fn candidate(contest: &Contest, lease: &str, journal: &Journal) -> DaemonBuilder {
    let as_another = ["setpriv", "--reuid=65534", "--clear-groups"].map(str::to_owned);
    let command = journal.command(&Behaviour::Stubborn);
    Daemon::builder(powerless(journal))
        .lease(lease)
        .identity("old")
        .uri(&contest.set().uri())
        .timings(SHORT)
        .flag("--workload-stop-grace=1s")
        .workload(as_another.into_iter().chain(command))
}

/// Only root can start a command that the daemon cannot kill. For any other user, reports the test
/// as skipped and returns true.
fn unprivileged() -> bool {
    let unprivileged = !rustix::process::geteuid().is_root();
    if unprivileged {
        skip("needs root, to run a command as another user");
    }
    unprivileged
}

#[tokio::test]
async fn i10_a_shutdown_does_not_keep_the_lease_for_a_command_that_survives_sigkill() {
    if unprivileged() {
        return;
    }
    let (contest, journal) = (Contest::new("stuck").await, Journal::new());
    journal.open_to_all_users();
    let old = candidate(&contest, "stuck", &journal).start();
    let command = Foreign(journal.wait("start", 1).await.pid);
    let new = contest
        .candidate_at("new", SHORT)
        .following("old", LONG)
        .await;
    let monitor = LeaderMonitor::of([&old, &new]);
    let asked = boottime_ns();
    old.term();
    new.wait_leads_with(2, LONG).await;
    let took = boottime_ns() - asked;
    let stuck = STOP_GRACE + SHORT.loss_grace + Duration::from_secs(1);
    assert!(took > nanos(stuck), "not while the command may still stop");
    assert!(took < nanos(stuck + SHORT.lease_duration + LATE_MAX));
    assert!(exists(command.0), "the command still runs");
    assert_eq!(old.wait_exit(LONG).await, 0);
    old.wait_logged("workload still runs after SIGKILL", LONG)
        .await;
    let ended = contest.last_ended().await;
    assert_eq!(
        (ended.token, ended.reason.as_str()),
        (1, "took_over"),
        "not released"
    );
    assert_eq!(monitor.violations(), [""; 0]);
}

#[tokio::test]
async fn i10_after_a_step_down_it_follows_until_the_command_is_gone_and_says_why() {
    if unprivileged() {
        return;
    }
    let (contest, journal) = (Contest::new("stuck-running").await, Journal::new());
    journal.open_to_all_users();
    let old = candidate(&contest, "stuck-running", &journal).start();
    let command = Foreign(journal.wait("start", 1).await.pid);
    old.signal(Signal::USR1);
    let status = old.wait_role("follower", LONG).await;
    assert_eq!(status["reason"], "workload_stuck");
    assert!(old.transitions("workload_stuck").await > 0.0);
    assert_ne!(
        contest.document().await["holder"],
        Bson::Null,
        "not released"
    );
    // There is no other candidate, so once the command has exited, the replica leads again with a
    // new token.
    drop(command);
    eventually("the replica leads again", async || old.token() == Some(2)).await;
    let again = Foreign(journal.wait("start", 2).await.pid);
    let ended = contest.last_ended().await;
    assert_eq!((ended.token, ended.reason.as_str()), (1, "workload_stuck"));
    drop(again);
}
