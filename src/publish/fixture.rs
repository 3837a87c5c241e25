//! Names, statuses and metrics for unit tests.

use tokio::sync::watch;

pub(crate) use leasehold_status::fixture::*;

use super::metrics::Metrics;
use crate::election::Status;

/// Returns metrics of a candidate that has not reached the store.
pub(crate) fn metrics(status: watch::Receiver<Status>) -> Metrics {
    Metrics::new(&who("me"), status, watch::channel(None).1).expect("no names collide")
}
