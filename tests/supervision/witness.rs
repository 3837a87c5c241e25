//! Goal: after a daemon is killed, its guard ends the command and then releases the lease, so that
//! another replica leads without waiting for the expiry (I8), but never before the command and its
//! descendants are gone (I6). Method: the lease does not expire during a test, and each command
//! holds a file lock, so that a second command cannot run at the same time.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use leasehold_testbed::pid::{self, is_alive};
use leasehold_testbed::process::write_program;
use leasehold_testbed::{Daemon, DaemonBuilder, DaemonTimings, Scratch, assert_contains, skip};
use rustix::process::Signal;

use crate::contest::{Contest, LONG, PROGRAM, eventually};
use crate::deaths::Ended;
use crate::journal::{Behaviour, Journal};

const NEVER_EXPIRES: DaemonTimings = DaemonTimings {
    lease_duration: Duration::from_secs(600),
    renew_deadline: Duration::from_secs(6),
    operation_timeout: Duration::from_secs(2),
    ..DaemonTimings::SHORT
};

/// Builds a daemon whose command exits with 99 if another command runs.
fn builder(
    contest: &Contest,
    journal: &Journal,
    identity: &str,
    behaviour: &Behaviour,
) -> DaemonBuilder {
    let lock = journal.path("lock").display().to_string();
    let exclusive = ["flock", "--nonblock", "--conflict-exit-code=99", &lock].map(str::to_owned);
    let command = exclusive.into_iter().chain(journal.command(behaviour));
    let candidate = contest.candidate_at(identity, NEVER_EXPIRES);
    candidate.workload(command)
}

pub(crate) async fn leader_and_standby(
    contest: &Contest,
    journal: &Journal,
    behaviour: &Behaviour,
) -> (Daemon, Daemon) {
    let leader = builder(contest, journal, "a", behaviour).start();
    journal.wait("start", 1).await;
    let standby = builder(contest, journal, "b", behaviour);
    let standby = standby.following("a", LONG).await;
    (leader, standby)
}

pub(crate) async fn assert_successor(contest: &Contest, journal: &Journal) {
    let start = journal.wait("start", 2).await;
    assert_eq!((start.token, start.identity.as_str()), (2, "b"));
    journal.assert_one_after_the_other();
    let ended = contest.last_ended().await;
    assert_eq!((ended.token, ended.identity.as_str()), (1, "a"));
}

#[tokio::test]
async fn i6_a_command_that_ignores_the_stop_signal_delays_the_release() {
    let (contest, journal) = (Contest::new("witness-stubborn").await, Journal::new());
    let (leader, _standby) = leader_and_standby(&contest, &journal, &Behaviour::Stubborn).await;
    let command = journal.of("start")[0].pid;
    leader.kill();
    journal.wait("ignored", 1).await;
    let flags = &["--timeout=1s"];
    let refused = bury(
        PROGRAM.as_ref(),
        &contest,
        "witness-stubborn",
        &leader,
        flags,
    );
    if is_alive(command) {
        let text = String::from_utf8_lossy(&refused.stdout);
        assert_contains(&text, "guard of its daemon is still ending the command");
        assert_contains(&text, "(leasehold __guard)");
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    }
    assert!(contest.stored().claim().await.is_some() || !is_alive(command));
    assert_successor(&contest, &journal).await;
    assert!(!is_alive(command));
}

#[tokio::test]
async fn a_second_stop_signal_counts_as_a_kill() {
    let (contest, journal) = (Contest::new("witness-second").await, Journal::new());
    let (leader, _standby) = leader_and_standby(&contest, &journal, &Behaviour::Stubborn).await;
    leader.term();
    journal.wait("ignored", 1).await;
    eventually("the second signal ends the daemon", async || {
        leader.term();
        leader.exit_code().is_some()
    })
    .await;
    assert_eq!(leader.exit_code(), Some(1));
    assert_successor(&contest, &journal).await;
}

fn bury(program: &Path, contest: &Contest, lease: &str, daemon: &Daemon, flags: &[&str]) -> Output {
    let mut bury = Command::new(program);
    bury.arg("bury")
        .arg(daemon.status_directory())
        .args(["--lease", lease])
        .args(NEVER_EXPIRES.flags())
        .args(flags)
        .env("LEASEHOLD_MONGODB__URI", contest.set().uri());
    bury.output().unwrap()
}

#[track_caller]
fn assert_may_run(refused: &Output) {
    let text = String::from_utf8_lossy(&refused.stdout);
    assert_contains(&text, "may still run");
    assert_eq!(refused.status.code(), Some(1));
}

