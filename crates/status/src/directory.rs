//! The status directory: its lock, and the claim record, which survives a kill of the daemon.
//!
//! A new process uses the directory as proof that the lease's holder has exited (proof of death).
//! The new process holds the lock, so every earlier holder of the lock has exited. The proof
//! requires that the lease document names the claim of the record, because the lease's holder was
//! then an earlier holder of the lock. The proof also requires that the processes in the record
//! have exited, because they need not hold the lock.

mod deployment;
mod examine;
mod place;
mod predecessor;
mod refused;
mod witness;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
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
pub use self::witness::{Left, LeftClaim};
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
/// Name of the file that only a daemon locks. Distinguishes a second daemon from the guard of an
/// exited daemon, which holds only the lock of the claim file.
const DAEMON_FILE: &str = "daemon";
/// Name of the file that holds the candidate's deployment.
pub const DEPLOYMENT_FILE: &str = "deployment";
/// A daemon creates and removes this file at startup, to check that it can create files.
const PROBE_FILE: &str = ".probe";
/// Length of the claim record (at most 339 bytes), padded to a power of two. The record stays
/// inside one page of the page cache, so a kill cannot tear it. The guards' records follow.
const RECORD_LENGTH: usize = PLACES_BEGIN;
/// Mode of the directory. Every user may read it, because the workload may run as another user.
const MODE: u32 = 0o755;
/// Maximum number of attempts to lock a file that another process may replace at the same time.
const OPEN_ATTEMPTS_MAX: u32 = 8;
const GUARD_POLL: Duration = Duration::from_millis(5);

/// A locked status directory. Each [`StatusDirectory::lock_handle`] also keeps the directory
/// locked.
#[derive(Debug)]
pub struct StatusDirectory {
    path: PathBuf,
    lease: ResourceName,
    claim: File,
    /// The daemon's lock file, kept open to hold the lock. No other process shares this lock.
    /// `None` for a witness.
    daemon: Option<File>,
    boot_id: Option<String>,
    inode: u64,
    device: u64,
    /// False once [`Self::keep`] has replaced the claim file. A guard may still lock the old file.
    shares_lock: bool,
}

/// State recovered from the record of an earlier process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecoveredState {
    /// The claim of a process that is proven to have exited; `None` without that proof.
    pub claim: Option<Claim>,
    /// The highest token that the process had seen.
    pub token: Token,
    /// The longest lease duration that the process had seen; `None` in records of earlier versions.
    pub lease_longest: Option<Duration>,
    /// True if the directory belonged to another lease, whose state and deployment are discarded.
    pub other_lease: bool,
    /// True if the record or its claim could not be parsed. If the record could not be parsed, its
    /// token is lost.
    pub damaged: bool,
    /// The reason why the recorded claim is not a proof of death, if any.
    pub unproven: Option<Unproven>,
}

#[derive(Debug, Serialize, Deserialize)]
struct ClaimFileRecord {
    schema: u32,
    /// Earlier versions omit this field.
    #[serde(default)]
    lease: Option<String>,
    claim: Option<String>,
    token: i64,
    boot_id: Option<String>,
    inode: u64,
    device: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lease_longest_ms: Option<i64>,
    /// True if the guards' records of their children follow this record. Earlier versions omit the
    /// field.
    #[serde(default)]
    children: bool,
}

impl StatusDirectory {
    /// Creates the directory if it is missing, locks it, and reads the record of an earlier
    /// process.
    pub fn open(path: &Path, lease: &ResourceName) -> Result<(Self, RecoveredState), CommandError> {
        Self::open_after(path, lease, Duration::ZERO, |_| {}, || false)
    }

