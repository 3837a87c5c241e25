//! The status files of a candidate: their formats and their directory. The daemon writes the files;
//! `status` and `check` read them.

#![forbid(unsafe_code)]

pub mod dates;
pub mod directory;
#[cfg(any(test, feature = "fixture"))]
pub mod fixture;
pub mod render;

use leasehold_core::election::BootTime;

/// The current MongoDB failure, reported until calls succeed again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreError {
    /// Message of the newest failure, without credentials.
    pub message: String,
    /// Time when the failures began.
    pub since: BootTime,
}

/// Condition for `/readyz` to return 200.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadyWhen {
    /// The replica is ready once it has reached the store. If readiness required leadership, a
    /// rolling update would stall, because the new replica leads only after the old replica exits.
    Connected,
    /// The replica is ready only while it leads.
    Leader,
}

/// A publisher of the status. Its name is a label of `leasehold_publish_failures_total`.
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
    /// All surfaces.
    pub const ALL: [Self; 4] = [Self::File, Self::Http, Self::Label, Self::Event];

    /// Returns the name in logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Http => "http",
            Self::Label => "label",
            Self::Event => "event",
        }
    }
}
