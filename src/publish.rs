//! Publishes the election status. All readers share a watch channel with the newest
//! [`Status`](crate::election::Status), and evaluate its deadline at each query. A slow reader
//! skips to the newest status and cannot delay a step-down.

pub mod file;
pub mod systemd;

pub use crate::store::StoreInfo;

pub use leasehold_host::occupant;
#[cfg(feature = "kubernetes")]
pub use leasehold_kubernetes as kubernetes;
pub use leasehold_metrics as metrics;
#[cfg(test)]
pub(crate) use leasehold_metrics::fixture;
pub use leasehold_status::{ReadyWhen, StoreError, Surface, directory, render};
