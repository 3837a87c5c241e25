//! Goal: a daemon in one container starts and stops a command in another (`leasehold guard`), and
//! releases the lease only after every process of that container is gone (I6). Method: the
//! containers are a daemon and a guard in a PID namespace of its own, with one directory for both.
//! Each command holds a file lock, so that a second command cannot run at the same time.

use std::fs;
use std::path::Path;
use std::time::Duration;

use leasehold_testbed::{Cgroup, DaemonTimings, GuardContainer, Launch, assert_contains, skip};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept, bind, listen, socket_with,
};

use crate::contest::{Contest, LONG, PROGRAM, eventually};
use crate::journal::{Behaviour, Journal};
use crate::pod::Pod;

/// The lease does not expire during a test.
const NEVER_EXPIRES: DaemonTimings = DaemonTimings {
    lease_duration: Duration::from_secs(600),
    renew_deadline: Duration::from_secs(6),
    operation_timeout: Duration::from_secs(2),
    ..DaemonTimings::SHORT
};

/// Starts a pod without the container of the workload.
pub(crate) fn without_workload(
    contest: &Contest,
    journal: &Journal,
    identity: &str,
    flags: &[&str],
) -> Pod {
    let daemon = contest.candidate_at(identity, NEVER_EXPIRES).flags(flags);
    Pod::new(daemon, &journal.path(identity))
}

fn pod(contest: &Contest, journal: &Journal, identity: &str, behaviour: &Behaviour) -> Pod {
    let mut pod = without_workload(contest, journal, identity, &[]);
    pod.start_workload(&exclusive(journal, behaviour));
    pod
}

/// Returns a command that exits with 99 if another command runs.
pub(crate) fn exclusive(journal: &Journal, behaviour: &Behaviour) -> Vec<String> {
    let lock = journal.path("lock").display().to_string();
    let flock = ["flock", "--nonblock", "--conflict-exit-code=99"];
    // The lock's holder is the command itself, which is the first process of its container to end.
    let exclusive = flock.into_iter().chain(["--no-fork", &lock]);
    let exclusive = exclusive.map(str::to_owned);
    exclusive.chain(journal.command(behaviour)).collect()
}

/// Starts the standby of a leader.
pub(crate) async fn standby(contest: &Contest, journal: &Journal) -> Pod {
    let standby = pod(contest, journal, "b", &Behaviour::Obedient);
    standby.daemon.wait_follows("a", LONG).await;
    standby
}

async fn leader_and_standby(
    contest: &Contest,
    journal: &Journal,
    behaviour: &Behaviour,
) -> (Pod, Pod) {
    let leader = pod(contest, journal, "a", behaviour);
    journal.wait("start", 1).await;
    (leader, standby(contest, journal).await)
}

pub(crate) async fn assert_successor(contest: &Contest, journal: &Journal, reason: &str) {
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
    let mut leader = without_workload(&contest, &journal, "a", &[]);
    leader.start_workload_in(&cgroup, &exclusive(&journal, &Behaviour::Obedient));
    journal.wait("start", 1).await;
    let _standby = standby(&contest, &journal).await;
    // The command may end before or after the guard.
    cgroup.kill();
    assert_successor(&contest, &journal, "workload_exit").await;
}

#[tokio::test]
async fn a_daemon_contends_once_a_guard_is_connected() {
    let (contest, journal) = (Contest::new("two-alone").await, Journal::new());
    let mut pod = without_workload(&contest, &journal, "a", &[]);
    pod.daemon
        .wait_logged("no workload guard connected", LONG)
        .await;
    assert!(!pod.daemon.leads());
    pod.start_workload(&exclusive(&journal, &Behaviour::Obedient));
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
    let leader = pod(&contest, &journal, "a", &Behaviour::Exits(3));
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
    let leader = pod(&contest, &journal, "a", &Behaviour::Obedient);
    journal.wait("start", 1).await;
    let second = leader.container(&exclusive(&journal, &Behaviour::Obedient), None);
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
    let mut pod = without_workload(&contest, &journal, "a", &[]);
    pod.start_workload(&["sh", "-c", &script].map(str::to_owned));
    eventually("the search", async || all.with_extension("done").exists()).await;
    let found = fs::read(&all).unwrap();
    let found = String::from_utf8_lossy(&found);
    assert_contains(&found, "LEASEHOLD_TOKEN=1");
    let uri = contest.set().uri();
    for secret in [uri.as_str(), "mongodb://", "LEASEHOLD_MONGODB", "uri-file"] {
        assert!(!found.contains(secret), "{secret}");
    }
}

#[tokio::test]
async fn a_guard_of_another_pod_is_refused_and_both_logs_say_so() {
    let (contest, journal) = (Contest::new("two-pods").await, Journal::new());
    let pod = without_workload(&contest, &journal, "a", &[]);
    let socket = pod.daemon.status_directory().join("guard.sock");
    let log = journal.path("other-pod.log");
    let namespaces = [
        "--net",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "--",
    ];
    let guard = Launch::new("/usr/bin/unshare").arguments(namespaces);
    let guard = guard.argument(PROGRAM).arguments(["guard", "--socket"]);
    let guard = guard.argument(&socket).arguments(["--", "true"]);
    let _guard = guard.stderr(&log).start().unwrap();
    pod.daemon
        .wait_logged("in another network namespace", LONG)
        .await;
    eventually("the guard reports the refusal", async || {
        let said = fs::read_to_string(&log).unwrap_or_default();
        said.contains("closed the connection three times without an order")
    })
    .await;
    assert!(!pod.daemon.leads());
}

/// An idle daemon pauses for up to 1.1 s after a refusal, because its timers are coarse. A socket
/// that closes each connection after this pause stands for the daemon.
#[tokio::test]
async fn a_guard_reports_the_refusals_of_an_idle_daemon() {
    let journal = Journal::new();
    let path = journal.path("guard.sock");
    let flags = SocketFlags::CLOEXEC;
    let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    listen(&listener, 1).unwrap();
    std::thread::spawn(move || {
        while let Ok(connection) = accept(&listener) {
            std::thread::sleep(Duration::from_millis(1_100));
            drop(connection);
        }
    });
    let log = journal.path("guard.log");
    let command = ["true".to_owned()];
    let _guard = GuardContainer::start(Path::new(PROGRAM), &path, &command, &log).unwrap();
    eventually("the guard reports the refusals", async || {
        let said = fs::read_to_string(&log).unwrap_or_default();
        said.contains("closed the connection three times without an order")
    })
    .await;
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
    let mut pod = without_workload(&contest, &journal, "a", &flags);
    pod.start_workload(&["sh", "-c", &script].map(str::to_owned));
    eventually("the command runs", async || started.exists()).await;
    pod.workload().stop().await;
    assert_eq!(pod.workload().wait_exit(LONG).await, 0);
    assert!(stopped.exists(), "{}", pod.workload().logs());
}
