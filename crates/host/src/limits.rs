//! Resource limits that are checked before anything starts.

use rustix::process::{Resource, getrlimit};

use crate::{CommandError, exit};

/// Minimum number of open files (`ulimit -n`). A daemon that uses a replica set with three members
/// needs about 40.
const OPEN_FILES_MIN: u64 = 64;

/// Rejects a low limit on open files at the start, because later errors would be misleading.
pub fn check() -> Result<(), CommandError> {
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < OPEN_FILES_MIN => Err(CommandError::new(
            exit::CONFIGURATION,
            format!(
                "the limit on open files is {limit}: leasehold needs at least {OPEN_FILES_MIN}"
            ),
        )
        .to_fix("raise it with ulimit -n, or with LimitNOFILE under systemd")),
        Some(_) | None => Ok(()),
    }
}
