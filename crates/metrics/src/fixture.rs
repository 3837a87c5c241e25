//! Names, statuses and metrics for unit tests.

use tokio::sync::watch;

pub use leasehold_status::fixture::*;

use crate::Metrics;
use leasehold_core::election::Status;

/// Returns metrics of a candidate that has not reached the store.
pub fn metrics(status: watch::Receiver<Status>) -> Metrics {
    Metrics::new(&who("me"), status, watch::channel(None).1)
        .and_then(|metrics| metrics.with_revision("unknown"))
        .expect("no names collide")
}
