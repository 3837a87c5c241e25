//! HTTP endpoints that report the leadership state, computed for each request. All resources are
//! bounded, because in Kubernetes other pods can connect to the server.

mod answer;
mod events;
mod wait;

use std::net::SocketAddr;

use tokio::sync::{mpsc, watch};

pub use self::wait::WAIT_MAX;
pub use leasehold_http::{
    BODY_BYTES_MAX, BUFFER_BYTES_MAX, Bound, CONNECTION_TIME_MAX, CONNECTIONS_MAX, HEAD_TIME_MAX,
    Streams, TRANSFER_TIME_MAX,
};

use crate::election::{Input, Status};
pub use crate::publish::ReadyWhen;
use crate::publish::metrics::Metrics;
use crate::publish::render::Identification;
use crate::publish::{StoreError, StoreInfo};
use leasehold_host::CommandError;
use leasehold_http::{Client, HTTP_LISTEN};

/// Maximum number of event streams and waiting long polls, in addition to [`CONNECTIONS_MAX`]. A
/// workload and a dashboard need fewer than 10; 32 take at most 32 × 48 KiB = 1.5 MiB.
pub const STREAMS_MAX: usize = 32;

/// The state that the endpoints report.
#[derive(Debug, Clone)]
pub struct AdminState {
    /// The candidate.
    pub who: Identification,
    /// The newest status.
    pub status: watch::Receiver<Status>,
    /// Information about the store; `None` until it has been reached.
    pub store: watch::Receiver<Option<StoreInfo>>,
    /// The current error of the store, if any.
    pub store_error: watch::Receiver<Option<StoreError>>,
    /// The metrics.
    pub metrics: Metrics,
    /// Condition for `/readyz`; a reload may change it.
    pub ready_when: watch::Receiver<ReadyWhen>,
    /// Passes the workload's confirmation of a step-down to the election.
    pub inputs: mpsc::Sender<Input>,
}

/// Binds the address early, so that a port in use is reported before the election starts.
pub fn bind(address: SocketAddr) -> Result<Bound, CommandError> {
    Bound::new(address, HTTP_LISTEN, STREAMS_MAX)
}
