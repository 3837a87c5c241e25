//! Goal: if the daemon is killed, aborts, or its memory runs out, its guard ends the command, and
//! this replica or another leads without waiting for the expiry (I8). Method: the lease does not
//! expire during a test, and each command holds a file lock.

use leasehold_testbed::{Cgroup, Daemon, Launch};
use rustix::process::Signal;

use crate::contest::{Contest, LONG};
use crate::journal::{Behaviour, EXHAUST, Journal};
use crate::out_of_memory::{kill_first, memory};
use crate::two_containers::{exclusive, standby, without_workload};
use crate::witness;

/// How a daemon dies.
pub(crate) enum Death {
    Signal(Signal),
    /// Another process in this group uses up the memory.
    OutOfMemory(Cgroup),
}

impl Death {
    /// Returns the three deaths, unless this machine has no memory cgroup.
    pub(crate) fn all(name: &str) -> impl Iterator<Item = Self> {
        let signals = [Signal::KILL, Signal::ABORT].map(Self::Signal);
        let memory = memory(name).map(Self::OutOfMemory);
        signals.into_iter().chain(memory)
    }

    pub(crate) async fn of(self, daemon: &Daemon) {
        match self {
            Self::Signal(signal) => {
                daemon.signal(signal);
                assert_eq!(daemon.wait_exit(LONG).await, 128 + signal.as_raw());
            }
            Self::OutOfMemory(cgroup) => {
                cgroup.add(daemon.pid());
                kill_first(daemon.pid());
                let script = format!(r#"echo 0 > "$0/cgroup.procs" && exec {EXHAUST}"#);
                let other = Launch::new("/bin/sh").arguments(["-c", &script]);
                let _other = other.argument(cgroup.path()).start().unwrap();
                assert_eq!(daemon.wait_exit(LONG).await, 137);
                assert!(cgroup.ran_out_of_memory());
            }
        }
    }
}

#[tokio::test]
async fn i8_another_replica_leads_once_the_command_of_a_daemon_that_died_is_gone() {
    for (number, death) in Death::all("witness").enumerate() {
        let lease = format!("witness-{number}");
        let (contest, journal) = (Contest::new(&lease).await, Journal::new());
        let (leader, standby) =
            witness::leader_and_standby(&contest, &journal, &Behaviour::Obedient).await;
        death.of(&leader).await;
        witness::assert_successor(&contest, &journal).await;
        // On a busy machine, the answer to the release may be late; then the line differs.
        leader.wait_logged("the daemon that exited", LONG).await;
        standby.wait_leads_with(2, LONG).await;
        assert!(leader.try_status().is_none(), "the files were removed");
    }
}

#[tokio::test]
async fn i8_a_daemon_that_died_leads_again_with_the_guard_that_ended_the_command() {
    let (contest, journal) = (Contest::new("two-daemon").await, Journal::new());
    let mut leader = without_workload(&contest, &journal, "a", &[]);
    leader.start_workload(&exclusive(&journal, &Behaviour::Obedient));
    journal.wait("start", 1).await;
    let _standby = standby(&contest, &journal).await;
    for (ended, death) in (1..).zip(Death::all("leads-again")) {
        death.of(&leader.daemon).await;
        journal.wait("end", ended).await;
        leader.daemon.restart_same_directory();
        let start = journal.wait("start", ended + 1).await;
        let token = i64::try_from(ended).unwrap() + 1;
        assert_eq!((start.token, start.identity.as_str()), (token, "a"));
        journal.assert_one_after_the_other();
        assert_eq!(contest.last_ended().await.reason, "took_over");
    }
}

#[tokio::test]
async fn i8_a_daemon_that_died_releases_if_so_configured() {
    for (number, death) in Death::all("releases").enumerate() {
        let lease = format!("two-release-{number}");
        let (contest, journal) = (Contest::new(&lease).await, Journal::new());
        let flags = ["--workload-on-daemon-restart=release"];
        let mut leader = without_workload(&contest, &journal, "a", &flags);
        leader.start_workload(&exclusive(&journal, &Behaviour::Obedient));
        journal.wait("start", 1).await;
        let _standby = standby(&contest, &journal).await;
        death.of(&leader.daemon).await;
        leader.daemon.restart_same_directory();
        // On a busy machine, this replica may acquire the released lease before the standby does.
        assert_eq!(journal.wait("start", 2).await.token, 2);
        journal.assert_one_after_the_other();
        let ended = contest.last_ended().await;
        assert_eq!((ended.token, ended.reason.as_str()), (1, "died"));
    }
}