#[tokio::test]
async fn i6_without_the_guard_only_bury_releases_the_lease() {
    let (contest, journal) = (Contest::new("witness-lost").await, Journal::new());
    let (leader, standby) = leader_and_standby(&contest, &journal, &Behaviour::Obedient).await;
    let command = journal.of("start")[0].pid;
    // The shell's parent is flock(1), which is the child of the guard.
    let guard = pid::parent(pid::parent(command));
    // A running daemon would end the processes that the killed guard leaves behind.
    leader.stop();
    pid::signal(guard, Signal::KILL);
    leader.kill();
    // The kernel kills only the first process of the command.
    let bury = || bury(PROGRAM.as_ref(), &contest, "witness-lost", &leader, &[]);
    assert_may_run(&bury());
    assert!(is_alive(command));
    assert!(contest.stored().claim().await.is_some());
    assert!(!standby.leads());
    pid::signal(command, Signal::KILL);
    eventually("the command is gone", async || !is_alive(command)).await;
    let released = bury();
    assert_eq!(released.status.code(), Some(0), "{released:?}");
    assert_successor(&contest, &journal).await;
}

/// The witness of a guard could not read a connection string from its standard input.
#[tokio::test]
async fn a_connection_string_from_standard_input_leaves_the_lease_to_expire() {
    let (contest, journal) = (Contest::new("witness-stdin").await, Journal::new());
    let (program, uri) = (journal.path("leasehold"), journal.path("uri"));
    fs::write(&uri, contest.set().uri()).unwrap();
    let script = format!("#!/bin/sh\nexec {PROGRAM} \"$@\" < {}\n", uri.display());
    write_program(&program, &script);
    let leader = Daemon::builder(&program)
        .lease("witness-stdin")
        .env("LEASEHOLD_MONGODB__URI_FILE", "/dev/stdin")
        .timings(NEVER_EXPIRES)
        .workload(journal.command(&Behaviour::Obedient))
        .start();
    let command = journal.wait("start", 1).await.pid;
    let guard = pid::parent(command);
    leader.kill();
    eventually("the guard has exited", async || !is_alive(guard)).await;
    assert!(!is_alive(command));
    assert!(contest.stored().claim().await.is_some());
    // A witness would have read its claim file.
    assert_eq!(leader.logged("refused"), 0, "{}", leader.logs());
}

/// A process of another user hides its environment if it runs a program that this user may not
/// read. Root reads every environment.
#[tokio::test]
async fn i6_without_root_a_descendant_that_hides_its_environment_may_still_run() {
    if !rustix::process::geteuid().is_root() {
        skip("needs root, to become another user");
        return;
    }
    let (contest, place) = (Contest::new("witness-hidden").await, Scratch::new());
    let path = |name: &str| place.path().join(name);
    fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
    for (mode, from, to) in [("755", PROGRAM, "copy"), ("711", "/bin/sleep", "hidden")] {
        let mut install = Command::new("install");
        let installed = install.args(["-m", mode, from]).arg(path(to)).status();
        assert!(installed.unwrap().success());
    }
    let status = path("status");
    fs::create_dir(&status).unwrap();
    chown(&status, Some(65534), None).unwrap();
    let (program, copy) = (path("leasehold"), path("copy"));
    let script = format!(
        "#!/bin/sh\nexec setpriv --reuid=65534 --clear-groups {} \"$@\"\n",
        copy.display()
    );
    write_program(&program, &script);
    let (hidden, started) = (path("hidden"), status.join("started"));
    let command = format!(
        "setsid {} 600 & echo $! $$ > {}; exec sleep 600",
        hidden.display(),
        started.display()
    );
    let leader = Daemon::builder(&program)
        .lease("witness-hidden")
        .env("LEASEHOLD_MONGODB__URI", contest.set().uri())
        .timings(NEVER_EXPIRES)
        .status_directory(&status)
        .workload(["sh", "-c", &command])
        .untraced()
        .start();
    let mut pids = Vec::new();
    eventually("the command has started both processes", async || {
        let text = fs::read_to_string(&started).unwrap_or_default();
        let started = text.split_whitespace().map(str::parse);
        pids = started.map(Result::unwrap).collect();
        pids.len() == 2 && hides_its_environment(pids[0])
    })
    .await;
    let (_ended, guard) = (Ended(pids[0]), pid::parent(pids[1]));
    leader.stop();
    pid::signal(guard, Signal::KILL);
    leader.kill();
    let bury = || bury(&program, &contest, "witness-hidden", &leader, &[]);
    assert_may_run(&bury());
    pid::signal(pids[0], Signal::KILL);
    eventually("the descendant is gone", async || !is_alive(pids[0])).await;
    let released = bury();
    assert_eq!(released.status.code(), Some(0), "{released:?}");
}

/// Returns true once the process runs a program that its user may not read.
fn hides_its_environment(pid: u32) -> bool {
    let program = fs::read_link(format!("/proc/{pid}/exe"));
    program.is_ok_and(|program| program.ends_with("hidden"))
}

#[tokio::test]
async fn i8_a_restarted_daemon_and_the_witness_never_overlap() {
    let (contest, journal) = (Contest::new("witness-race").await, Journal::new());
    let (leader, standby) = leader_and_standby(&contest, &journal, &Behaviour::Obedient).await;
    let mut daemons = [leader, standby];
    for round in 1..=8 {
        let last = journal.wait("start", round).await;
        assert_eq!(last.token, i64::try_from(round).unwrap());
        let leads = usize::from(last.identity == "b");
        daemons[leads].restart_same_directory();
    }
    journal.wait("start", 9).await;
    journal.assert_one_after_the_other();
}
