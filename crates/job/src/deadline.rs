//! Deadline of the lock for inner commands, which are bound to the authority of the outer command.
//!
//! The deadline is in a memfd. The guard of the outer command keeps the descriptor open too, and
//! descendants read the file through the guard's /proc/PID/fd. The holder's /proc entry is not
//! usable, because the holder hides its memory, environment and descriptors even from its own user.
//! The memory is freed when both have exited.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::fs::{MemfdFlags, memfd_create};

use leasehold_clock as clock;
use leasehold_core::election::BootTime;

const NAME: &str = "leasehold-deadline";
/// Start of the link in /proc to the memfd of this name.
const TARGET: &[u8] = b"/memfd:leasehold-deadline";

/// The holder's handle.
#[derive(Debug)]
pub(super) struct Deadline(OwnedFd);

impl Deadline {
    /// Creates a deadline that has passed.
    ///
    /// # Errors
    /// If the process is out of memory or file descriptors.
    pub(super) fn new() -> io::Result<Self> {
        let deadline = Self(memfd_create(NAME, MemfdFlags::CLOEXEC)?);
        deadline.set(BootTime::default())?;
        Ok(deadline)
    }

    /// Sets the deadline; zero once the lock is lost.
    ///
    /// # Errors
    /// If memory is exhausted, which only affects the first call.
    pub(super) fn set(&self, at: BootTime) -> io::Result<()> {
        let bytes = at.as_nanos().to_le_bytes();
        rustix::io::pwrite(&self.0, &bytes, 0)?;
        Ok(())
    }

    /// Returns a descriptor for the guard.
    ///
    /// # Errors
    /// If the process is out of file descriptors.
    pub(super) fn share(&self) -> io::Result<OwnedFd> {
        self.0.try_clone()
    }
}

/// Returns true if the deadline that the process `pid` keeps is in the future; `None` if it keeps
/// no readable deadline.
pub(super) fn lies_ahead(pid: i32) -> Option<bool> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let is_deadline = |path: &PathBuf| {
        let target = fs::read_link(path).unwrap_or_default();
        target.as_os_str().as_bytes().starts_with(TARGET)
    };
    let mut paths = descriptors.flatten().map(|entry| entry.path());
    let bytes = fs::read(paths.find(is_deadline)?).ok()?;
    let nanos = u64::from_le_bytes(bytes.try_into().ok()?);
    Some(BootTime::from_nanos(nanos) > clock::boot_now())
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use super::*;

    /// Tests of one process share its descriptors, among which the deadline is searched.
    pub(crate) static ALONE: Mutex<()> = Mutex::new(());

    #[test]
    fn a_deadline_is_read_as_it_is_now() {
        let _alone = ALONE.lock();
        let deadline = Deadline::new().expect("a memfd");
        let ahead = || lies_ahead(std::process::id().cast_signed());
        assert_eq!(ahead(), Some(false));
        let later = clock::boot_now() + Duration::from_secs(3600);
        deadline.set(later).expect("set");
        assert_eq!(ahead(), Some(true));
        deadline.set(BootTime::default()).expect("set");
        assert_eq!(ahead(), Some(false));
        drop(deadline);
        assert_eq!(ahead(), None);
    }
}
