//! The system calls and files that a guard needs, tried before there is authority.
//!
//! A container without /proc, or with a seccomp profile that is older than a call, would otherwise
//! fail only after the acquisition.

use std::error::Error;
use std::fmt;
use std::io;

use leasehold_clock::Alarm;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{PidfdFlags, getpid, pidfd_open};

use super::children::Children;
use super::{EXECUTABLE, orphans};

/// A system call or file that a guard needs and this process may not use.
#[derive(Debug)]
pub struct MissingPrerequisite {
    /// The system call, with the file.
    pub call: &'static str,
    /// The error.
    pub source: io::Error,
}

impl fmt::Display for MissingPrerequisite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cannot run a command here: {}: {}; to fix: mount /proc, and allow the call in the \
             seccomp profile",
            self.call, self.source
        )
    }
}

impl Error for MissingPrerequisite {}

/// Checks that a guard can work here, without starting one.
///
/// # Errors
/// [`MissingPrerequisite`] with the first call that fails.
pub fn prerequisites() -> Result<(), MissingPrerequisite> {
    let missing = |call| move |source| MissingPrerequisite { call, source };
    std::fs::read_link(EXECUTABLE)
        .map(drop)
        .map_err(missing("readlink(/proc/self/exe)"))?;
    Children::new()
        .each(|_| {})
        .map_err(|error| missing("read(/proc/self/task/N/children)")(io::Error::from(error)))?;
    pidfd_open(getpid(), PidfdFlags::empty())
        .map(drop)
        .map_err(|error| missing("pidfd_open")(error.into()))?;
    memfd_create("leasehold-prerequisite", MemfdFlags::CLOEXEC)
        .map(drop)
        .map_err(|error| missing("memfd_create")(error.into()))?;
    Alarm::new()
        .map(drop)
        .map_err(missing("timerfd_create(CLOCK_BOOTTIME)"))?;
    orphans::adopt().map_err(missing("prctl(PR_SET_CHILD_SUBREAPER)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_met_where_the_tests_run() {
        assert!(prerequisites().is_ok());
    }
}
