//! Measures followers on a busy MongoDB, to which another application writes 1,000 documents a
//! second. The replica set has one member, because replicating this load would occupy two cores. On
//! a larger set, all change streams would be on the primary too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold_testbed::ReplicaSet;
use leasehold_testbed::daemon::boottime_ns;
use mongodb::Client;
use mongodb::bson::{Document, doc};
use mongodb::options::WriteConcern;
use tokio::task::JoinSet;

use super::many::during;
use super::{FLOOR, LEASEHOLD, add};
use crate::handoff;
use crate::launch::{Setup, seconds, watching};
use crate::report::{Row, Unit};

const FIGURE: &str = "peers_busy";
pub(crate) const FOLLOWER: &str =
    "busy store (1,000 foreign writes per second), hints: server CPU per second, per follower";
pub(crate) const HANDOFF: &str =
    "busy store, hints: handoff, SIGTERM → another leads, 3 contenders";

struct Series {
    busy: bool,
    flag: &'static str,
    follower: &'static str,
    without: &'static str,
    achieved: &'static str,
    handoff: &'static str,
}

const SERIES: [Series; 4] = [
    Series {
        busy: false,
        flag: "--mongodb-watch=stream",
        follower: "quiet store, change stream: server CPU per second, per follower",
        without: "quiet store, change stream: server CPU per second, without followers",
        achieved: "quiet store, change stream: foreign writes per second",
        handoff: "quiet store, change stream: handoff, SIGTERM → another leads, 3 contenders",
    },
    Series {
        busy: false,
        flag: "--mongodb-watch=hints",
        follower: "quiet store, hints: server CPU per second, per follower",
        without: "quiet store, hints: server CPU per second, without followers",
        achieved: "quiet store, hints: foreign writes per second",
        handoff: "quiet store, hints: handoff, SIGTERM → another leads, 3 contenders",
    },
    Series {
        busy: true,
        flag: "--mongodb-watch=stream",
        follower: "busy store, change stream: server CPU per second, per follower",
        without: "busy store, change stream: server CPU per second, without followers",
        achieved: "busy store, change stream: foreign writes per second",
        handoff: "busy store, change stream: handoff, SIGTERM → another leads, 3 contenders",
    },
    Series {
        busy: true,
        flag: "--mongodb-watch=hints",
        follower: FOLLOWER,
        without: "busy store, hints: server CPU per second, without followers",
        achieved: "busy store, hints: foreign writes per second",
        handoff: HANDOFF,
    },
];

const LEADS_MAX: Duration = Duration::from_secs(60);
const SETTLE: Duration = Duration::from_secs(6);
const WINDOW: Duration = Duration::from_secs(30);
/// Number of followers that two cores can handle when every foreign write wakes every follower.
const FEW: u32 = 5;
/// Number of followers whose total cost is measurable, even if each follower costs less than
/// [`LIGHT`].
const MANY: u32 = 40;
/// CPU time of the server for each follower, in seconds per second.
const LIGHT: f64 = 0.010;
const WRITERS: u32 = 10;
const INTERVAL: Duration = Duration::from_millis(10);
const RATE: f64 = 1_000.0;
/// Minimum share of the intended write rate. Below this share, the machine is too slow or too busy
/// for a result.
const RATE_MIN: f64 = 0.9;
const SIZE: usize = 200;

/// Writers of another application, which run until dropped.
struct Foreign {
    _writers: JoinSet<()>,
    written: Arc<AtomicU32>,
}

