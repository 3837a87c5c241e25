//! The status directory: its lock, and the claim record, which survives a kill of the daemon.
//!
//! The current leader is not recorded here; the status files say it. If a process acquires the
//! lock and finds in the record the claim that the lease document names, this is proof of death:
//! the process that made the claim has exited, and with it every process that shared its lock.
//! Processes that ran under the claim without sharing the lock are in the record too, and the proof
//! requires that they have exited as well.

mod deployment;
mod examine;
mod place;
mod predecessor;
mod refused;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Access, FlockOperation};
use serde::{Deserialize, Serialize};

pub use self::deployment::recorded_deployment;
pub use self::examine::{Examined, examine, intended_directory};
pub use self::place::{closed_root, empty, exposure, make_directory, replace_file, temporary};
pub use self::predecessor::Unproven;
use self::refused::{cannot_create, cannot_write, locked};
use leasehold_clock as clock;
use leasehold_core::election::{Claim, Declared, ResourceName, Token};
use leasehold_guard::claim_share::{PLACES_BEGIN, no_children};
use leasehold_host::CommandError;
use leasehold_host::occupant::{self, Occupant};

/// Default parent of status directories.
pub const RUN_ROOT: &str = "/run/leasehold";
/// Name of the status file for programs.
pub const JSON_FILE: &str = "status.json";
/// Name of the status file for shells.
pub const ENV_FILE: &str = "status.env";
/// Name of the file that is locked and holds the claim record.
pub const CLAIM_FILE: &str = "claim";
/// Name of the file that only a daemon locks. This lock distinguishes a second daemon from the
/// guard of an exited daemon, which shares the lock of the claim until its workload is gone.
pub const DAEMON_FILE: &str = "daemon";
/// Name of the file that holds the deployment which the candidate belongs to.
pub const DEPLOYMENT_FILE: &str = "deployment";
/// Name of a file that is created and removed at startup, to check that files can be created.
const PROBE_FILE: &str = ".probe";
/// Length of the claim record. The longest record has 265 bytes (two UUIDs, three 20-digit numbers
/// and an hour, with their names), and 74 more with the name of a lease. The next power of two stays
/// inside one page of the page cache, so that a kill cannot tear it. Behind the record, guards write
/// down their children.
pub const RECORD_LENGTH: usize = PLACES_BEGIN;
/// Mode of the directory. Every user may read it, because the workload may run as another user.
const MODE: u32 = 0o755;
/// Maximum number of attempts to lock a file that is replaced between the open and the lock. For
/// each failed attempt, an operator has to delete the file in exactly that interval.
const OPEN_ATTEMPTS_MAX: u32 = 8;
/// Interval between attempts to lock the claim file while a guard holds it. The interval adds to
/// the time in which a restarted daemon leads again.
const GUARD_POLL: Duration = Duration::from_millis(5);

/// A locked status directory. The lock lasts as long as the value, or any handle from
/// [`StatusDirectory::lock_handle`], exists.
#[derive(Debug)]
pub struct StatusDirectory {
    path: PathBuf,
    lease: ResourceName,
    claim: File,
    /// Kept open for its lock, which is never shared.
    daemon: File,
    boot_id: Option<String>,
    inode: u64,
    device: u64,
    /// False once [`StatusDirectory::keep`] has replaced the claim file. A guard that holds the
    /// lock of the previous file may then still run without holding the lock of the new one.
    shares_lock: bool,
}

/// State recovered from the record of an earlier process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecoveredState {
    /// The claim of a process that is proven to have exited; `None` without that proof.
    pub claim: Option<Claim>,
    /// The highest token that the process had seen.
    pub token: Token,
    /// The longest lease duration that the process had seen; `None` if the record of an earlier
    /// version does not contain it.
    pub lease_longest: Option<Duration>,
    /// True if an earlier process used the directory for another lease. Its state, and the deployment
    /// that it recorded, say nothing about this lease, and are discarded.
    pub other_lease: bool,
    /// True if the record or the claim in it could not be parsed. Worth a warning, because an
    /// unreadable record loses its token.
    pub damaged: bool,
    /// The reason why the claim of a process that has exited is not a proof of death, if a process
    /// that ran under the claim may still be running.
    pub unproven: Option<Unproven>,
}

/// The record in the claim file.
#[derive(Debug, Serialize, Deserialize)]
struct ClaimFileRecord {
    schema: u32,
    /// The lease; earlier versions omit the field.
    #[serde(default)]
    lease: Option<String>,
    claim: Option<String>,
    token: i64,
    boot_id: Option<String>,
    inode: u64,
    device: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lease_longest_ms: Option<i64>,
    /// True if guards write down their children behind this record. Earlier versions, whose guards
    /// do not, omit the field.
    #[serde(default)]
    children: bool,
}

