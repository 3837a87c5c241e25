//! Measures the load that many daemons cause on MongoDB, as a curve: followers of one lease, and
//! leases with three daemons each.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold_testbed::daemon::boottime_ns;
use leasehold_testbed::{Daemon, ReplicaSet};
use mongodb::bson::doc;

use super::{FLOOR, LEASEHOLD, add};
use crate::handoff;
use crate::launch::{Setup, seconds, watching};
use crate::profile;
use crate::report::{Row, Unit};
use crate::usage::cpu_of_all;

const FIGURE: &str = "peers_many";
const LEADS_MAX: Duration = Duration::from_secs(60);
/// Three hundred leases on change streams, or three hundred followers, would occupy two cores.
const STREAMS_MAX: usize = 100;
const LEASES_MAX: usize = 300;
const SETTLE: Duration = Duration::from_secs(9);
const WINDOW: Duration = Duration::from_secs(30);
const HANDOFFS: usize = 20;
/// Number of daemons that start at once.
const BATCH: usize = 10;

/// The flag that sets how followers learn of changes, and the names of the rows with ten and a
/// hundred leases. If the load is proportional to the number of leases, the second row's value is
/// ten times the first row's value.
pub(crate) struct Series {
    name: &'static str,
    flag: &'static str,
    /// Time after which ten or more leases have chosen between a change stream and hints, are idle,
    /// and have registered a standby.
    settle: Duration,
    leases_max: usize,
    /// The names of the rows of one lease's handoffs, with the number of leases.
    pub(crate) handoffs: &'static [(usize, &'static str)],
    pub(crate) cpu: [&'static str; 2],
    pub(crate) network: [&'static str; 2],
}

/// The rows of handoffs with `mongodb.watch = "auto"`.
pub(crate) const HANDOFF_ROWS: [(usize, &str); 5] = [
    (1, "1 lease, auto: SIGUSR1 → another leads"),
    (10, "10 leases, auto: SIGUSR1 → another leads"),
    (30, "30 leases, auto: SIGUSR1 → another leads"),
    (100, "100 leases, auto: SIGUSR1 → another leads"),
    (300, "300 leases, auto: SIGUSR1 → another leads"),
];

pub(crate) const SERIES: [Series; 3] = [
    Series {
        name: "change streams",
        flag: "--mongodb-watch=stream",
        settle: SETTLE,
        leases_max: STREAMS_MAX,
        handoffs: &[],
        cpu: [
            "10 leases, change streams: CPU of the servers per second",
            "100 leases, change streams: CPU of the servers per second",
        ],
        network: [
            "10 leases, change streams: network traffic per second",
            "100 leases, change streams: network traffic per second",
        ],
    },
    Series {
        name: "hints",
        flag: "--mongodb-watch=hints",
        settle: SETTLE,
        leases_max: STREAMS_MAX,
        handoffs: &[],
        cpu: [
            "10 leases, hints: CPU of the servers per second",
            "100 leases, hints: CPU of the servers per second",
        ],
        network: [
            "10 leases, hints: network traffic per second",
            "100 leases, hints: network traffic per second",
        ],
    },
    Series {
        name: "auto",
        flag: "--mongodb-watch=auto",
        // After 256 s with punctual timers, all leaders have reached the beginning of their slot
        // (`tenure.rs`).
        settle: Duration::from_secs(270),
        leases_max: LEASES_MAX,
        handoffs: &HANDOFF_ROWS,
        cpu: [
            "10 leases, auto: CPU of the servers per second",
            "100 leases, auto: CPU of the servers per second",
        ],
        network: [
            "10 leases, auto: network traffic per second",
            "100 leases, auto: network traffic per second",
        ],
    },
];

#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    /// CPU time of all members per second, in seconds.
    pub(super) cpu: f64,
    /// Bytes per second that all members receive and send.
    network: f64,
}

pub(crate) async fn measure(setup: Setup) -> Vec<Row> {
    let mut rows = Vec::new();
    let of_one = followers(&setup);
    add(&mut rows, (FIGURE, LEASEHOLD), async { Ok(of_one.await) }).await;
    for series in &SERIES {
        let of_many = leases(&setup, series);
        add(&mut rows, (FIGURE, LEASEHOLD), async { Ok(of_many.await) }).await;
    }
    rows
}

fn counts(setup: &Setup, most: usize) -> impl Iterator<Item = usize> {
    let most = if setup.quick { 10 } else { most };
    let all = [0, 1, 10, 30, 100, LEASES_MAX];
    all.into_iter().filter(move |count| *count <= most)
}