impl Foreign {
    async fn start(set: &ReplicaSet) -> Self {
        let client = Client::with_uri_str(set.uri()).await;
        let client = client.expect("a valid connection string");
        let documents = client.database("shop").collection::<Document>("orders");
        let written = Arc::new(AtomicU32::new(0));
        let mut writers = JoinSet::new();
        for _ in 0..WRITERS {
            let (documents, written) = (documents.clone(), Arc::clone(&written));
            writers.spawn(async move {
                // Make up for a missed tick immediately, to keep the mean rate.
                let mut due = tokio::time::interval(INTERVAL);
                loop {
                    due.tick().await;
                    let document = doc! { "text": "x".repeat(SIZE) };
                    let inserted = documents.insert_one(document);
                    let inserted = inserted.write_concern(WriteConcern::nodes(1)).await;
                    inserted.expect("the set answers");
                    written.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        Self {
            _writers: writers,
            written,
        }
    }

    fn written(&self) -> f64 {
        f64::from(self.written.load(Ordering::Relaxed))
    }
}

pub(crate) async fn measure(setup: Setup) -> Vec<Row> {
    let mut rows = Vec::new();
    for series in &SERIES {
        let followers = followers(&setup, series);
        add(&mut rows, (FIGURE, LEASEHOLD), async {
            Ok(followers.await)
        })
        .await;
        let handoffs = handoffs(&setup, series);
        add(&mut rows, (FIGURE, LEASEHOLD), async { Ok(handoffs.await) }).await;
    }
    rows
}

fn row(what: &'static str, unit: Unit, series: &[f64]) -> Row {
    Row::new(FIGURE, what, unit, series, &[]).of(LEASEHOLD)
}

/// Starts a replica set, and the writers if the series includes them.
async fn store(setup: &Setup, series: &Series) -> (ReplicaSet, Option<Foreign>) {
    let set = setup.set_of(ReplicaSet::builder().members(1)).await;
    let foreign = match series.busy {
        true => Some(Foreign::start(&set).await),
        false => None,
    };
    (set, foreign)
}

struct Window {
    /// CPU time of the server per second, in seconds.
    cpu: f64,
    /// Number of foreign writes per second.
    rate: f64,
}

impl Window {
    /// Waits until the server is idle, then measures.
    async fn new(setup: &Setup, set: &ReplicaSet, foreign: Option<&Foreign>) -> Self {
        tokio::time::sleep(setup.pause(SETTLE)).await;
        let written = || foreign.map_or(0.0, Foreign::written);
        let (began_ns, before) = (boottime_ns(), written());
        let cpu = during(set, setup.pause(WINDOW)).await.cpu;
        let rate = (written() - before) / seconds(began_ns, boottime_ns());
        Self { cpu, rate }
    }

    /// Scales the CPU time to the intended rate. On a machine that is slightly too slow, some
    /// windows have fewer writes.
    fn at_rate(&self) -> f64 {
        match self.rate {
            0.0 => self.cpu,
            rate => self.cpu / rate * RATE,
        }
    }
}

async fn followers(setup: &Setup, series: &Series) -> Vec<Row> {
    let (set, foreign) = store(setup, series).await;
    let foreign = foreign.as_ref();
    let daemon = |identity: &str| {
        let daemon = setup.daemon("busy", identity, &set.uri());
        daemon.flag(series.flag)
    };
    let first = daemon("leader").start();
    first.wait_leads(LEADS_MAX).await;
    watching(&first).await;
    let mut followers = Vec::new();
    let mut windows = vec![Window::new(setup, &set, foreign).await];
    let without = windows[0].at_rate();
    let mut each = 0.0;
    for count in [FEW, MANY] {
        for index in followers.len()..usize::try_from(count).expect("a few") {
            followers.push(daemon(&format!("f{index}")).start());
        }
        for follower in &followers {
            watching(follower).await;
        }
        let with = Window::new(setup, &set, foreign).await;
        each = (with.at_rate() - without) / f64::from(count);
        let too_slow = series.busy && with.rate < RATE_MIN * RATE;
        windows.push(with);
        if each > LIGHT || too_slow {
            break;
        }
    }
    if !series.busy {
        return vec![row(series.follower, Unit::Time, &[each])];
    }
    let rates: Vec<_> = windows.iter().map(|window| window.rate).collect();
    let slowest = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let result = match slowest >= RATE_MIN * RATE {
        true => row(series.follower, Unit::Time, &[each]),
        false => {
            let why = format!("only {slowest:.0} foreign writes per second on this machine now");
            let mut skipped = Row::skipped(FIGURE, LEASEHOLD, why);
            skipped.what = series.follower.to_owned();
            skipped
        }
    };
    vec![
        result,
        row(series.without, Unit::Time, &[without]),
        row(series.achieved, Unit::Count, &rates),
    ]
}

async fn handoffs(setup: &Setup, series: &Series) -> Vec<Row> {
    let (set, _foreign) = store(setup, series).await;
    let handoffs = handoff::rounds_on(setup, &set, series.flag, 3, setup.count(50, 10)).await;
    vec![
        row(series.handoff, Unit::Time, &handoffs.durations),
        row(series.handoff, Unit::Time, &handoffs.floor).of(FLOOR),
    ]
}