impl StatusDirectory {
    /// Creates the directory if it is missing, locks it, and reads the record of an earlier
    /// process.
    ///
    /// # Errors
    /// If the directory cannot be created or written, or is in use.
    pub fn open(path: &Path, lease: &ResourceName) -> Result<(Self, RecoveredState), CommandError> {
        Self::open_after(path, lease, Duration::ZERO, |_| {})
    }

    /// Same as [`StatusDirectory::open`], but waits for the guard of a previous daemon that is
    /// still stopping its workload. In that case `waiting` is called, and the wait lasts at most
    /// `patience`, or the longest lease duration in its record. The function also waits briefly for
    /// a workload whose guard was killed. The function blocks, so call it before the event loop
    /// starts.
    ///
    /// # Errors
    /// Same as [`StatusDirectory::open`].
    pub fn open_after(
        path: &Path,
        lease: &ResourceName,
        patience: Duration,
        waiting: impl FnOnce(&[Occupant]),
    ) -> Result<(Self, RecoveredState), CommandError> {
        make_directory(path, MODE).map_err(cannot_create(path))?;
        let daemon = lock(path, DAEMON_FILE)?;
        let claim = lock_after(path, patience, waiting)?;
        let write_error = cannot_write(path, CLAIM_FILE);
        let metadata = claim.metadata().map_err(&write_error)?;
        let directory = Self {
            path: path.to_owned(),
            lease: lease.clone(),
            claim,
            daemon,
            // Without it, the record proves nothing.
            boot_id: clock::boot_id().ok().flatten(),
            inode: metadata.ino(),
            device: metadata.dev(),
            shares_lock: true,
        };
        let mut memory = directory.read().map_err(&write_error)?;
        if memory.other_lease {
            place::remove(&directory.deployment_file())
                .map_err(cannot_write(path, DEPLOYMENT_FILE))?;
        }
        // A record that another user may have written is not a proof.
        memory.claim = memory.claim.filter(|_| place::is_ours(metadata.uid()));
        if memory.claim.is_some() && memory.unproven.is_none() {
            let unproven = predecessor::may_run(&directory.claim, path, patience);
            memory.unproven = unproven.map_err(&write_error)?;
        }
        memory.claim = memory.claim.filter(|_| memory.unproven.is_none());
        // With the proof, this process leads immediately, with another token. If the files of the
        // previous process cannot be removed, the new daemon does not use the proof of death and
        // waits like any other candidate.
        memory.claim = memory.claim.filter(|_| directory.clear().is_ok());
        // Write the record immediately. From here on the file has its full length, so later records
        // need no space on a disk that has filled up. The proof is kept until the caller has used
        // it.
        directory
            .record(memory.claim, memory.token, memory.lease_longest)
            .map_err(&write_error)?;
        directory.forget_children().map_err(write_error)?;
        directory.probe().map_err(cannot_write(path, PROBE_FILE))?;
        Ok((directory, memory))
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns another handle on the lock; the directory stays locked until both are closed. The
    /// handle is for the guard of a workload, so that the lock also covers the guard's lifetime.
    ///
    /// # Errors
    /// If the process is out of file descriptors.
    pub fn lock_handle(&self) -> io::Result<OwnedFd> {
        Ok(self.claim.try_clone()?.into())
    }

    /// Ensures that the directory exists and that its locks are held by this process. A directory
    /// that was removed is created again, unless another daemon has done that and uses it. Returns
    /// true if the claim record is empty and has to be written again.
    ///
    /// # Errors
    /// Same as [`StatusDirectory::open`].
    pub fn keep(&mut self) -> Result<bool, CommandError> {
        let write_error = |file| cannot_write(&self.path, file);
        let has_daemon = is_named(&self.daemon, &self.path.join(DAEMON_FILE));
        if !has_daemon.map_err(write_error(DAEMON_FILE))? {
            make_directory(&self.path, MODE).map_err(cannot_create(&self.path))?;
            self.daemon = lock(&self.path, DAEMON_FILE)?;
        }
        let has_claim = is_named(&self.claim, &self.path.join(CLAIM_FILE));
        if has_claim.map_err(write_error(CLAIM_FILE))? {
            return Ok(false);
        }
        let claim = lock(&self.path, CLAIM_FILE)?;
        let metadata = claim.metadata().map_err(write_error(CLAIM_FILE))?;
        self.claim = claim;
        (self.inode, self.device) = (metadata.ino(), metadata.dev());
        self.shares_lock = false;
        Ok(true)
    }

    /// Writes the record, with one write in place of fixed length. The write needs no disk space
    /// and cannot be torn by a kill. The record is not synced, because it proves nothing after a
    /// crash of the machine anyway (another boot).
    ///
    /// # Errors
    /// The error of the file system.
    pub fn record(
        &self,
        claim: Option<Claim>,
        token: Token,
        lease_longest: Option<Duration>,
    ) -> io::Result<()> {
        let record = ClaimFileRecord {
            schema: 1,
            lease: Some(self.lease.as_str().to_owned()),
            claim: claim.filter(|_| self.shares_lock).map(|c| c.to_string()),
            token: token.get(),
            boot_id: self.boot_id.clone(),
            inode: self.inode,
            device: self.device,
            lease_longest_ms: lease_longest.map(|longest| Declared::of(longest).millis),
            children: true,
        };
        let text = serde_json::to_string(&record).map_err(io::Error::other)?;
        let mut bytes = [b' '; RECORD_LENGTH];
        bytes[RECORD_LENGTH - 1] = b'\n';
        let place = bytes
            .get_mut(..text.len())
            .filter(|place| place.len() < RECORD_LENGTH)
            .ok_or_else(|| io::Error::other("claim record is too long"))?;
        place.copy_from_slice(text.as_bytes());
        match self.claim.write_at(&bytes, 0)? {
            RECORD_LENGTH => Ok(()),
            _ => Err(ErrorKind::WriteZero.into()),
        }
    }

    fn read(&self) -> io::Result<RecoveredState> {
        let mut bytes = [0; RECORD_LENGTH];
        let length = self.claim.read_at(&mut bytes, 0)?;
        let Some(text) = bytes.get(..length).filter(|text| !text.is_empty()) else {
            return Ok(RecoveredState::default());
        };
        let damaged = RecoveredState {
            damaged: true,
            ..RecoveredState::default()
        };
        let Ok(record) = serde_json::from_slice::<ClaimFileRecord>(text) else {
            return Ok(damaged);
        };
        let Some(token) = Token::new(record.token).filter(|_| record.schema == 1) else {
            return Ok(damaged);
        };
        if record
            .lease
            .is_some_and(|lease| lease != self.lease.as_str())
        {
            return Ok(RecoveredState {
                other_lease: true,
                ..RecoveredState::default()
            });
        }
        // A copied directory has another inode, and a restored image another boot; neither proves
        // that the process of this claim has exited. A boot id that cannot be read matches nothing.
        let proven = self.boot_id.is_some()
            && record.boot_id == self.boot_id
            && record.inode == self.inode
            && record.device == self.device;
        let claim = record.claim.as_deref().filter(|_| proven);
        Ok(RecoveredState {
            claim: claim.and_then(parse_claim),
            token,
            lease_longest: record
                .lease_longest_ms
                .and_then(|millis| Declared { millis }.valid()),
            other_lease: false,
            damaged: claim.is_some_and(|c| parse_claim(c).is_none()),
            unproven: (claim.is_some() && !record.children).then_some(Unproven::NotRecorded),
        })
    }

    /// Clears the places of the guards, because nothing runs yet under a claim of this process.
    fn forget_children(&self) -> io::Result<()> {
        self.claim.write_all_at(&no_children(), PLACES_BEGIN as u64)
    }

    /// Removes the status files of the previous process, whose deadline may still be in the future.
    fn clear(&self) -> io::Result<()> {
        place::remove(&self.path.join(JSON_FILE))?;
        place::remove(&self.path.join(ENV_FILE))
    }

    /// Checks that new files can be created. A directory that turned read-only around a writable
    /// claim file is a configuration error; a full disk is not.
    fn probe(&self) -> io::Result<()> {
        let probe = self.path.join(PROBE_FILE);
        match place::create_anew(&probe, 0o600) {
            Ok(_) => fs::remove_file(&probe),
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::StorageFull | ErrorKind::QuotaExceeded
                ) =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// Returns the absolute path of the JSON status file in `directory`, which stays valid if the
/// working directory changes.
pub fn status_file(directory: &Path) -> PathBuf {
    std::path::absolute(directory)
        .unwrap_or_else(|_| directory.to_owned())
        .join(JSON_FILE)
}

/// Returns the directory for `lease`: `configured`, else `/run/leasehold/<lease>`, or
/// `$XDG_RUNTIME_DIR/leasehold/<lease>` if the latter cannot be created.
pub fn default_directory(lease: &ResourceName, configured: Option<&Path>) -> PathBuf {
    choose(lease, configured, roots(), can_be_made)
}

/// Returns the parents of the directories of running daemons, in the order in which a daemon
/// chooses them.
pub fn roots() -> Vec<PathBuf> {
    let user = user_root(std::env::var_os("XDG_RUNTIME_DIR"));
    let user = user.map(|root| root.join("leasehold"));
    std::iter::once(PathBuf::from(RUN_ROOT))
        .chain(user)
        .collect()
}

/// Returns the runtime directory of the user. The XDG specification says that a relative path must
/// be ignored; it would depend on the working directory, and no reader would find it.
fn user_root(variable: Option<OsString>) -> Option<PathBuf> {
    variable
        .map(PathBuf::from)
        .filter(|root| root.is_absolute())
}

fn can_be_made(path: &Path) -> bool {
    make_directory(path, MODE).is_ok() && rustix::fs::access(path, Access::WRITE_OK).is_ok()
}

fn choose(
    lease: &ResourceName,
    configured: Option<&Path>,
    roots: Vec<PathBuf>,
    usable: impl FnOnce(&Path) -> bool,
) -> PathBuf {
    let chosen = configured.map(Path::to_owned);
    let mut directories = roots.into_iter().map(|root| root.join(lease.as_str()));
    let first = chosen.or_else(|| directories.next()).unwrap_or_default();
    match directories.next() {
        Some(user) if configured.is_none() && !usable(&first) => user,
        Some(_) | None => first,
    }
}

/// Locks the claim file once no other process shares its lock.
fn lock_after(
    directory: &Path,
    patience: Duration,
    waiting: impl FnOnce(&[Occupant]),
) -> Result<File, CommandError> {
    let since = clock::boot_now();
    let mut until = since + patience;
    let mut waiting = Some(waiting);
    loop {
        match try_lock(directory, CLAIM_FILE)? {
            Some(claim) => return Ok(claim),
            None if clock::boot_now() < until => {
                if let Some(waiting) = waiting.take() {
                    // Its guard keeps the deadline of the claim that it was started under.
                    let longest = lease_longest(&directory.join(CLAIM_FILE));
                    until = until.max(since + longest.unwrap_or_default());
                    waiting(&occupant::of_file(&directory.join(CLAIM_FILE)));
                }
                std::thread::sleep(GUARD_POLL);
            }
            None => return Err(locked(directory, CLAIM_FILE)),
        }
    }
}

/// Returns the longest lease duration of the claims in a claim file, if one is recorded.
fn lease_longest(claim_file: &Path) -> Option<Duration> {
    let mut bytes = Vec::new();
    let file = File::open(claim_file).ok()?;
    file.take(RECORD_LENGTH as u64)
        .read_to_end(&mut bytes)
        .ok()?;
    let record: ClaimFileRecord = serde_json::from_slice(&bytes).ok()?;
    Declared {
        millis: record.lease_longest_ms?,
    }
    .valid()
}

fn lock(directory: &Path, name: &str) -> Result<File, CommandError> {
    try_lock(directory, name)?.ok_or_else(|| locked(directory, name))
}

/// Returns the locked file; `None` if another process has locked it.
fn try_lock(directory: &Path, name: &str) -> Result<Option<File>, CommandError> {
    let path = directory.join(name);
    let error = cannot_write(directory, name);
    for _ in 0..OPEN_ATTEMPTS_MAX {
        // The standard library sets O_CLOEXEC, so no hook or workload inherits the lock and keeps
        // it after this process has exited.
        let file = place::open_or_create(&path).map_err(&error)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(errno) => return Err(error(errno.into())),
        }
        // A lock on a file that was deleted in between does not exclude other processes.
        if is_named(&file, &path).map_err(&error)? {
            return Ok(Some(file));
        }
    }
    Err(error(io::Error::other(
        "the file that is locked keeps being replaced",
    )))
}

/// Returns true if a path refers to an open file.
fn is_named(file: &File, path: &Path) -> io::Result<bool> {
    let open = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(named) => Ok((open.ino(), open.dev()) == (named.ino(), named.dev())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn parse_claim(text: &str) -> Option<Claim> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let number = u128::from_str_radix(&digits, 16).ok()?;
    let claim = Claim::from_bytes(number.to_be_bytes());
    (claim.to_string() == text).then_some(claim)
}

#[cfg(test)]
mod tests;
