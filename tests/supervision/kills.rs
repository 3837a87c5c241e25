//! Goal: whichever of daemon, guard, command and witness are killed, no command acts at the same
//! time as another (I6, I8), and the lease is led again. Method: each command locks a file, and
//! records an overlap if another command still holds the lock. `make kills` runs more rounds.

use std::hash::{BuildHasher, RandomState};
use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold_testbed::daemon::{boottime_ns, nanos};
use leasehold_testbed::pid::{self, is_alive};
use leasehold_testbed::trace::VARIABLE;
use leasehold_testbed::{
    Cgroup, Daemon, DaemonBuilder, DaemonTimings, INVARIANT_VIOLATED, Mutator, skip,
};
use rustix::process::Signal;

use crate::contest::{Contest, LONG, PROGRAM, eventually};
use crate::journal::{Behaviour, Journal, Line};

/// Without a proof of death, a takeover waits for the lease to expire.
const TIMINGS: DaemonTimings = DaemonTimings::DEMO;
/// CPU time of the throttled processes together, in percent of a core.
const QUOTA: u32 = 5;
/// The default period of the kernel, and the longest. A throttled process waits for the next period.
const PERIODS: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];
const POLL: Duration = Duration::from_millis(2);

/// Returns the number of rounds in the environment variable `KILLS`, or a few.
pub(crate) fn rounds() -> usize {
    let rounds = std::env::var("KILLS");
    rounds.map_or(4, |rounds| rounds.parse().unwrap())
}

struct Scene {
    contest: Contest,
    journal: Journal,
    lease: &'static str,
    daemons: Vec<Daemon>,
    random: Mutator,
    seed: u64,
    /// Number of commands that have acted.
    acted: usize,
    /// Number of takeovers that did not wait for the lease to expire.
    proven: usize,
}

impl Scene {
    async fn new(lease: &'static str, identities: &[&str], busy: bool) -> Self {
        let (contest, journal) = (Contest::new(lease).await, Journal::new());
        let behaviour = Behaviour::Exclusive { busy };
        let builder = |identity: &&str| -> DaemonBuilder {
            journal.run_by(contest.candidate_at(identity, TIMINGS), &behaviour)
        };
        let daemons = identities.iter().map(builder).map(DaemonBuilder::start);
        let (daemons, seed) = (daemons.collect(), RandomState::new().hash_one(()));
        Self {
            contest,
            journal,
            lease,
            daemons,
            random: Mutator::new(seed),
            seed,
            acted: 0,
            proven: 0,
        }
    }

    /// Waits until another command acts. Restarts daemons that have exited, like a service manager.
    async fn next(&mut self) -> Line {
        let until = boottime_ns() + nanos(LONG);
        loop {
            let acts = self.journal.of("act");
            if let Some(line) = acts.get(self.acted..).and_then(<[_]>::last)
                && is_alive(line.pid)
            {
                self.acted = acts.len();
                return line.clone();
            }
            for daemon in &mut self.daemons {
                if daemon.exit_code().is_some() {
                    daemon.restart_same_directory();
                }
            }
            let now = boottime_ns();
            assert!(now < until, "nobody leads again: {}", self.journal.text());
            tokio::time::sleep(POLL).await;
        }
    }

    /// Waits for the next command after the kills, and checks that it did not overlap another.
    async fn after(&mut self, killed: u64, what: &str) -> Line {
        let line = self.next().await;
        let expiry = TIMINGS.lease_duration - TIMINGS.renew_interval;
        self.proven += usize::from(boottime_ns() - killed < nanos(expiry));
        let overlaps = self.journal.of("overlap");
        assert!(
            overlaps.is_empty(),
            "{INVARIANT_VIOLATED}: {what} (seed {}): the command started while another acted: {}",
            self.seed,
            self.journal.text()
        );
        self.journal.assert_one_after_the_other();
        line
    }

