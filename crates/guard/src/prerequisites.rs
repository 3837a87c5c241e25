//! Tests, before the acquisition, the system calls and files that a guard needs. They may be
//! missing in a container without /proc or with an old seccomp profile.

use std::io;

use leasehold_clock::Alarm;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{PidfdFlags, getpid, pidfd_open};

use super::children::Children;
use super::{EXECUTABLE, orphans};

/// A system call or file that a guard needs but this process cannot use.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot run a command here: {call}: {source}; to fix: mount /proc, and allow the call in the \
     seccomp profile"
)]
pub struct MissingPrerequisite {
    /// The system call, with the file.
    pub call: &'static str,
    /// The error that the call returned.
    pub source: io::Error,
}

/// Checks, without starting a guard, that a guard can work here. Returns the first failure.
pub fn prerequisites() -> Result<(), MissingPrerequisite> {
    let memfd = || memfd_create("leasehold-prerequisite", MemfdFlags::CLOEXEC);
    let children = || Children::new().each(|_| {});
    test("readlink(/proc/self/exe)", std::fs::read_link(EXECUTABLE))?;
    test("read(/proc/self/task/N/children)", children())?;
    test("pidfd_open", pidfd_open(getpid(), PidfdFlags::empty()))?;
    test("memfd_create", memfd())?;
    test("timerfd_create(CLOCK_BOOTTIME)", Alarm::new())?;
    test("prctl(PR_SET_CHILD_SUBREAPER)", orphans::adopt())
}

fn test<T, E>(call: &'static str, result: Result<T, E>) -> Result<(), MissingPrerequisite>
where
    io::Error: From<E>,
{
    let missing = |error| MissingPrerequisite {
        call,
        source: io::Error::from(error),
    };
    result.map(drop).map_err(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_met_where_the_tests_run() {
        assert!(prerequisites().is_ok());
    }
}
