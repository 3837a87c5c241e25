//! Deadline of the lock for inner commands, which are bound to the authority of the outer command.
//!
//! The holder keeps it in a memfd, which descendants read through /proc. The memory is freed when
//! the holder exits, and no other process has a descriptor to write to it.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{MemfdFlags, memfd_create};

use crate::clock;
use crate::election::BootTime;

/// The holder's handle.
#[derive(Debug)]
pub(super) struct Deadline(OwnedFd);

impl Deadline {
    /// Creates a deadline that has passed.
    ///
    /// # Errors
    /// If no memory or file descriptors are left.
    pub(super) fn new() -> io::Result<Self> {
        let deadline = Self(memfd_create("leasehold-deadline", MemfdFlags::CLOEXEC)?);
        deadline.set(BootTime::default())?;
        Ok(deadline)
    }

    /// Sets the deadline; zero once the lock is lost.
    ///
    /// # Errors
    /// If no memory is left, which only affects the first call.
    pub(super) fn set(&self, at: BootTime) -> io::Result<()> {
        let bytes = at.as_nanos().to_le_bytes();
        rustix::io::pwrite(&self.0, &bytes, 0)?;
        Ok(())
    }

    /// Returns the descriptor number in this process.
    pub(super) fn descriptor(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

/// Returns true if the deadline that `pid` keeps under this descriptor is in the future; `None` if
/// it cannot be read.
pub(super) fn lies_ahead(pid: u32, descriptor: i32) -> Option<bool> {
    let bytes = fs::read(format!("/proc/{pid}/fd/{descriptor}")).ok()?;
    let nanos = u64::from_le_bytes(bytes.try_into().ok()?);
    Some(BootTime::from_nanos(nanos) > clock::boot_now())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_deadline_is_read_as_it_is_now() {
        let deadline = Deadline::new().expect("a memfd");
        let ahead = || lies_ahead(std::process::id(), deadline.descriptor());
        assert_eq!(ahead(), Some(false));
        let later = clock::boot_now() + Duration::from_secs(3600);
        deadline.set(later).expect("set");
        assert_eq!(ahead(), Some(true));
        deadline.set(BootTime::default()).expect("set");
        assert_eq!(ahead(), Some(false));
        assert_eq!(lies_ahead(std::process::id(), 0xfffff), None);
    }
}
