//! Kills processes of replicas on one lease, in both forms of supervision, and checks that no
//! command acts at the same time as another. Each command locks a file, and records an overlap if
//! another command still holds the lock.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use leasehold_testbed::daemon::{boottime_ns, nanos};
use leasehold_testbed::pid::{self, is_alive};
use leasehold_testbed::{Cgroup, DaemonTimings, INVARIANT_VIOLATED, Mutator, skip};
use rustix::process::Signal;

use crate::contest::{Contest, LONG, eventually};
use crate::journal::{Behaviour, Journal, Line};
use crate::pod::Pod;

/// Without a proof of death, a takeover waits for the lease to expire.
pub(crate) const TIMINGS: DaemonTimings = DaemonTimings::DEMO;
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

/// Where the command of a replica runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// The daemon starts the guard.
    Host,
    /// The guard is in another container.
    TwoContainers,
}

pub(crate) struct Scene {
    /// On hosts, pods without containers. Dropped before the journal, because a running daemon would
    /// create its status directory again.
    pub(crate) replicas: Vec<Pod>,
    pub(crate) contest: Contest,
    journal: Journal,
    pub(crate) lease: &'static str,
    /// The command of the containers.
    command: Vec<String>,
    identities: Vec<&'static str>,
    pub(crate) random: Mutator,
    seed: u64,
    /// Token of the newest command that has acted.
    token: i64,
    /// Number of takeovers that did not wait for the lease to expire.
    proven: usize,
}

/// The processes of a leader, as the host sees them.
pub(crate) struct Processes {
    /// Index of the leader.
    pub(crate) leader: usize,
    pub(crate) daemon: u32,
    pub(crate) guard: u32,
    pub(crate) command: u32,
}

impl Scene {
    pub(crate) async fn new(
        lease: &'static str,
        form: Form,
        identities: &[&'static str],
        busy: bool,
    ) -> Self {
        let (contest, journal) = (Contest::new(lease).await, Journal::new());
        let behaviour = Behaviour::Exclusive { busy };
        let command = journal.command(&behaviour);
        let replica = |identity: &&'static str| {
            let daemon = contest.candidate_at(identity, TIMINGS);
            match form {
                Form::Host => Pod {
                    daemon: journal.run_by(daemon, &behaviour).start(),
                    workload: None,
                },
                Form::TwoContainers => {
                    let mut pod = Pod::new(daemon, &journal.path(identity));
                    pod.start_workload(&command);
                    pod
                }
            }
        };
        let replicas = identities.iter().map(replica).collect();
        let seed = RandomState::new().hash_one(());
        Self {
            replicas,
            contest,
            journal,
            lease,
            command,
            identities: identities.to_vec(),
            random: Mutator::new(seed),
            seed,
            token: 0,
            proven: 0,
        }
    }

    /// Waits until another command acts. Restarts daemons and containers that have ended, like a
    /// service manager.
    pub(crate) async fn next(&mut self) -> Processes {
        let until = boottime_ns() + nanos(LONG);
        loop {
            if let Some(line) = self.journal.of("act").pop()
                && line.token > self.token
                && let Some(processes) = self.processes(&line).await
            {
                self.token = line.token;
                return processes;
            }
            for pod in &mut self.replicas {
                if pod.daemon.exit_code().is_some() {
                    pod.daemon.restart_same_directory();
                }
                // A container ends after all of its processes.
                if let Some(container) = &pod.workload
                    && container.exit_code().is_some()
                {
                    pod.start_workload(&self.command);
                }
            }
            if boottime_ns() >= until {
                self.assert_exclusive("no command acts");
                panic!("nobody leads again: {}", self.journal.text());
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Returns the processes of the leader, unless its command has ended.
    async fn processes(&self, line: &Line) -> Option<Processes> {
        let mut identities = self.identities.iter();
        let leader = identities.position(|identity| **identity == line.identity)?;
        let pod = &self.replicas[leader];
        let (guard, command) = match &pod.workload {
            None => (is_alive(line.pid).then(|| pid::parent(line.pid))?, line.pid),
            Some(container) => {
                container.exit_code().is_none().then_some(())?;
                let guard = container.process_1().await;
                // While the command runs, process 1 has no other child.
                (guard, pid::children(guard).first().copied()?)
            }
        };
        Some(Processes {
            leader,
            daemon: pod.daemon.pid(),
            guard,
            command,
        })
    }

    /// Waits for the next command after the kills, and checks that it did not overlap another.
    pub(crate) async fn after(&mut self, killed: u64, what: &str) -> Processes {
        let processes = self.next().await;
        let expiry = TIMINGS.lease_duration - TIMINGS.renew_interval;
        self.proven += usize::from(boottime_ns() - killed < nanos(expiry));
        self.assert_exclusive(what);
        processes
    }

    fn assert_exclusive(&self, what: &str) {
        let overlaps = self.journal.of("overlap");
        assert!(
            overlaps.is_empty(),
            "{INVARIANT_VIOLATED}: {what} (seed {}): the command started while another acted: {}",
            self.seed,
            self.journal.text()
        );
        self.journal.assert_one_after_the_other();
    }

    /// Kills the processes in random order, at once or within a few milliseconds.
    pub(crate) async fn kill(&mut self, mut victims: Vec<u32>) -> u64 {
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
    pub(crate) fn report(&self, rounds: usize) {
        let (lease, proven) = (self.lease, self.proven);
        eprintln!("{lease}: {rounds} rounds, {proven} takeovers before the expiry, no overlap");
    }

    pub(crate) async fn pause(&mut self, most: Duration) {
        let most = usize::try_from(most.as_micros()).unwrap();
        let pause = self.random.below(most) as u64;
        tokio::time::sleep(Duration::from_micros(pause)).await;
    }
}

/// Kills processes that have used up their CPU quota. `choose` returns how many of command, guard
/// and daemon are throttled, and which of them are killed.
pub(crate) async fn kill_at_a_cpu_quota(
    lease: &'static str,
    form: Form,
    identities: &[&'static str],
    choose: impl Fn(&mut Mutator) -> (usize, Vec<usize>),
) {
    let limit = |period: Duration| Cgroup::new(&format!("{lease}-{period:?}"), QUOTA, period);
    let limited: Result<Vec<_>, _> = PERIODS.into_iter().map(limit).collect();
    let limited = match limited {
        Ok(limited) => limited,
        Err(why) => return skip(&format!("needs a CPU quota: {why}")),
    };
    let mut scene = Scene::new(lease, form, identities, true).await;
    let mut leader = scene.next().await;
    for round in 0..rounds() {
        let (cgroup, period) = (&limited[round % 2], PERIODS[round % 2]);
        let processes = [leader.command, leader.guard, leader.daemon];
        let (throttled, victims) = choose(&mut scene.random);
        let throttled = &processes[..throttled];
        throttled.iter().for_each(|process| cgroup.add(*process));
        let before = cgroup.throttled();
        eventually("the command is throttled", async || {
            cgroup.throttled() > before
        })
        .await;
        // The kernel counts a throttled period at its end. During most of the next period, the
        // processes cannot run.
        scene.pause(period).await;
        let victims: Vec<_> = victims
            .into_iter()
            .map(|victim| processes[victim])
            .collect();
        let what = format!("round {round}, killed {victims:?}, throttled {throttled:?}");
        let killed = scene.kill(victims).await;
        // Restarted processes are not throttled, as in a restarted container.
        leader = scene.after(killed, &what).await;
        cgroup.release();
    }
    scene.report(rounds());
}