    /// Opens the directory once the guard of a previous daemon has stopped its workload. If that
    /// guard still runs, calls `waiting`, and waits for at most `patience` or the longest lease
    /// duration in the claim record, whichever is longer. Fails before that if `stopped` returns
    /// true. Also waits briefly for a workload whose guard was killed. Blocks the thread, so call
    /// this function before the event loop starts.
    pub fn open_after(
        path: &Path,
        lease: &ResourceName,
        patience: Duration,
        waiting: impl FnOnce(&[Occupant]),
        stopped: impl FnMut() -> bool,
    ) -> Result<(Self, RecoveredState), CommandError> {
        make_directory(path, MODE).map_err(cannot_create(path))?;
        let daemon = lock(path, DAEMON_FILE)?;
        let claim = lock_after(path, patience, waiting, stopped)?;
        let write_error = cannot_write(path, CLAIM_FILE);
        let directory = Self::locked(path, lease, claim, Some(daemon)).map_err(&write_error)?;
        let mut memory = directory.read().map_err(&write_error)?;
        if memory.other_lease {
            place::remove(&directory.deployment_file())
                .map_err(cannot_write(path, DEPLOYMENT_FILE))?;
        }
        directory
            .prove(&mut memory, patience)
            .map_err(&write_error)?;
        // This write gives the file its full length, so that later records need no space on a full
        // disk. The proof stays in the record until the caller has used the proof.
        directory
            .record(memory.claim, memory.token, memory.lease_longest)
            .map_err(&write_error)?;
        // No command runs yet under a claim of this process.
        let claim = &directory.claim;
        let cleared = claim.write_all_at(&no_children(), PLACES_BEGIN as u64);
        cleared.map_err(write_error)?;
        directory.probe().map_err(cannot_write(path, PROBE_FILE))?;
        Ok((directory, memory))
    }

    fn locked(
        path: &Path,
        lease: &ResourceName,
        claim: File,
        daemon: Option<File>,
    ) -> io::Result<Self> {
        let metadata = claim.metadata()?;
        Ok(Self {
            path: path.to_owned(),
            lease: lease.clone(),
            claim,
            daemon,
            // Without a boot id, the record proves nothing.
            boot_id: clock::boot_id().ok().flatten(),
            inode: metadata.ino(),
            device: metadata.dev(),
            shares_lock: true,
        })
    }

    /// Removes the claim from `memory` unless there is proof that its process has exited.
    fn prove(&self, memory: &mut RecoveredState, patience: Duration) -> io::Result<()> {
        // A record that another user may have written is not a proof.
        if self.other_owner()?.is_some() {
            memory.claim = None;
        }
        if memory.claim.is_some() && memory.unproven.is_none() {
            memory.unproven = predecessor::may_run(&self.claim, &self.path, patience)?;
        }
        // With the proof, this process can lead immediately, under a new token. If the status files
        // of the previous process cannot be removed, their deadline may still be in the future.
        // Then this process does not use the proof, and waits like any other candidate.
        if memory.claim.is_some() && memory.unproven.is_none() {
            memory.unproven = self.clear().err();
        }
        memory.claim = memory.claim.filter(|_| memory.unproven.is_none());
        Ok(())
    }

