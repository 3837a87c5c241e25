//! What the kernel must grant before there is any use in beginning.

use rustix::process::{Resource, getrlimit};

/// Standard streams, the event loop, six signals, the status directory and
/// connections to three members of a set take about 40.
const OPEN_FILES_MIN: u64 = 64;

/// The limit of open files is too low: without this check, whatever comes
/// first would fail, and say something else.
#[derive(Debug, thiserror::Error)]
#[error(
    "the limit of open files is {limit}: leasehold needs at least {OPEN_FILES_MIN}; raise it with \
     ulimit -n, or with LimitNOFILE under systemd"
)]
pub struct TooFewFiles {
    /// The limit of this process.
    pub limit: u64,
}

/// Refuses to begin with too few file descriptors.
pub(super) fn check() -> Result<(), TooFewFiles> {
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < OPEN_FILES_MIN => Err(TooFewFiles { limit }),
        Some(_) | None => Ok(()),
    }
}
