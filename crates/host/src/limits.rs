//! Resource limits that are checked before anything starts.

use rustix::process::{Resource, getrlimit};

/// Minimum limit of open files. Standard streams, the event loop, six signals, the status directory
/// and connections to three members of a replica set take about 40.
const OPEN_FILES_MIN: u64 = 64;

/// The limit of open files is too low. Without this check, an arbitrary later step would fail with
/// a misleading error.
#[derive(Debug, thiserror::Error)]
#[error(
    "the limit of open files is {limit}: leasehold needs at least {OPEN_FILES_MIN}; raise it with \
     ulimit -n, or with LimitNOFILE under systemd"
)]
pub struct TooFewFiles {
    /// Limit of this process.
    pub limit: u64,
}

/// Rejects a limit of open files that is too low.
pub fn check() -> Result<(), TooFewFiles> {
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < OPEN_FILES_MIN => Err(TooFewFiles { limit }),
        Some(_) | None => Ok(()),
    }
}
