//! Publication of the election status. Nothing here makes a decision.
//!
//! One watch channel carries a [`Status`](crate::election::Status), which holds a deadline instead
//! of a leader flag. Each surface evaluates it at the instant of the query. Updates are not queued:
//! a slow surface skips to the newest state, and no surface can delay a step-down.

pub mod directory;
pub mod file;
#[cfg(test)]
pub(crate) mod fixture;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
pub mod metrics;
pub mod occupant;
pub mod render;
pub mod systemd;

pub use crate::store::StoreInfo;

use crate::election::BootTime;

/// The current MongoDB failure, present as long as calls fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreError {
    /// Message of the newest failure, without credentials.
    pub message: String,
    /// Time when calls of this kind began to fail.
    pub since: BootTime,
}

/// Output that shows a status; the label `surface` of `leasehold_publish_failures_total`.
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

    /// Returns the value used in logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Http => "http",
            Self::Label => "label",
            Self::Event => "event",
        }
    }
}
