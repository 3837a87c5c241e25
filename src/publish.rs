//! Publication of the election status. Nothing here makes a decision.
//!
//! One watch channel carries a [`Status`](crate::election::Status), which holds a deadline instead
//! of a leader flag. Each surface evaluates it at the instant of the query. Updates are not queued:
//! a slow surface skips to the newest state, and no surface can delay a step-down.

pub mod file;
pub mod systemd;

pub use crate::store::StoreInfo;

pub use leasehold_host::occupant;
#[cfg(feature = "kubernetes")]
pub use leasehold_kubernetes as kubernetes;
pub use leasehold_metrics as metrics;
#[cfg(test)]
pub(crate) use leasehold_metrics::fixture;
pub use leasehold_status::{StoreError, Surface, directory, render};
