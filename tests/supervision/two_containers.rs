//! Goal: a daemon in one container starts and stops a command in another (`leasehold guard`), and
//! releases the lease only after every process of that container is gone (I6). Method: the
//! containers are a daemon and a guard in a PID namespace of its own, with one directory for both.
//! Each command holds a file lock, so that a second command cannot run at the same time.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold_testbed::{Cgroup, Daemon, DaemonTimings, GuardContainer, assert_contains, skip};

use crate::contest::{Contest, LONG, PROGRAM, eventually};
use crate::journal::{Behaviour, Journal};

/// The lease does not expire during a test.
const NEVER_EXPIRES: DaemonTimings = DaemonTimings {
    lease_duration: Duration::from_secs(600),
    renew_deadline: Duration::from_secs(6),
    operation_timeout: Duration::from_secs(2),
    ..DaemonTimings::SHORT
};

/// A pod with two containers, which share a directory.
struct Pod {
    daemon: Daemon,
    workload: Option<GuardContainer>,
    directory: PathBuf,
}

impl Pod {
    fn of(contest: &Contest, journal: &Journal, identity: &str, behaviour: &Behaviour) -> Self {
        let mut pod = Self::without_workload(contest, journal, identity, &[]);
        pod.start_workload(journal, behaviour);
        pod
    }

    fn without_workload(
        contest: &Contest,
        journal: &Journal,
        identity: &str,
        flags: &[&str],
    ) -> Self {
        let directory = journal.path(identity);
        let socket = directory.join("guard.sock");
        let daemon = contest
            .candidate_at(identity, NEVER_EXPIRES)
            .status_directory(&directory)
            .guard_socket(&socket)
            .flags(flags)
            .start();
        Self {
            daemon,
            workload: None,
            directory,
        }
    }

    fn start_workload(&mut self, journal: &Journal, behaviour: &Behaviour) {
        self.workload = Some(container(&self.directory, journal, behaviour));
    }

    fn workload(&self) -> &GuardContainer {
        self.workload.as_ref().expect("the workload was started")
    }
}

/// Starts a container whose command exits with 99 if another command runs.
fn container(directory: &Path, journal: &Journal, behaviour: &Behaviour) -> GuardContainer {
    let command = exclusive(journal, behaviour);
    let socket = directory.join("guard.sock");
    let log = directory.with_extension("workload.log");
    GuardContainer::start(Path::new(PROGRAM), &socket, &command, &log).expect("a container")
}

fn exclusive(journal: &Journal, behaviour: &Behaviour) -> Vec<String> {
    let lock = journal.path("lock").display().to_string();
    let exclusive = ["flock", "--nonblock", "--conflict-exit-code=99", &lock].map(str::to_owned);
    exclusive
        .into_iter()
        .chain(journal.command(behaviour))
        .collect()
}

async fn leader_and_standby(
    contest: &Contest,
    journal: &Journal,
    behaviour: &Behaviour,
) -> (Pod, Pod) {
    let leader = Pod::of(contest, journal, "a", behaviour);
    journal.wait("start", 1).await;
    let standby = Pod::of(contest, journal, "b", behaviour);
    standby.daemon.wait_follows("a", LONG).await;
    (leader, standby)
}

async fn assert_successor(contest: &Contest, journal: &Journal, reason: &str) {
    let start = journal.wait("start", 2).await;
    assert_eq!((start.token, start.identity.as_str()), (2, "b"));
    journal.assert_one_after_the_other();
    let ended = contest.last_ended().await;
    assert_eq!((ended.token, ended.reason.as_str()), (1, reason));
}

#[tokio::test]
async fn i6_a_killed_container_is_a_graceful_release_of_the_living_daemon() {
    let (contest, journal) = (Contest::new("two-killed").await, Journal::new());
    let (leader, standby) = leader_and_standby(&contest, &journal, &Behaviour::Obedient).await;
    leader.workload().kill().await;
    assert_successor(&contest, &journal, "workload_exit").await;
    leader
        .daemon
        .wait_logged("workload guard disconnected or exited", LONG)
        .await;
    // Without a guard, this replica does not contend, even if no other replica does.
    drop(standby);
    leader
        .daemon
        .wait_logged("no workload guard connected", LONG)
        .await;
    assert!(!leader.daemon.leads());
}

