//! Measures how long a daemon takes to start, the first time and after a crash.

use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold_testbed::{ReplicaSet, ReservedPort, Scratch};

use crate::launch::{Executed, Setup, directories, seconds};
use crate::observer::Observer;
use crate::report::{Bound, Row, Statistic, Unit};

const LEADS_MAX: Duration = Duration::from_secs(60);
/// Time in which MongoDB removes the cursors and sockets of the previous round.
const SETTLE: Duration = Duration::from_millis(100);

/// Measures the time from execution to leadership, for a lease without a document.
pub(crate) async fn cold_start(setup: Setup) -> Vec<Row> {
    let place = Place::new(&setup).await;
    let mut series = Vec::new();
    for round in 0..setup.count(50, 15) {
        let lease = format!("cold-{round}");
        let paths = directories(&place.sub(round), 1);
        let mut observer = Observer::start(&paths);
        let mut daemon = place.execute(&setup, &lease, &paths[0]);
        series.push(leads(&mut observer, &daemon, 0).await);
        daemon.kill();
        tokio::time::sleep(SETTLE).await;
    }
    vec![Row::new(
        "cold_start",
        "exec → leader, first start for a new lease",
        Unit::Time,
        &series,
        &[Bound::AtMost(Statistic::Median, 0.060)],
    )]
}

/// Kills a daemon, executes the program again with the same directory, and measures the time from
/// this execution until the daemon leads.
pub(crate) async fn restart(setup: Setup) -> Vec<Row> {
    let place = Place::new(&setup).await;
    let paths = directories(&place.sub(0), 1);
    let mut observer = Observer::start(&paths);
    let mut daemon = place.execute(&setup, "restart", &paths[0]);
    leads(&mut observer, &daemon, 0).await;
    let mut series = Vec::new();
    for _ in 0..setup.count(50, 15) {
        daemon.kill();
        tokio::time::sleep(SETTLE).await;
        observer.forget();
        daemon = place.execute(&setup, "restart", &paths[0]);
        let after_ns = daemon.at_ns;
        series.push(leads(&mut observer, &daemon, after_ns).await);
    }
    vec![Row::new(
        "restart",
        "SIGKILL, then exec → leader again, same directory",
        Unit::Time,
        &series,
        &[
            Bound::AtMost(Statistic::Median, 0.100),
            Bound::AtMost(Statistic::P99, 0.100),
        ],
    )]
}

async fn leads(observer: &mut Observer, daemon: &Executed, after_ns: u64) -> f64 {
    let seen = observer
        .find("a lone daemon leads", LEADS_MAX, |seen| {
            seen.at_ns > after_ns && seen.leads_until_ns().is_some()
        })
        .await;
    seconds(daemon.at_ns, seen.at_ns)
}

struct Place {
    _set: ReplicaSet,
    scratch: Scratch,
    uri_file: PathBuf,
    port: ReservedPort,
}

impl Place {
    async fn new(setup: &Setup) -> Self {
        let set = setup.set().await;
        let scratch = Scratch::new();
        let uri_file = scratch.path().join("uri");
        std::fs::write(&uri_file, set.uri()).expect("write the connection string");
        Self {
            _set: set,
            scratch,
            uri_file,
            port: ReservedPort::new(),
        }
    }

    fn sub(&self, round: usize) -> PathBuf {
        let path = self.scratch.path().join(format!("round-{round}"));
        std::fs::create_dir(&path).expect("create a directory");
        path
    }

    fn execute(&self, setup: &Setup, lease: &str, directory: &Path) -> Executed {
        Executed::start(setup, &self.uri_file, lease, directory, &self.port)
    }
}
