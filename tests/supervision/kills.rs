//! Goal: whichever of daemon, guard, command and witness are killed, no command acts at the same
//! time as another (I6, I8), and the lease is led again. Method: [`Scene`]. `make kills` runs more
//! rounds.

use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold_testbed::pid;
use leasehold_testbed::trace::VARIABLE;
use rustix::process::Signal;

use crate::contest::{PROGRAM, eventually};
use crate::kill_scene::{Form, Scene, TIMINGS, kill_at_a_cpu_quota, rounds};

impl Scene {
    /// Kills the guard once the guard has become the witness, or without a guard, `leasehold bury`.
    async fn kill_witness(&mut self, daemon: usize, guard: Option<u32>) {
        let Some(guard) = guard else {
            let daemon = &self.replicas[daemon].daemon;
            let mut bury = Command::new(PROGRAM)
                .arg("bury")
                .arg(daemon.status_directory())
                .args(["--lease", self.lease])
                .args(TIMINGS.flags())
                .env("LEASEHOLD_MONGODB__URI", self.contest.set().uri())
                // The release explains to the check of the trace why the daemon may lead again.
                .env(VARIABLE, daemon.directory().join("trace"))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            self.pause(Duration::from_millis(500)).await;
            bury.kill().unwrap();
            bury.wait().unwrap();
            return;
        };
        eventually("the guard is the witness, or has exited", async || {
            let words = std::fs::read(format!("/proc/{guard}/cmdline")).unwrap_or_default();
            words.split(|byte| *byte == 0).nth(1) != Some(b"__guard")
        })
        .await;
        self.pause(Duration::from_millis(100)).await;
        pid::signal_if_there(guard, Signal::KILL);
    }
}

#[tokio::test]
async fn i8_no_command_overlaps_one_that_was_killed_at_a_cpu_quota() {
    kill_at_a_cpu_quota("kills-quota", Form::Host, &["a"], |random| {
        // If only the command is throttled, daemon and guard are gone long before the command.
        let throttled = *random.pick(&[1, 3]);
        (throttled, [0, 1, 2][random.below(2)..].to_vec())
    })
    .await;
}

/// The processes to kill. A witness exists only if its daemon was killed.
#[derive(Debug, Clone, Copy)]
struct Subset {
    daemon: bool,
    guard: bool,
    command: bool,
    witness: bool,
}

fn subsets() -> impl Iterator<Item = Subset> {
    let subset = |bits: u32| Subset {
        daemon: bits & 1 != 0,
        guard: bits & 2 != 0,
        command: bits & 4 != 0,
        witness: bits & 8 != 0,
    };
    let exists = |subset: &Subset| subset.daemon || !subset.witness;
    (1..16).map(subset).filter(exists)
}

#[tokio::test]
async fn i8_no_command_overlaps_another_whichever_processes_are_killed() {
    let mut scene = Scene::new("kills", Form::Host, &["a", "b"], false).await;
    let mut leader = scene.next().await;
    let mut kills = 0;
    for round in 0..rounds().div_ceil(5) {
        for subset in subsets() {
            let victims = [
                (subset.daemon, leader.daemon),
                (subset.guard, leader.guard),
                (subset.command, leader.command),
            ];
            let victims = victims.into_iter().filter(|(chosen, _)| *chosen);
            let victims = victims.map(|(_, process)| process).collect();
            let killed = scene.kill(victims).await;
            if subset.daemon && scene.random.below(2) == 0 {
                scene.replicas[leader.leader]
                    .daemon
                    .restart_same_directory();
            }
            if subset.witness {
                let guard = (!subset.guard).then_some(leader.guard);
                scene.kill_witness(leader.leader, guard).await;
            }
            let what = format!("round {round}, killed {subset:?}");
            leader = scene.after(killed, &what).await;
            kills += 1;
        }
    }
    scene.report(kills);
}
