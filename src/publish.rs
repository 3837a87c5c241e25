//! Publication of the election status. A watch channel carries the
//! [`Status`](crate::election::Status), whose deadline each surface evaluates when it is queried. A
//! slow surface skips to the newest status and cannot delay a step-down.

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
