//! Opens the directory of a daemon that has exited, to release the daemon's claim.
//!
//! A witness holds only the lock of the claim file, as a guard does, so a restarted daemon waits
//! for the witness instead of failing. A witness changes nothing unless the claim's process has
//! provably exited.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::{
    CLAIM_FILE, DAEMON_FILE, GUARD_POLL, RecoveredState, StatusDirectory, cannot_write, is_named,
    locked, recorded, try_lock,
};
use leasehold_clock as clock;
use leasehold_core::election::{BootTime, ResourceName};
use leasehold_guard::claim_share::{Child, ClaimPlace, children};
use leasehold_host::CommandError;
use leasehold_host::occupant::{self, Occupant};

/// The state of a directory without a daemon.
#[derive(Debug)]
pub enum Left {
    /// No daemon has used the directory, or the directory was replaced.
    Nothing,
    /// A daemon of another lease has used the directory. Contains the name of that lease.
    OtherLease(String),
    /// These processes hold the lock of the claim file, for example a guard that is still ending
    /// the command. Empty if this process cannot identify the owner of the lock.
    Locked(Vec<Occupant>),
    /// The directory is locked, and its record was read.
    Record(LeftClaim),
}

/// The locked directory of a daemon that has exited.
#[derive(Debug)]
pub struct LeftClaim {
    /// The directory.
    pub directory: StatusDirectory,
    /// The record. Contains a claim only if the claim's process has provably exited.
    pub memory: RecoveredState,
    /// True if a supervised command ran under the claim. Otherwise, an unsupervised workload may
    /// still rely on the deadline that it read from the status files.
    pub ran_command: bool,
    /// True if a hook ran under the claim. Processes that the hook started may still run.
    pub ran_hook: bool,
    /// Time at which the file was locked. A restarted daemon may have waited since then.
    pub locked_at: BootTime,
}

impl StatusDirectory {
    /// Opens the directory of a daemon that has exited. `inherited` is the claim file with the lock
    /// of the daemon's guard. If a guard still holds the lock, waits for at most `patience`. Fails
    /// immediately if a daemon is visible. Blocks the thread.
    pub fn open_left(
        path: &Path,
        lease: &ResourceName,
        inherited: Option<File>,
        patience: Duration,
    ) -> Result<Left, CommandError> {
        let error = cannot_write(path, CLAIM_FILE);
        let file = path.join(CLAIM_FILE);
        let claim = match inherited {
            Some(claim) => {
                // Without this check, a witness that did not inherit the lock could act at the same
                // time as a daemon.
                match rustix::fs::flock(&claim, FlockOperation::NonBlockingLockExclusive) {
                    Ok(()) => {}
                    Err(Errno::WOULDBLOCK) => return Err(locked(path, CLAIM_FILE)),
                    Err(errno) => return Err(error(errno.into())),
                }
                claim
            }
            None if fs::symlink_metadata(&file)
                .is_err_and(|e| e.kind() == io::ErrorKind::NotFound) =>
            {
                return Ok(Left::Nothing);
            }
            None => match lock_left(path, patience)? {
                Some(claim) => claim,
                None => return Ok(Left::Locked(occupant::of_file(&file))),
            },
        };
        let locked_at = clock::boot_now();
        if !is_named(&claim, &file).map_err(&error)? {
            return Ok(Left::Nothing);
        }
        let directory = Self::locked(path, lease, claim, None).map_err(&error)?;
        let mut memory = directory.read().map_err(&error)?;
        if memory.other_lease {
            let record = recorded(&directory.claim);
            let other = record.and_then(|record| record.lease);
            return Ok(Left::OtherLease(other.unwrap_or_default()));
        }
        let [command, on_lead, on_step_down] = children(&directory.claim).map_err(&error)?;
        directory.prove(&mut memory, patience).map_err(&error)?;
        Ok(Left::Record(LeftClaim {
            directory,
            memory,
            ran_command: command != Child::None,
            ran_hook: [on_lead, on_step_down] != [Child::None; ClaimPlace::ALL.len() - 1],
            locked_at,
        }))
    }
}

fn lock_left(directory: &Path, patience: Duration) -> Result<Option<File>, CommandError> {
    let until = clock::boot_now() + patience;
    loop {
        if let Some(claim) = try_lock(directory, CLAIM_FILE)? {
            return Ok(Some(claim));
        }
        if !occupant::of_file(&directory.join(DAEMON_FILE)).is_empty() {
            return Err(locked(directory, DAEMON_FILE));
        }
        if clock::boot_now() >= until {
            return Ok(None);
        }
        std::thread::sleep(GUARD_POLL);
    }
}
