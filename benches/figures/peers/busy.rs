//! Followers on a busy store: 1,000 writes a second to a collection of another application.

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
    "busy store (1,000 foreign writes a second): CPU of the servers a second for each follower";
const FOLLOWER_AT_REST: &str = "quiet store: CPU of the servers a second for each follower";
const WITHOUT: &str = "busy store: CPU of the servers a second with a leader and no follower";
const ACHIEVED: &str = "busy store: foreign writes a second";
pub(crate) const HANDOFF: &str = "busy store: handoff, SIGTERM → another leads, 3 contenders";

const LEADS_MAX: Duration = Duration::from_secs(60);
const SETTLE: Duration = Duration::from_secs(6);
const WINDOW: Duration = Duration::from_secs(30);
/// Enough that their sum stands out from the load, few enough that two cores suffice.
const FOLLOWERS: u32 = 5;
const WRITERS: u32 = 10;
/// The interval between two writes of one writer.
const INTERVAL: Duration = Duration::from_millis(10);
/// The size of a written document in bytes.
const SIZE: usize = 200;

/// Writers that run until this is dropped.
struct Foreign {
    _writers: JoinSet<()>,
    written: Arc<AtomicU32>,
}

impl Foreign {
    /// Starts the writers.
    async fn start(set: &ReplicaSet) -> Self {
        let client = Client::with_uri_str(set.uri()).await;
        let client = client.expect("the connection string of a set");
        let documents = client.database("shop").collection::<Document>("orders");
        let written = Arc::new(AtomicU32::new(0));
        let mut writers = JoinSet::new();
        for _ in 0..WRITERS {
            let (documents, written) = (documents.clone(), Arc::clone(&written));
            writers.spawn(async move {
                // A tick that was missed is made up for, so that the rate is kept.
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
    let quiet = followers(&setup, false);
    add(&mut rows, (FIGURE, LEASEHOLD), async { Ok(quiet.await) }).await;
    let busy = followers(&setup, true);
    add(&mut rows, (FIGURE, LEASEHOLD), async { Ok(busy.await) }).await;
    let handoffs = handoffs(&setup);
    add(&mut rows, (FIGURE, LEASEHOLD), async { Ok(handoffs.await) }).await;
    rows
}

fn row(what: &'static str, unit: Unit, series: &[f64]) -> Row {
    Row::new(FIGURE, what, unit, series, &[]).of(LEASEHOLD)
}

/// Compares the servers' CPU time with and without followers.
async fn followers(setup: &Setup, busy: bool) -> Vec<Row> {
    let set = setup.set().await;
    let foreign = match busy {
        true => Some(Foreign::start(&set).await),
        false => None,
    };
    let first = setup.daemon("busy", "leader", &set.uri()).start();
    first.wait_leads(LEADS_MAX).await;
    watching(&first).await;
    let began_ns = boottime_ns();
    // Before and after, because a busy machine drifts.
    let mut without = vec![window(setup, &set).await];
    let mut followers = Vec::new();
    for index in 0..FOLLOWERS {
        let follower = setup.daemon("busy", &format!("f{index}"), &set.uri());
        followers.push(follower.start());
    }
    for follower in &followers {
        watching(follower).await;
    }
    let with = window(setup, &set).await;
    drop(followers);
    without.push(window(setup, &set).await);
    let mean = f64::midpoint(without[0], without[1]);
    let each = (with - mean) / f64::from(FOLLOWERS);
    let Some(foreign) = foreign else {
        return vec![row(FOLLOWER_AT_REST, Unit::Time, &[each])];
    };
    let rate = foreign.written() / seconds(began_ns, boottime_ns());
    vec![
        row(FOLLOWER, Unit::Time, &[each]),
        row(WITHOUT, Unit::Time, &without),
        row(ACHIEVED, Unit::Count, &[rate]),
    ]
}

/// Returns the servers' CPU time in a second, in seconds, once they have come to rest.
async fn window(setup: &Setup, set: &ReplicaSet) -> f64 {
    tokio::time::sleep(setup.pause(SETTLE)).await;
    during(set, setup.pause(WINDOW)).await.cpu
}

async fn handoffs(setup: &Setup) -> Vec<Row> {
    let set = setup.set().await;
    let _foreign = Foreign::start(&set).await;
    let series = handoff::rounds_on(setup, &set, 3, setup.count(50, 10)).await;
    vec![
        row(HANDOFF, Unit::Time, &series.durations),
        row(HANDOFF, Unit::Time, &series.floor).of(FLOOR),
    ]
}
