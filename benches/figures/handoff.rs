//! The graceful handoff: SIGTERM to the leader → another daemon's file says leader.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold_testbed::daemon::boottime_ns;
use leasehold_testbed::{Daemon, ReplicaSet, Scratch};

use crate::launch::{Setup, directories, seconds, watching};
use crate::observer::{Observer, own_cost};
use crate::report::{Bound, Row, Statistic, Unit};

const LEADS_MAX: Duration = Duration::from_secs(60);
const EXIT_MAX: Duration = Duration::from_secs(20);
/// Time for the other daemons to write their files, so that rounds do not overlap.
const SETTLE: Duration = Duration::from_millis(250);

pub(crate) async fn of_three(setup: Setup) -> Vec<Row> {
    let series = rounds(&setup, 3, setup.count(100, 20)).await;
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
    ]
}

pub(crate) async fn of_fifty(setup: Setup) -> Vec<Row> {
    let series = rounds(&setup, 50, setup.count(40, 10)).await;
    let bounds = [Bound::AtMost(Statistic::Median, 0.025)];
    let what = "SIGTERM → another leads, 50 daemons, handoff_delay 0";
    vec![Row::new("handoff_50", what, Unit::Time, &series, &bounds)]
}

/// Measures this many handoffs, one after another.
pub(crate) async fn rounds(setup: &Setup, contenders: usize, rounds: usize) -> Vec<f64> {
    let set = ReplicaSet::start().await;
    let scratch = Scratch::new();
    let paths = directories(scratch.path(), contenders);
    let mut observer = Observer::start(&paths);
    let start = |(index, path): (usize, &std::path::PathBuf)| {
        setup
            .daemon("handoff", &format!("d{index}"), &set.uri())
            .status_directory(path)
            .handoff_delay("0s")
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
    let mut series = Vec::new();
    for _ in 0..rounds {
        tokio::time::sleep(SETTLE).await;
        observer.forget();
        let old = leader;
        let sent_ns = boottime_ns();
        daemons[old].term();
        let seen = observer
            .find("another leads", LEADS_MAX, |seen| {
                seen.index != old && seen.leads_until_ns().is_some()
            })
            .await;
        series.push(seconds(sent_ns, seen.at_ns));
        leader = seen.index;
        daemons[old].wait_exit(EXIT_MAX).await;
        daemons[old].restart_same_directory();
        watching(&daemons[old]).await;
    }
    series
}
