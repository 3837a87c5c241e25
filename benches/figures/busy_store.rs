//! Measures how much followers cost a server that is busy with other work: compares the server's
//! CPU time with and without followers.

use std::time::Duration;

use leasehold_testbed::daemon::boottime_ns;
use leasehold_testbed::{Daemon, ReplicaSet};
use mongodb::Client;
use mongodb::bson::{Document, doc};
use tokio::task::JoinHandle;

use crate::launch::{Setup, seconds, watching};
use crate::report::{Bound, Row, Statistic, Unit};
use crate::usage::Work;

const LEADS_MAX: Duration = Duration::from_secs(60);
/// Number of documents per second that are inserted into another collection.
const WRITES: u32 = 1_000;
/// Number of documents per insert. Each document is a separate oplog entry.
const BATCH: u32 = 10;
const FOLLOWERS: u32 = 10;
const SETTLE: Duration = Duration::from_secs(10);
/// Maximum CPU time of the server for each follower that uses hints, in seconds per second.
const OF_HINTS_MAX: f64 = 0.001;

pub(crate) async fn measure(setup: Setup) -> Vec<Row> {
    let set = ReplicaSet::builder().members(1).start().await;
    let rounds = setup.count(3, 1);
    let load = write(set.client());
    let mut series = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..rounds {
        let alone = spent(&set).await;
        for (index, watch) in ["stream", "hints", "poll"].into_iter().enumerate() {
            let daemons = start(&setup, &set, watch).await;
            tokio::time::sleep(SETTLE).await;
            let with = spent(&set).await;
            series[index].push((with - alone).max(0.0) / f64::from(FOLLOWERS));
            drop(daemons);
        }
    }
    load.abort();
    let what = |watch: &str| {
        format!("server CPU a second and follower, {watch}, {WRITES} other writes a second")
    };
    let few = [Bound::AtMost(Statistic::Median, OF_HINTS_MAX)];
    let [stream, hints, poll] = series;
    let row = |watch, series: &[f64], bounds: &[Bound]| {
        Row::new("busy_store", what(watch), Unit::Time, series, bounds)
    };
    vec![
        row("change stream", &stream, &[]),
        row("hints", &hints, &few),
        row("polling", &poll, &[]),
    ]
}

async fn start(setup: &Setup, set: &ReplicaSet, watch: &str) -> Vec<Daemon> {
    let lease = format!("busy-{watch}");
    let mut daemons = Vec::new();
    for index in 0..=FOLLOWERS {
        let daemon = setup
            .daemon(&lease, &format!("{lease}-{index}"), &set.uri())
            .flag(&format!("--mongodb-watch={watch}"))
            .start();
        if index == 0 {
            daemon.wait_leads(LEADS_MAX).await;
        }
        match watch {
            "poll" if index > 0 => {
                drop(daemon.wait_follows(&format!("{lease}-0"), LEADS_MAX).await)
            }
            "poll" => {}
            _ => watching(&daemon).await,
        }
        daemons.push(daemon);
    }
    daemons
}

async fn spent(set: &ReplicaSet) -> f64 {
    let pid = set.node(0).pid().expect("the server runs");
    let (began_ns, before) = (boottime_ns(), Work::of(pid).cpu);
    tokio::time::sleep(SETTLE).await;
    (Work::of(pid).cpu - before) / seconds(began_ns, boottime_ns())
}

fn write(client: Client) -> JoinHandle<()> {
    tokio::spawn(async move {
        let orders = client.database("shop").collection::<Document>("orders");
        let mut pace = tokio::time::interval(Duration::from_secs(1) * BATCH / WRITES);
        loop {
            pace.tick().await;
            let order = doc! { "text": "x".repeat(200) };
            let orders_of_batch = vec![order; BATCH as usize];
            let written = orders.insert_many(orders_of_batch).await;
            written.expect("the server accepts other writes");
        }
    })
}