    /// Returns the owner of the claim record if the owner is neither this user nor root. The record
    /// then proves nothing.
    pub fn other_owner(&self) -> io::Result<Option<u32>> {
        let owner = self.claim.metadata()?.uid();
        Ok((!place::is_ours(owner)).then_some(owner))
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a handle on the lock for the guard of a workload; the directory stays locked until
    /// all handles are closed. Fails if no descriptor is free.
    pub fn lock_handle(&self) -> io::Result<OwnedFd> {
        Ok(self.claim.try_clone()?.into())
    }

    /// Creates and locks the directory again if it was removed. Returns true if the claim record is
    /// empty and the caller must write it again. Fails if another daemon uses the new directory.
    pub fn keep(&mut self) -> Result<bool, CommandError> {
        let write_error = |file| cannot_write(&self.path, file);
        let named = |daemon| is_named(daemon, &self.path.join(DAEMON_FILE));
        let has_daemon = self.daemon.as_ref().map_or(Ok(false), named);
        if !has_daemon.map_err(write_error(DAEMON_FILE))? {
            make_directory(&self.path, MODE).map_err(cannot_create(&self.path))?;
            self.daemon = Some(lock(&self.path, DAEMON_FILE)?);
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

    /// Overwrites the record with one write, which needs no disk space and cannot be torn by a
    /// kill. The record is not synced, because it proves nothing after a reboot.
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
        let place = bytes[..RECORD_LENGTH - 1].get_mut(..text.len());
        let place = place.ok_or_else(|| io::Error::other("claim record is too long"))?;
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
        let lease = record.lease.as_deref();
        if lease.is_some_and(|lease| lease != self.lease.as_str()) {
            return Ok(RecoveredState {
                other_lease: true,
                ..RecoveredState::default()
            });
        }
        // A copied directory (another inode) or a restored image (another boot) does not prove that
        // the process of this claim has exited.
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

    /// Removes the status files of the previous process.
    fn clear(&self) -> Result<(), Unproven> {
        for file in [JSON_FILE, ENV_FILE] {
            place::remove(&self.path.join(file))
                .map_err(|error| Unproven::FileRemains(file, error.kind()))?;
        }
        Ok(())
    }

    /// Checks that new files can be created. A read-only directory with a writable claim file is a
    /// configuration error; a full disk is not.
    fn probe(&self) -> io::Result<()> {
        let probe = self.path.join(PROBE_FILE);
        match place::create_anew(&probe, 0o600) {
            Ok(_) => fs::remove_file(&probe),
            Err(error) => match error.kind() {
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Ok(()),
                _ => Err(error),
            },
        }
    }
}

/// Returns the absolute path of the JSON status file in `directory`.
pub fn status_file(directory: &Path) -> PathBuf {
    let absolute = std::path::absolute(directory);
    absolute.as_deref().unwrap_or(directory).join(JSON_FILE)
}

/// Returns the directory for `lease`: `configured`, else `/run/leasehold/<lease>`, or
/// `$XDG_RUNTIME_DIR/leasehold/<lease>` if `/run/leasehold/<lease>` cannot be created.
pub fn default_directory(lease: &ResourceName, configured: Option<&Path>) -> PathBuf {
    choose(lease, configured, roots(), can_be_made)
}

/// Returns the possible parents of status directories, the preferred parent first.
pub fn roots() -> Vec<PathBuf> {
    let user = user_root(std::env::var_os("XDG_RUNTIME_DIR"));
    let user = user.map(|root| root.join("leasehold"));
    std::iter::once(PathBuf::from(RUN_ROOT))
        .chain(user)
        .collect()
}

/// Returns the runtime directory of the user. Ignores a relative path, as the XDG specification
/// requires.
fn user_root(variable: Option<OsString>) -> Option<PathBuf> {
    let root = variable.map(PathBuf::from);
    root.filter(|root| root.is_absolute())
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

fn lock_after(
    directory: &Path,
    patience: Duration,
    waiting: impl FnOnce(&[Occupant]),
    mut stopped: impl FnMut() -> bool,
) -> Result<File, CommandError> {
    let since = clock::boot_now();
    let mut until = since + patience;
    let mut waiting = Some(waiting);
    loop {
        match try_lock(directory, CLAIM_FILE)? {
            Some(claim) => return Ok(claim),
            None if clock::boot_now() < until && !stopped() => {
                if let Some(waiting) = waiting.take() {
                    // The guard ends the workload by the claim's deadline, so this wait suffices.
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

fn lease_longest(claim_file: &Path) -> Option<Duration> {
    let millis = recorded(&File::open(claim_file).ok()?)?.lease_longest_ms?;
    Declared { millis }.valid()
}

fn recorded(claim: &File) -> Option<ClaimFileRecord> {
    let mut bytes = [0; RECORD_LENGTH];
    let length = claim.read_at(&mut bytes, 0).ok()?;
    serde_json::from_slice(bytes.get(..length)?).ok()
}

fn lock(directory: &Path, name: &str) -> Result<File, CommandError> {
    try_lock(directory, name)?.ok_or_else(|| locked(directory, name))
}

fn try_lock(directory: &Path, name: &str) -> Result<Option<File>, CommandError> {
    let path = directory.join(name);
    let error = cannot_write(directory, name);
    for _ in 0..OPEN_ATTEMPTS_MAX {
        // The file is opened with O_CLOEXEC, so that no hook or workload inherits the lock.
        let file = place::open_or_create(&path).map_err(&error)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(errno) => return Err(error(errno.into())),
        }
        // A lock on a file that was deleted after it was opened does not exclude other processes.
        if is_named(&file, &path).map_err(&error)? {
            return Ok(Some(file));
        }
    }
    Err(error(io::Error::other(
        "another process keeps replacing the lock file",
    )))
}

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