#[tokio::test]
async fn i6_a_killed_cgroup_is_a_graceful_release_too() {
    let cgroup = Cgroup::new("container", 100, Duration::from_millis(100));
    let cgroup = match cgroup {
        Ok(cgroup) => cgroup,
        Err(why) => return skip(&format!("needs a control group: {why}")),
    };
    let (contest, journal) = (Contest::new("two-cgroup").await, Journal::new());
    let leader = Pod::without_workload(&contest, &journal, "a", &[]);
    let (socket, log) = (leader.directory.join("guard.sock"), journal.path("log"));
    let command = exclusive(&journal, &Behaviour::Obedient);
    let container = GuardContainer::start_in(&cgroup, Path::new(PROGRAM), &socket, &command, &log);
    let _container = container.expect("a container");
    journal.wait("start", 1).await;
    let standby = Pod::of(&contest, &journal, "b", &Behaviour::Obedient);
    standby.daemon.wait_follows("a", LONG).await;
    // The command may end before or after the guard.
    cgroup.kill();
    assert_successor(&contest, &journal, "workload_exit").await;
}

#[tokio::test]
async fn a_daemon_contends_once_a_guard_is_connected() {
    let (contest, journal) = (Contest::new("two-alone").await, Journal::new());
    let mut pod = Pod::without_workload(&contest, &journal, "a", &[]);
    pod.daemon
        .wait_logged("no workload guard connected", LONG)
        .await;
    assert!(!pod.daemon.leads());
    pod.start_workload(&journal, &Behaviour::Obedient);
    let start = journal.wait("start", 1).await;
    assert_eq!((start.token, start.identity.as_str()), (1, "a"));
    // Process 1 is the guard; the command is a descendant.
    assert!(start.pid > 1);
}

#[tokio::test]
async fn a_step_down_stops_the_command_and_the_guard_waits_for_the_next_claim() {
    let (contest, journal) = (Contest::new("two-step-down").await, Journal::new());
    let (leader, standby) = leader_and_standby(&contest, &journal, &Behaviour::Obedient).await;
    leader.daemon.signal(rustix::process::Signal::USR1);
    assert_successor(&contest, &journal, "requested").await;
    standby.daemon.term();
    let third = journal.wait("start", 3).await;
    assert_eq!((third.token, third.identity.as_str()), (3, "a"));
    journal.assert_one_after_the_other();
    assert_contains(
        &leader.workload().logs(),
        "waiting until leasehold leads again",
    );
}

#[tokio::test]
async fn a_command_that_exits_by_itself_ends_its_container_with_its_code() {
    let (contest, journal) = (Contest::new("two-exit").await, Journal::new());
    let leader = Pod::of(&contest, &journal, "a", &Behaviour::Exits(3));
    assert_eq!(leader.workload().wait_exit(LONG).await, 3);
    eventually("the lease is released", async || {
        contest.stored().claim().await.is_none()
    })
    .await;
    assert_eq!(leader.daemon.exit_code(), None, "the daemon keeps running");
    assert_eq!(contest.last_ended().await.reason, "workload_exit");
}

#[tokio::test]
async fn i6_a_stopped_container_gets_its_grace_before_the_release() {
    let (contest, journal) = (Contest::new("two-stopped").await, Journal::new());
    let (leader, _standby) = leader_and_standby(&contest, &journal, &Behaviour::Slow("1")).await;
    leader.workload().stop().await;
    journal.wait("stopping", 1).await;
    assert!(
        leader.daemon.leads(),
        "renewals continue while the command stops"
    );
    assert_eq!(leader.workload().wait_exit(LONG).await, 0);
    assert_successor(&contest, &journal, "workload_exit").await;
    assert_eq!(journal.of("end").len(), 1, "the command ended by itself");
}

#[tokio::test]
async fn i8_a_killed_daemon_leads_again_with_the_guard_that_ended_the_command() {
    let (contest, journal) = (Contest::new("two-daemon").await, Journal::new());
    let (mut leader, _standby) = leader_and_standby(&contest, &journal, &Behaviour::Obedient).await;
    leader.daemon.kill();
    journal.wait("end", 1).await;
    leader.daemon.restart_same_directory();
    let start = journal.wait("start", 2).await;
    assert_eq!((start.token, start.identity.as_str()), (2, "a"));
    journal.assert_one_after_the_other();
    assert_eq!(contest.last_ended().await.reason, "took_over");
}

#[tokio::test]
async fn i8_a_killed_daemon_releases_if_so_configured() {
    let (contest, journal) = (Contest::new("two-release").await, Journal::new());
    let flags = ["--workload-on-daemon-restart=release"];
    let mut leader = Pod::without_workload(&contest, &journal, "a", &flags);
    leader.start_workload(&journal, &Behaviour::Obedient);
    journal.wait("start", 1).await;
    let standby = Pod::of(&contest, &journal, "b", &Behaviour::Obedient);
    standby.daemon.wait_follows("a", LONG).await;
    eventually("b is the standby", async || {
        let document = contest.document().await;
        document.get_document("standby").is_ok()
    })
    .await;
    leader.daemon.kill();
    leader.daemon.restart_same_directory();
    assert_successor(&contest, &journal, "died").await;
}

