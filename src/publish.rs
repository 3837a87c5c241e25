//! How a candidate tells the world who leads. Nothing here decides anything.
//!
//! One watch channel carries a [`Status`](crate::election::Status), which holds
//! a deadline and no flag; every surface asks it for the truth at the instant
//! of the question. Nothing is queued for a surface: a slow one skips to the
//! newest state, and none can delay a step-down.

pub mod directory;
pub mod file;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
pub mod metrics;
pub mod occupant;
pub mod render;
pub mod systemd;

pub use crate::store::StoreInfo;

use crate::election::BootTime;

/// Why the store does not answer as it should, while that lasts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreError {
    /// The newest failure, without credentials.
    pub message: String,
    /// When the calls of its kind began to fail.
    pub since: BootTime,
}

/// Where a status is shown; the label `surface` of
/// `leasehold_publish_failures_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Surface {
    /// `status.json`, `status.env` and the claim record.
    File,
    /// The HTTP endpoints.
    Http,
    /// The pod label.
    Label,
    /// Kubernetes Events.
    Event,
}

impl Surface {
    /// All surfaces, for metrics that list them.
    pub const ALL: [Self; 4] = [Self::File, Self::Http, Self::Label, Self::Event];

    /// The word used in logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Http => "http",
            Self::Label => "label",
            Self::Event => "event",
        }
    }
}
