//! Measures handoffs and takeovers of each elector.

use leasehold_testbed::DaemonTimings;

use super::{CLIENT_GO, ELECT, FLOOR, LEASEHOLD, add, client_go, etcdctl};
use crate::handoff;
use crate::launch::Setup;
use crate::report::{Row, Unit};
use crate::takeover::{self, Takeovers};

const FIGURE: &str = "peers_election";
pub(crate) const HANDOFF: &str = "handoff: SIGTERM → another leads, 3 contenders";
pub(crate) const HANDOFF_OF_50: &str = "handoff with 50 contenders";
pub(crate) const REJECTED: &str = "rejected acquisitions of a handoff with 50 contenders";
pub(crate) const TAKEOVER: &str =
    "takeover after SIGKILL: time beyond the lease duration, 15/10/2 s";
pub(crate) const TAKEOVER_OF_50: &str =
    "takeover with 50 contenders: time beyond the lease duration";
const MANY: usize = 50;

pub(crate) async fn measure(setup: Setup) -> Vec<Row> {
    let mut rows = Vec::new();
    add(&mut rows, (FIGURE, LEASEHOLD), handoffs(&setup)).await;
    let others = client_go::handoffs(&setup, FIGURE);
    add(&mut rows, (FIGURE, CLIENT_GO), others).await;
    let others = etcdctl::handoffs(&setup, FIGURE);
    add(&mut rows, (FIGURE, ELECT), others).await;
    add(&mut rows, (FIGURE, LEASEHOLD), handoffs_of_many(&setup)).await;
    add(&mut rows, (FIGURE, LEASEHOLD), takeovers(&setup)).await;
    let others = client_go::takeovers(&setup, FIGURE);
    add(&mut rows, (FIGURE, CLIENT_GO), others).await;
    let others = etcdctl::takeovers(&setup, FIGURE);
    add(&mut rows, (FIGURE, ELECT), others).await;
    let of_many = takeovers_of_many(&setup);
    add(&mut rows, (FIGURE, LEASEHOLD), of_many).await;
    rows
}

fn row(what: &'static str, system: &'static str, series: &[f64]) -> Row {
    Row::new(FIGURE, what, Unit::Time, series, &[]).of(system)
}

async fn handoffs(setup: &Setup) -> Result<Vec<Row>, String> {
    let series = handoff::rounds(setup, 3, setup.count(100, 20)).await;
    Ok(vec![
        row(HANDOFF, LEASEHOLD, &series.durations),
        row(HANDOFF, FLOOR, &series.floor),
    ])
}

async fn handoffs_of_many(setup: &Setup) -> Result<Vec<Row>, String> {
    let series = handoff::rounds(setup, MANY, setup.count(40, 10)).await;
    Ok(vec![
        row(HANDOFF_OF_50, LEASEHOLD, &series.durations),
        row(HANDOFF_OF_50, FLOOR, &series.floor),
        Row::new(FIGURE, REJECTED, Unit::Count, &series.rejected, &[]).of(LEASEHOLD),
    ])
}

async fn takeovers(setup: &Setup) -> Result<Vec<Row>, String> {
    let count = setup.count(10, 4);
    let timings = DaemonTimings::KUBERNETES;
    let series = takeover::crashes(setup, timings, &timings.flags(), count).await;
    Ok(beyond(TAKEOVER, &series))
}

async fn takeovers_of_many(setup: &Setup) -> Result<Vec<Row>, String> {
    let count = setup.count(10, 2);
    let series = takeover::crashes_among(setup, DaemonTimings::KUBERNETES, MANY, count).await;
    Ok(beyond(TAKEOVER_OF_50, &series))
}

/// Reports by how much each takeover exceeds the lease duration. The floor is one majority write,
/// which every takeover needs.
fn beyond(what: &'static str, series: &Takeovers) -> Vec<Row> {
    let duration = DaemonTimings::KUBERNETES.lease_duration.as_secs_f64();
    let beyond: Vec<_> = series
        .durations
        .iter()
        .map(|took| took - duration)
        .collect();
    vec![
        row(what, LEASEHOLD, &beyond),
        row(what, FLOOR, &series.writes),
    ]
}