#[tokio::test]
async fn i8_a_killed_daemon_without_a_guard_releases_the_lease() {
    let (contest, journal) = (Contest::new("two-no-guard").await, Journal::new());
    let (mut leader, _standby) = leader_and_standby(&contest, &journal, &Behaviour::Obedient).await;
    leader.daemon.kill();
    journal.wait("end", 1).await;
    // The guard has recorded the end before it reports that it waits again.
    eventually("the guard waits again", async || {
        leader
            .workload()
            .logs()
            .contains("waiting until leasehold leads again")
    })
    .await;
    leader.workload().kill().await;
    leader.daemon.restart_same_directory();
    assert_successor(&contest, &journal, "died").await;
}

#[tokio::test]
async fn i6_a_second_guard_waits_for_the_first() {
    let (contest, journal) = (Contest::new("two-second").await, Journal::new());
    let leader = Pod::of(&contest, &journal, "a", &Behaviour::Obedient);
    journal.wait("start", 1).await;
    let second = container(&leader.directory, &journal, &Behaviour::Obedient);
    second.process_1().await;
    leader.workload().kill().await;
    // The second guard connected while the first command ran, and is now the only one.
    let start = journal.wait("start", 2).await;
    assert_eq!((start.token, start.identity.as_str()), (2, "a"));
    journal.assert_one_after_the_other();
}

#[tokio::test]
async fn i12_the_container_of_the_workload_has_no_credentials() {
    let (contest, journal) = (Contest::new("two-secrets").await, Journal::new());
    let all = journal.path("all");
    // Everything that a process of the container can read about its container's processes.
    let script = format!(
        "for f in {directory}/* /proc/[0-9]*/environ /proc/[0-9]*/cmdline /proc/[0-9]*/fd/* /proc/[0-9]*/maps; \
         do [ -f \"$f\" ] && timeout 1 cat \"$f\"; done >> {all} 2>/dev/null; touch {all}.done; sleep 600",
        all = all.display(),
        directory = journal.path("a").display(),
    );
    let mut pod = Pod::without_workload(&contest, &journal, "a", &[]);
    let socket = pod.directory.join("guard.sock");
    let command = ["sh", "-c", &script].map(str::to_owned);
    let log = journal.path("log");
    pod.workload = GuardContainer::start(Path::new(PROGRAM), &socket, &command, &log).ok();
    eventually("the search", async || all.with_extension("done").exists()).await;
    let found = fs::read(&all).unwrap();
    let found = String::from_utf8_lossy(&found);
    assert_contains(&found, "LEASEHOLD_TOKEN=1");
    let uri = contest.set().uri();
    for secret in [uri.as_str(), "mongodb://", "LEASEHOLD_MONGODB", "uri-file"] {
        assert!(!found.contains(secret), "{secret}");
    }
}

#[test]
fn a_guard_that_is_not_process_1_is_refused() {
    let mut guard = std::process::Command::new(PROGRAM);
    guard.args(["guard", "--socket", "/nowhere/guard.sock", "--", "true"]);
    let output = guard.output().unwrap();
    assert_eq!(output.status.code(), Some(78));
    let text = String::from_utf8(output.stderr).unwrap();
    assert_contains(&text, "not process 1 of its container");
    assert_contains(&text, "without a wrapper");
}

#[tokio::test]
async fn a_container_that_is_asked_to_stop_uses_the_configured_signal() {
    let (contest, journal) = (Contest::new("two-signal").await, Journal::new());
    let (started, stopped) = (journal.path("started"), journal.path("stopped"));
    let script = format!(
        "trap 'touch {}; exit 0' INT; touch {}; while :; do sleep 0.05; done",
        stopped.display(),
        started.display()
    );
    let flags = ["--workload-stop-signal=INT"];
    let pod = Pod::without_workload(&contest, &journal, "a", &flags);
    let socket = pod.directory.join("guard.sock");
    let command = ["sh", "-c", &script].map(str::to_owned);
    let log = journal.path("log");
    let workload = GuardContainer::start(Path::new(PROGRAM), &socket, &command, &log);
    let workload = workload.expect("a container");
    eventually("the command runs", async || started.exists()).await;
    workload.stop().await;
    assert_eq!(workload.wait_exit(LONG).await, 0);
    assert!(stopped.exists(), "{}", workload.logs());
}
