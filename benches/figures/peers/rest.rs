//! Measures the cost of each elector when idle, with one leader, two followers, and timings of
//! 15/10/2 s.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use leasehold_testbed::daemon::boottime_ns;
use leasehold_testbed::{Daemon, DaemonTimings, Process};

use super::client_go::{self, Electors};
use super::etcdctl::{self, Etcdctl};
use super::{CLIENT_GO, ELECT, LEASEHOLD, add};
use crate::kubernetes;
use crate::launch::{Setup, seconds, watching};
use crate::profile;
use crate::report::{Row, Unit};
use crate::usage::{Memory, Work};

const FIGURE: &str = "peers_rest";
const LEADS_MAX: Duration = Duration::from_secs(60);
const SETTLE: Duration = Duration::from_secs(30);
const WINDOW: Duration = Duration::from_secs(120);

pub(crate) const RSS: [&str; 2] = ["RSS, leader", "RSS, follower"];
pub(crate) const RSS_KUBERNETES: &str = "RSS with Kubernetes on";
pub(crate) const PRIVATE: [&str; 2] = ["private memory, leader", "private memory, follower"];
pub(crate) const CPU: [&str; 2] = ["CPU per minute, leader", "CPU per minute, follower"];
const THREADS: [&str; 2] = ["threads, leader", "threads, follower"];
const SWITCHES: [&str; 2] = [
    "wake-ups (context switches) per minute, leader",
    "wake-ups (context switches) per minute, follower",
];
const REQUESTS: [&str; 2] = [
    "requests to the store per minute, leader",
    "requests to the store per minute, follower",
];
const SIZE: &str = "size of the binary";

pub(crate) async fn measure(setup: Setup) -> Vec<Row> {
    let mut rows = Vec::new();
    add(&mut rows, (FIGURE, LEASEHOLD), daemons(&setup)).await;
    add(&mut rows, (FIGURE, CLIENT_GO), electors(&setup)).await;
    add(&mut rows, (FIGURE, ELECT), candidates(&setup)).await;
    add(&mut rows, (FIGURE, LEASEHOLD), with_kubernetes(&setup)).await;
    // The rows are sorted by system; group them by figure.
    let mut order = BTreeMap::new();
    for row in &rows {
        let next = order.len();
        order.entry(row.what.clone()).or_insert(next);
    }
    rows.sort_by_key(|row| (row.values.is_none(), order[&row.what]));
    rows
}

async fn daemons(setup: &Setup) -> Result<Vec<Row>, String> {
    let set = setup.set().await;
    let mut daemons: Vec<Daemon> = Vec::new();
    for index in 0..3 {
        let daemon = setup
            .daemon("rest", &format!("rest-{index}"), &set.uri())
            .timings(DaemonTimings::KUBERNETES)
            .start();
        if index == 0 {
            daemon.wait_leads(LEADS_MAX).await;
        }
        watching(&daemon).await;
        daemons.push(daemon);
    }
    let primary = set.primary().await;
    profile::record(&set, primary, true).await;
    let client = profile::direct(&set, primary).await;
    let requests = async || {
        let mut counts = Vec::new();
        for daemon in &daemons {
            let name = format!("leasehold/{}", daemon.identity());
            let commands = profile::commands(&client, &name).await;
            counts.push(commands.values().sum());
        }
        counts
    };
    let pids: Vec<_> = daemons.iter().map(Daemon::pid).collect();
    let mut rows = at_rest(setup, LEASEHOLD, &pids, requests).await;
    rows.push(size(LEASEHOLD, &setup.binary));
    Ok(rows)
}

async fn electors(setup: &Setup) -> Result<Vec<Row>, String> {
    let electors = Electors::new(setup, 3).await?;
    let processes = electors.three("rest").await;
    let requests = async || {
        let mut counts = Vec::new();
        for (index, process) in processes.iter().enumerate() {
            counts.push(electors.requests(process, index).await);
        }
        counts
    };
    let pids: Vec<_> = processes.iter().map(Process::pid).collect();
    let mut rows = at_rest(setup, CLIENT_GO, &pids, requests).await;
    rows.push(size(CLIENT_GO, &client_go::program().await?));
    Ok(rows)
}

async fn candidates(setup: &Setup) -> Result<Vec<Row>, String> {
    let etcdctl = Etcdctl::start(setup).await?;
    let (_candidates, pids) = etcdctl::resting(&etcdctl).await;
    // etcd counts only the total. All three candidates send equally many requests to keep their
    // sessions alive.
    let requests = async || vec![etcdctl.etcd.messages().await / 3.0; 3];
    let mut rows = at_rest(setup, ELECT, &pids, requests).await;
    rows.push(size(ELECT, &etcdctl.program));
    Ok(rows)
}

/// Measures running processes. The first process leads. `requests` returns how many requests each
/// process has sent so far.
async fn at_rest(
    setup: &Setup,
    system: &'static str,
    pids: &[u32],
    requests: impl AsyncFn() -> Vec<f64>,
) -> Vec<Row> {
    tokio::time::sleep(setup.pause(SETTLE)).await;
    let requests_before = requests().await;
    let began_ns = boottime_ns();
    let before: Vec<_> = pids.iter().copied().map(Work::of).collect();
    tokio::time::sleep(setup.pause(WINDOW)).await;
    let after: Vec<_> = pids.iter().copied().map(Work::of).collect();
    let minutes = seconds(began_ns, boottime_ns()) / 60.0;
    let requests_after = requests().await;
    let memory: Vec<_> = pids.iter().copied().map(Memory::of).collect();
    let a_minute = |of: &dyn Fn(&Work) -> f64| -> Vec<f64> {
        let pairs = before.iter().zip(&after);
        pairs
            .map(|(before, after)| (of(after) - of(before)) / minutes)
            .collect()
    };
    let memory = |of: fn(&Memory) -> f64| memory.iter().map(of).collect::<Vec<_>>();
    let sent = requests_before.iter().zip(&requests_after);
    let sent: Vec<_> = sent
        .map(|(before, after)| (after - before) / minutes)
        .collect();
    let figures = [
        (RSS, Unit::Bytes, memory(|m| m.rss)),
        (PRIVATE, Unit::Bytes, memory(|m| m.private)),
        (THREADS, Unit::Count, memory(|m| m.threads)),
        (CPU, Unit::Time, a_minute(&|work| work.cpu)),
        (SWITCHES, Unit::Count, a_minute(&|work| work.switches)),
        (REQUESTS, Unit::Count, sent),
    ];
    let mut rows = Vec::new();
    for (names, unit, values) in figures {
        for (what, values) in names.into_iter().zip([&values[..1], &values[1..]]) {
            rows.push(Row::new(FIGURE, what, unit, values, &[]).of(system));
        }
    }
    rows
}

fn size(system: &'static str, binary: &Path) -> Row {
    let metadata = std::fs::metadata(binary).expect("the binary exists");
    #[allow(clippy::cast_precision_loss)] // A file of some megabytes.
    let bytes = metadata.len() as f64;
    Row::new(FIGURE, SIZE, Unit::Bytes, &[bytes], &[]).of(system)
}

async fn with_kubernetes(setup: &Setup) -> Result<Vec<Row>, String> {
    leasehold_testbed::kubernetes_programs()
        .map_err(|_| "no Kubernetes: see the output of fetch-kubernetes")?;
    let rss = kubernetes::memory_of_one(setup).await.rss;
    let row = Row::new(FIGURE, RSS_KUBERNETES, Unit::Bytes, &[rss], &[]);
    Ok(vec![row.of(LEASEHOLD)])
}