    /// Kills the processes in random order, at once or within a few milliseconds.
    async fn kill(&mut self, mut victims: Vec<u32>) -> u64 {
        for at in (1..victims.len()).rev() {
            victims.swap(at, self.random.below(at + 1));
        }
        let pause = *self.random.pick(&[0, 0, 500, 3_000]);
        for victim in victims {
            pid::signal_if_there(victim, Signal::KILL);
            if pause > 0 {
                tokio::time::sleep(Duration::from_micros(pause)).await;
            }
        }
        boottime_ns()
    }

    #[allow(clippy::print_stderr, reason = "the figures of `make kills`")]
    fn report(&self, rounds: usize) {
        let (lease, proven) = (self.lease, self.proven);
        eprintln!("{lease}: {rounds} rounds, {proven} takeovers before the expiry, no overlap");
    }

    async fn pause(&mut self, most: Duration) {
        let most = usize::try_from(most.as_micros()).unwrap();
        let pause = self.random.below(most) as u64;
        tokio::time::sleep(Duration::from_micros(pause)).await;
    }

    /// Kills the guard once the guard has become the witness, or without a guard, `leasehold bury`.
    async fn kill_witness(&mut self, daemon: usize, guard: Option<u32>) {
        let Some(guard) = guard else {
            let daemon = &self.daemons[daemon];
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
    let limit = |period: Duration| Cgroup::new(&format!("{period:?}"), QUOTA, period);
    let limited: Result<Vec<_>, _> = PERIODS.into_iter().map(limit).collect();
    let limited = match limited {
        Ok(limited) => limited,
        Err(why) => return skip(&format!("needs a CPU quota: {why}")),
    };
    let mut scene = Scene::new("kills-quota", &["a"], true).await;
    let mut command = scene.next().await.pid;
    for round in 0..rounds() {
        let (daemon, guard) = (scene.daemons[0].pid(), pid::parent(command));
        let (cgroup, period) = (&limited[round % 2], PERIODS[round % 2]);
        // If only the command is throttled, daemon and guard are gone long before the command.
        let processes = [command, guard, daemon];
        let throttled = &processes[..*scene.random.pick(&[1, 3])];
        throttled.iter().for_each(|process| cgroup.add(*process));
        let before = cgroup.throttled();
        eventually("the command is throttled", async || {
            cgroup.throttled() > before
        })
        .await;
        // The count grows at the end of a period. Most of the next one, the processes cannot run.
        scene.pause(period).await;
        let victims = &processes[scene.random.below(2)..];
        let killed = scene.kill(victims.to_vec()).await;
        // The next daemon is not throttled, as in a restarted container.
        scene.daemons[0].restart_same_directory();
        let what = format!("round {round}, killed {victims:?}, throttled {throttled:?}");
        command = scene.after(killed, &what).await.pid;
    }
    scene.report(rounds());
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
    let mut scene = Scene::new("kills", &["a", "b"], false).await;
    let mut line = scene.next().await;
    let mut kills = 0;
    for round in 0..rounds().div_ceil(5) {
        for subset in subsets() {
            let leader = usize::from(line.identity == "b");
            let (daemon, guard) = (scene.daemons[leader].pid(), pid::parent(line.pid));
            let victims = [
                (subset.daemon, daemon),
                (subset.guard, guard),
                (subset.command, line.pid),
            ];
            let victims = victims.into_iter().filter(|(chosen, _)| *chosen);
            let victims = victims.map(|(_, process)| process).collect();
            let killed = scene.kill(victims).await;
            if subset.daemon && scene.random.below(2) == 0 {
                scene.daemons[leader].restart_same_directory();
            }
            if subset.witness {
                let guard = (!subset.guard).then_some(guard);
                scene.kill_witness(leader, guard).await;
            }
            let what = format!("round {round}, killed {subset:?}");
            line = scene.after(killed, &what).await;
            kills += 1;
        }
    }
    scene.report(kills);
}
