//! Goal: whichever of daemon, workload's container and command are killed, no command acts at the
//! same time as another (I6), and the lease is led again. Method: as in `kills`, with two pods of two
//! containers each. A killed container is restarted after all of its processes have ended, as by
//! Kubernetes. `make kills` runs more rounds.

use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold_testbed::daemon::{boottime_ns, nanos};
use leasehold_testbed::pid;
use leasehold_testbed::{Daemon, DaemonTimings, GuardContainer, INVARIANT_VIOLATED, Mutator};
use rustix::process::Signal;

use crate::contest::{Contest, LONG, PROGRAM};
use crate::journal::{Behaviour, Journal};
use crate::kills::rounds;

const TIMINGS: DaemonTimings = DaemonTimings::DEMO;
const POLL: Duration = Duration::from_millis(2);
const IDENTITIES: [&str; 2] = ["a", "b"];

struct Pod {
    daemon: Daemon,
    container: GuardContainer,
    directory: PathBuf,
}

fn container(directory: &Path, journal: &Journal) -> GuardContainer {
    let command = journal.command(&Behaviour::Exclusive { busy: false });
    let (socket, log) = (
        directory.join("guard.sock"),
        directory.with_extension("log"),
    );
    GuardContainer::start(Path::new(PROGRAM), &socket, &command, &log).expect("a container")
}

/// Waits until a command with a newer token acts, and restarts the containers that have ended.
async fn next(pods: &mut [Pod], journal: &Journal, after: i64) -> (i64, usize) {
    let until = boottime_ns() + nanos(LONG);
    loop {
        if let Some(act) = journal.of("act").last()
            && act.token > after
        {
            return (act.token, usize::from(act.identity == IDENTITIES[1]));
        }
        for pod in &mut *pods {
            if pod.daemon.exit_code().is_some() {
                pod.daemon.restart_same_directory();
            }
            if pod.container.exit_code().is_some() {
                pod.container = container(&pod.directory, journal);
            }
        }
        assert!(
            boottime_ns() < until,
            "nobody leads again: {}",
            journal.text()
        );
        tokio::time::sleep(POLL).await;
    }
}

#[tokio::test]
#[allow(clippy::print_stderr, reason = "the figures of `make kills`")]
async fn i6_no_command_overlaps_another_whichever_containers_are_killed() {
    let (contest, journal) = (Contest::new("container-kills").await, Journal::new());
    let pod = |identity: &&str| {
        let directory = journal.path(identity);
        let daemon = contest.candidate_at(identity, TIMINGS);
        let daemon = daemon.status_directory(&directory);
        Pod {
            daemon: daemon.guard_socket(&directory.join("guard.sock")).start(),
            container: container(&directory, &journal),
            directory,
        }
    };
    let mut pods: Vec<_> = IDENTITIES.iter().map(pod).collect();
    let mut random = Mutator::new(boottime_ns());
    let (mut token, mut leader) = next(&mut pods, &journal, 0).await;
    let (mut kills, mut proven) = (0, 0);
    for round in 0..rounds().div_ceil(5) {
        for subset in 1..8_u8 {
            let process_1 = pods[leader].container.process_1().await;
            // While CMD runs, CMD is the only child of process 1.
            let command = pid::children(process_1).first().copied();
            let all = [Some(pods[leader].daemon.pid()), Some(process_1), command];
            let chosen = |(bit, _): &(usize, Option<u32>)| subset & (1 << bit) != 0;
            let victims = all.into_iter().enumerate().filter(chosen);
            let mut victims: Vec<_> = victims.filter_map(|(_, victim)| victim).collect();
            if random.below(2) == 0 {
                victims.reverse();
            }
            let pause = *random.pick(&[0, 0, 500, 3_000]);
            for victim in victims {
                pid::signal_if_there(victim, Signal::KILL);
                tokio::time::sleep(Duration::from_micros(pause)).await;
            }
            let killed = boottime_ns();
            (token, leader) = next(&mut pods, &journal, token).await;
            let expiry = TIMINGS.lease_duration - TIMINGS.renew_interval;
            proven += usize::from(boottime_ns() - killed < nanos(expiry));
            kills += 1;
            let overlaps = journal.of("overlap");
            assert!(
                overlaps.is_empty(),
                "{INVARIANT_VIOLATED}: round {round}, subset {subset:b} of command, container and \
                 daemon: {}",
                journal.text()
            );
            journal.assert_one_after_the_other();
        }
    }
    eprintln!("containers: {kills} rounds, {proven} takeovers before the expiry, no overlap");
}