async fn followers(setup: &Setup) -> Vec<Row> {
    let set = setup.set().await;
    let first = setup.daemon("many", "leader", &set.uri()).start();
    first.wait_leads(LEADS_MAX).await;
    watching(&first).await;
    let mut daemons = Vec::new();
    let mut rows = Vec::new();
    for count in counts(setup, STREAMS_MAX) {
        let missing = daemons.len()..count;
        let names: Vec<_> = missing
            .map(|index| ("many".to_owned(), format!("f{index}")))
            .collect();
        start(setup, &set, names, None, &mut daemons).await;
        tokio::time::sleep(setup.pause(SETTLE)).await;
        let load = during(&set, setup.pause(WINDOW)).await;
        rows.extend(both(
            &format!("1 lease, {}", counted(count, "follower")),
            load,
        ));
    }
    rows
}

/// Measures an increasing number of leases. Three daemons contend for each lease.
async fn leases(setup: &Setup, series: &Series) -> Vec<Row> {
    let set = setup.set().await;
    let mut daemons = Vec::new();
    let mut rows = Vec::new();
    for count in counts(setup, series.leases_max) {
        let missing = daemons.len() / 3..count;
        let names = missing.flat_map(|lease| {
            (0..3).map(move |index| (format!("lease-{lease}"), format!("l{lease}-{index}")))
        });
        let flag = Some(series.flag);
        start(setup, &set, names.collect(), flag, &mut daemons).await;
        let settle = if count < 10 { SETTLE } else { series.settle };
        tokio::time::sleep(settle).await;
        let load = during(&set, setup.pause(WINDOW)).await;
        rows.extend(both(
            &format!("{}, {}", counted(count, "lease"), series.name),
            load,
        ));
        if let Some((_, what)) = series.handoffs.iter().find(|(number, _)| *number == count) {
            let rounds = setup.count(HANDOFFS, 4);
            let (durations, floor) =
                handoff::step_downs(&set, "lease-0", &daemons[..3], rounds).await;
            for (system, values) in [(LEASEHOLD, durations), (FLOOR, floor)] {
                rows.push(Row::new(FIGURE, *what, Unit::Time, &values, &[]).of(system));
            }
        }
    }
    rows
}

fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

async fn start(
    setup: &Setup,
    set: &ReplicaSet,
    names: Vec<(String, String)>,
    flag: Option<&str>,
    daemons: &mut Vec<Daemon>,
) {
    for batch in names.chunks(BATCH) {
        let started = batch.iter().map(|(lease, identity)| {
            let daemon = setup.daemon(lease, identity, &set.uri());
            daemon.flags(flag).handoff_delay("0s").start()
        });
        let started: Vec<_> = started.collect();
        join_all(started.iter().map(watching)).await;
        daemons.extend(started);
    }
}

pub(super) async fn during(set: &ReplicaSet, window: Duration) -> Load {
    let began_ns = boottime_ns();
    let before = used(set).await;
    tokio::time::sleep(window).await;
    let after = used(set).await;
    let took = seconds(began_ns, boottime_ns());
    Load {
        cpu: (after.cpu - before.cpu) / took,
        network: (after.network - before.network) / took,
    }
}

/// Returns the totals since the members started.
async fn used(set: &ReplicaSet) -> Load {
    let mut network = 0.0;
    for index in 0..set.member_count() {
        let client = profile::direct(set, index).await;
        let admin = client.database("admin");
        let status = admin.run_command(doc! { "serverStatus": 1 }).await;
        let status = status.expect("the server reports its status");
        let counts = status.get_document("network").expect("a count of bytes");
        for name in ["bytesIn", "bytesOut"] {
            let bytes = counts.get_i64(name).expect("a number of bytes");
            #[allow(clippy::cast_precision_loss)] // Far below 2^53.
            let bytes = bytes as f64;
            network += bytes;
        }
    }
    let cpu = set.pids().into_iter().map(cpu_of_all).sum();
    Load { cpu, network }
}

fn both(what: &str, load: Load) -> [Row; 2] {
    let row = |of: &str, unit, value| {
        Row::new(FIGURE, format!("{what}: {of}"), unit, &[value], &[]).of(LEASEHOLD)
    };
    [
        row("CPU of the servers per second", Unit::Time, load.cpu),
        row("network traffic per second", Unit::Bytes, load.network),
    ]
}
