//! Goal: if the memory of the workload's container runs out, the daemon lives, and releases the
//! lease only after every process of the container is gone (I6). Method: the container is in a
//! memory cgroup, and its command allocates until the kernel kills a process. The lease does not
//! expire during a test, and each command holds a file lock.

use leasehold_testbed::{Cgroup, skip};

use crate::contest::{Contest, LONG, eventually};
use crate::journal::{Behaviour, EXHAUST, Journal};
use crate::two_containers::{assert_successor, exclusive, standby, without_workload};

/// Enough for a guard with its locked memory. The kernel counts in thousandths of this limit, in
/// pages.
const LIMIT: u64 = 32_000 * 4096;
const KILLED: i32 = 137;

/// Returns a memory cgroup, unless this machine has none.
pub(crate) fn memory(name: &str) -> Option<Cgroup> {
    let cgroup = Cgroup::of_memory(name, LIMIT);
    let skipped = |why: &String| skip(&format!("needs a memory cgroup: {why}"));
    cgroup.inspect_err(skipped).ok()
}

/// Makes the kernel kill this process before other processes of its cgroup.
pub(crate) fn kill_first(process: u32) {
    std::fs::write(format!("/proc/{process}/oom_score_adj"), "1000").unwrap();
}

/// The process that the kernel kills first.
#[derive(PartialEq, Eq)]
enum Victim {
    Command,
    Process1,
    /// All processes at once.
    All,
}

async fn out_of_memory(lease: &str, cgroup: &Cgroup, victim: Victim) {
    let (contest, journal) = (Contest::new(lease).await, Journal::new());
    let mut leader = without_workload(&contest, &journal, "a", &[]);
    let command = exclusive(&journal, &Behaviour::Exhausting);
    leader.start_workload_in(cgroup, &command);
    journal.wait("start", 1).await;
    let standby = standby(&contest, &journal).await;
    if victim == Victim::Process1 {
        kill_first(leader.workload().process_1().await);
    }
    assert!(!cgroup.ran_out_of_memory());
    journal.exhaust();
    eventually("memory runs out", async || cgroup.ran_out_of_memory()).await;
    if victim == Victim::All {
        cgroup.kill();
    }
    assert_successor(&contest, &journal, "workload_exit").await;
    let code = leader.workload().wait_exit(LONG).await;
    assert!(
        code == KILLED || victim == Victim::Process1,
        "exit code {code}"
    );
    assert_eq!(leader.daemon.exit_code(), None, "the daemon lives");
    // The restarted container makes the replica a candidate again.
    leader.start_workload(&exclusive(&journal, &Behaviour::Obedient));
    standby.daemon.term();
    let third = journal.wait("start", 3).await;
    assert_eq!((third.token, third.identity.as_str()), (3, "a"));
    journal.assert_one_after_the_other();
}

#[tokio::test]
async fn i6_an_oom_kill_of_the_command_is_a_graceful_release() {
    if let Some(cgroup) = memory("command") {
        out_of_memory("oom-command", &cgroup, Victim::Command).await;
    }
}

#[tokio::test]
async fn i6_an_oom_kill_of_process_1_is_a_graceful_release() {
    if let Some(cgroup) = memory("process-1") {
        out_of_memory("oom-process-1", &cgroup, Victim::Process1).await;
    }
}

#[tokio::test]
async fn i6_an_oom_kill_of_the_whole_container_is_a_graceful_release() {
    if let Some(cgroup) = memory("together") {
        out_of_memory("oom-together", &cgroup.killed_together(), Victim::All).await;
    }
}

#[tokio::test]
async fn an_oom_kill_of_a_descendant_does_not_end_the_command() {
    let Some(cgroup) = memory("descendant") else {
        return;
    };
    let (contest, journal) = (Contest::new("oom-descendant").await, Journal::new());
    let goes_on = journal.path("goes-on");
    let script = format!("{EXHAUST}; touch {}; exec sleep 600", goes_on.display());
    let mut leader = without_workload(&contest, &journal, "a", &[]);
    leader.start_workload_in(&cgroup, &["sh", "-c", &script].map(str::to_owned));
    eventually("the command goes on", async || goes_on.exists()).await;
    assert!(cgroup.ran_out_of_memory());
    leader.daemon.wait_leads_with(1, LONG).await;
}
