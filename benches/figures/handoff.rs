//! Measures a graceful handoff: the time from the leader's SIGTERM until another daemon's file says
//! leader.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold_testbed::daemon::{boottime_ns, nanos};
use leasehold_testbed::{Daemon, ReplicaSet, Scratch, StoredLease};
use rustix::process::Signal;

use crate::floor::Floor;
use crate::launch::{Setup, directories, seconds, watching};
use crate::observer::{Observer, Seen, own_cost};
use crate::report::{Bound, Row, Statistic, Unit};

const LEADS_MAX: Duration = Duration::from_secs(60);
const EXIT_MAX: Duration = Duration::from_secs(20);
/// Pause between rounds. The other daemons write their files during the pause.
const SETTLE: Duration = Duration::from_millis(250);
/// Maximum wait for a standby. A standby registers within two seconds of the acquisition.
const STANDBY_MAX: Duration = Duration::from_secs(4);

const FLOOR: &str = "the floor: two majority writes and a change event, in connected clients";

pub(crate) struct Handoffs {
    /// Durations of the handoffs, in seconds.
    pub(crate) durations: Vec<f64>,
    /// Number of rejected acquisitions in each handoff.
    pub(crate) rejected: Vec<f64>,
    pub(crate) floor: Vec<f64>,
}

pub(crate) async fn of_three(setup: Setup) -> Vec<Row> {
    let Handoffs {
        durations: series,
        floor,
        ..
    } = rounds(&setup, 3, setup.count(100, 20)).await;
    let bounds = [
        Bound::AtMost(Statistic::Median, 0.010),
        Bound::AtMost(Statistic::P99, 0.030),
    ];
    let what = "SIGTERM → another leads, 3 daemons, handoff_delay 0";
    let cost = own_cost(setup.count(200, 50)).await;
    let cost_what = "of which the observer's own: rename → seen";
    vec![
        Row::new("handoff", what, Unit::Time, &series, &bounds),
        Row::new("handoff", cost_what, Unit::Time, &cost, &[]),
        Row::new("handoff", FLOOR, Unit::Time, &floor, &[]),
    ]
}

pub(crate) async fn of_fifty(setup: Setup) -> Vec<Row> {
    let series = rounds(&setup, 50, setup.count(40, 10)).await;
    let bounds = [Bound::AtMost(Statistic::Median, 0.025)];
    let what = "SIGTERM → another leads, 50 daemons, handoff_delay 0";
    let few = [Bound::AtMost(Statistic::Median, 2.0)];
    let lost = "acquisitions of one handoff that were rejected";
    vec![
        Row::new("handoff_50", what, Unit::Time, &series.durations, &bounds),
        Row::new("handoff_50", lost, Unit::Count, &series.rejected, &few),
    ]
}

pub(crate) fn stored(set: &ReplicaSet) -> StoredLease {
    StoredLease::new(&set.client(), "leasehold", "leases", "handoff")
}

/// Waits for a standby. The wait is limited, because the benchmark also measures earlier versions,
/// some of which have no standbys.
pub(crate) async fn standby(stored: &StoredLease) {
    let end = boottime_ns() + nanos(STANDBY_MAX);
    while boottime_ns() < end && stored.get().await.get_document("standby").is_err() {
        tokio::time::sleep(SETTLE / 10).await;
    }
}

async fn another_leads(observer: &mut Observer, old: usize) -> Seen {
    let another = |seen: &Seen| seen.index != old && seen.leads_until_ns().is_some();
    observer.find("another leads", LEADS_MAX, another).await
}

async fn rejected(daemons: impl Iterator<Item = &Daemon>) -> f64 {
    let counts = daemons.map(|daemon| daemon.operations("acquire", "rejected"));
    join_all(counts).await.iter().sum()
}

pub(crate) async fn rounds(setup: &Setup, contenders: usize, rounds: usize) -> Handoffs {
    let flag = "--mongodb-watch=auto";
    rounds_on(setup, &setup.set().await, flag, contenders, rounds).await
}

/// Like [`rounds`], on a replica set that may have other work, and with another flag.
pub(crate) async fn rounds_on(
    setup: &Setup,
    set: &ReplicaSet,
    flag: &str,
    contenders: usize,
    rounds: usize,
) -> Handoffs {
    let scratch = Scratch::new();
    let paths = directories(scratch.path(), contenders);
    let mut observer = Observer::start(&paths);
    let start = |(index, path): (usize, &std::path::PathBuf)| {
        setup
            .daemon("handoff", &format!("d{index}"), &set.uri())
            .status_directory(path)
            .handoff_delay("0s")
            .flag(flag)
            .start()
    };
    let mut daemons: Vec<Daemon> = paths.iter().enumerate().map(start).collect();
    let mut leader = observer
        .find("one leads", LEADS_MAX, |seen| {
            seen.leads_until_ns().is_some()
        })
        .await
        .index;
    join_all(daemons.iter().map(watching)).await;
    let stored = stored(set);
    let mut floor = Floor::start(set).await;
    let mut series = Handoffs {
        durations: Vec::new(),
        rejected: Vec::new(),
        floor: Vec::new(),
    };
    for _ in 0..rounds {
        tokio::time::sleep(SETTLE).await;
        standby(&stored).await;
        floor.round().await;
        let old = leader;
        let others = || {
            let others = daemons
                .iter()
                .enumerate()
                .filter(|(index, _)| *index != old);
            others.map(|(_, daemon)| daemon)
        };
        let rejected_before = rejected(others()).await;
        observer.forget();
        let sent_ns = boottime_ns();
        daemons[old].term();
        let seen = another_leads(&mut observer, old).await;
        series.durations.push(seconds(sent_ns, seen.at_ns));
        // Wait, because rejections that follow the handoff also count.
        tokio::time::sleep(SETTLE).await;
        let lost = rejected(others()).await - rejected_before;
        series.rejected.push(lost);
        leader = seen.index;
        daemons[old].wait_exit(EXIT_MAX).await;
        daemons[old].restart_same_directory();
        watching(&daemons[old]).await;
    }
    series.floor = floor.rounds;
    series
}

/// Measures handoffs between running daemons, whose leader gets SIGUSR1. Each handoff follows a
/// round of the floor. Returns the durations of both, in seconds.
pub(crate) async fn step_downs(
    set: &ReplicaSet,
    lease: &str,
    daemons: &[Daemon],
    rounds: usize,
) -> (Vec<f64>, Vec<f64>) {
    let directories = daemons.iter().map(Daemon::status_directory);
    let directories: Vec<_> = directories.map(std::path::Path::to_path_buf).collect();
    let mut observer = Observer::start(&directories);
    let stored = StoredLease::new(&set.client(), "leasehold", "leases", lease);
    let mut floor = Floor::start(set).await;
    let mut durations = Vec::new();
    for _ in 0..rounds {
        tokio::time::sleep(SETTLE).await;
        standby(&stored).await;
        floor.round().await;
        let old = daemons.iter().position(Daemon::leads);
        let old = old.expect("one leads");
        observer.forget();
        let sent_ns = boottime_ns();
        daemons[old].signal(Signal::USR1);
        let seen = another_leads(&mut observer, old).await;
        durations.push(seconds(sent_ns, seen.at_ns));
    }
    (durations, floor.rounds)
}
