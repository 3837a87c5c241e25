//! The status directory: its lock, and the claim record that outlives a kill.
//!
//! It does not say who leads; [`super::file`] writes that. Whoever gets the
//! lock and finds in the record the claim that the document names knows that
//! the process which made that claim is gone (local proof of death), and
//! everything that shared its lock with it. What ran under the claim without
//! sharing it is in the record too, and its end is part of the proof.

mod deployment;
mod place;
mod predecessor;
mod refused;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Access, FlockOperation};
use serde::{Deserialize, Serialize};

pub(super) use self::place::empty;
pub use self::place::{closed_root, exposure, make_directory, read_regular, replace_file};
pub use self::predecessor::Unproven;
pub use self::refused::DirectoryError;
use super::occupant::{self, Occupant};
use crate::clock;
use crate::election::{Claim, Declared, LeaseName, Token};
use crate::workload::claim_share::{PLACES_BEGIN, no_children};

/// Where status directories are by default.
pub const RUN_ROOT: &str = "/run/leasehold";
/// The file that is locked and holds the claim record.
pub const CLAIM_FILE: &str = "claim";
/// The file that only a daemon locks. With it a second daemon is told from the
/// guard of a dead one, which shares the lock of the claim until its workload is gone.
pub const DAEMON_FILE: &str = "daemon";
/// The file that holds the deployment which the candidate belongs to.
pub const DEPLOYMENT_FILE: &str = "deployment";
/// Made and removed at the start, to see whether that can be done.
const PROBE_FILE: &str = ".probe";
/// The length of the claim record: the longest one has 265 bytes (two UUIDs,
/// three 20-digit numbers and an hour with their names), and the next power of two
/// stays inside one page of the page cache, so that a kill cannot tear it.
/// Behind it stands what guards wrote of their children.
pub const RECORD_LENGTH: usize = PLACES_BEGIN;
/// Readable by everybody: the workload may be another user.
const MODE: u32 = 0o755;
/// How often the claim file may be exchanged under us before we give up; each
/// time takes an operator who deletes it between our open and our lock.
const OPEN_ATTEMPTS_MAX: u32 = 8;
/// How often the lock of the claim is tried while a guard has it. It is part of
/// how fast a restarted daemon leads again.
const GUARD_POLL: Duration = Duration::from_millis(5);

/// A locked status directory. The lock lasts as long as the value, and as long
/// as any handle from [`StatusDirectory::lock_handle`].
#[derive(Debug)]
pub struct StatusDirectory {
    path: PathBuf,
    claim: File,
    /// Held for its lock, which nobody shares.
    daemon: File,
    boot_id: Option<String>,
    inode: u64,
    device: u64,
    /// Whether handles from [`StatusDirectory::lock_handle`] are of the claim
    /// file that has the name. Where it is another one, a guard may live
    /// that does not hold its lock.
    shares_lock: bool,
}

/// What the record of an earlier process tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Memory {
    /// The claim of a process that is proven gone; `None` without that proof.
    pub claim: Option<Claim>,
    /// The highest token that process had seen.
    pub token: Token,
    /// The longest lease duration that it had seen; `None` where a record of
    /// an earlier version does not tell.
    pub lease_longest: Option<Duration>,
    /// Whether a record was there that could not be read: worth a warning,
    /// since the token that it held is forgotten.
    pub damaged: bool,
    /// Why the claim of a process that is gone is no proof, where that lies in
    /// the processes which ran under it.
    pub unproven: Option<Unproven>,
}

/// The record in the claim file.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    schema: u32,
    claim: Option<String>,
    token: i64,
    boot_id: Option<String>,
    inode: u64,
    device: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lease_longest_ms: Option<i64>,
    /// Guards write down their children behind this record. An earlier version,
    /// whose guards do not, leaves this out when it writes.
    #[serde(default)]
    children: bool,
}

impl StatusDirectory {
    /// Makes the directory if it is missing, locks it, and reads what an
    /// earlier process left.
    ///
    /// # Errors
    /// [`DirectoryError`] if it cannot be made or written or is in use.
    pub fn open(path: &Path) -> Result<(Self, Memory), DirectoryError> {
        Self::open_after(path, Duration::ZERO, |_| {})
    }

    /// As [`StatusDirectory::open`]; where the guard of a dead daemon still
    /// ends its workload, `waiting` is called and its end is waited for, no
    /// longer than `patience`, and a moment for a workload whose guard was
    /// killed. It blocks: call it before there is an event loop.
    ///
    /// # Errors
    /// As [`StatusDirectory::open`].
    pub fn open_after(
        path: &Path,
        patience: Duration,
        waiting: impl FnOnce(&[Occupant]),
    ) -> Result<(Self, Memory), DirectoryError> {
        make_directory(path, MODE).map_err(DirectoryError::making(path))?;
        let daemon = lock(path, DAEMON_FILE).map_err(DirectoryError::identified)?;
        let claim = lock_after(path, patience, waiting).map_err(DirectoryError::identified)?;
        let write_error = DirectoryError::writing(path, CLAIM_FILE);
        let metadata = claim.metadata().map_err(&write_error)?;
        let directory = Self {
            path: path.to_owned(),
            claim,
            daemon,
            boot_id: clock::boot_id(),
            inode: metadata.ino(),
            device: metadata.dev(),
            shares_lock: true,
        };
        let mut memory = directory.read().map_err(&write_error)?;
        // A record that another user may have written proves nothing.
        memory.claim = memory.claim.filter(|_| place::is_ours(metadata.uid()));
        if memory.claim.is_some() && memory.unproven.is_none() {
            let unproven = predecessor::may_run(&directory.claim, path, patience);
            memory.unproven = unproven.map_err(&write_error)?;
        }
        memory.claim = memory.claim.filter(|_| memory.unproven.is_none());
        // A successor leads at once with another token. Where the files of the
        // dead process cannot be taken away, it waits like anyone else.
        memory.claim = memory.claim.filter(|_| directory.clear().is_ok());
        // Written at once: from here on the file has its full length, and
        // later records need no room on a disk that has filled up.
        // The proof is kept until the caller has used it.
        directory
            .record(memory.claim, memory.token, memory.lease_longest)
            .map_err(&write_error)?;
        directory.forget_children().map_err(write_error)?;
        let probe_error = DirectoryError::writing(path, PROBE_FILE);
        directory.probe().map_err(probe_error)?;
        Ok((directory, memory))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Another handle on the lock: the directory stays locked until both are
    /// closed. For the guard of a workload, whose life must count as ours.
    ///
    /// # Errors
    /// When no file descriptor is left.
    pub fn lock_handle(&self) -> io::Result<OwnedFd> {
        Ok(self.claim.try_clone()?.into())
    }

    /// Makes sure that the directory is there and that its locks are ours: a
    /// directory that was removed is made again, unless another daemon has
    /// done that and uses it. Returns true if the claim record is empty and
    /// has to be written again.
    ///
    /// # Errors
    /// [`DirectoryError`], as at the start.
    pub fn keep(&mut self) -> Result<bool, DirectoryError> {
        let write_error = |file| DirectoryError::writing(&self.path, file);
        let has_daemon = self.has_name(&self.daemon, DAEMON_FILE);
        if !has_daemon.map_err(write_error(DAEMON_FILE))? {
            make_directory(&self.path, MODE).map_err(DirectoryError::making(&self.path))?;
            self.daemon = lock(&self.path, DAEMON_FILE).map_err(DirectoryError::identified)?;
        }
        let write_error = DirectoryError::writing(&self.path, CLAIM_FILE);
        let has_claim = self.has_name(&self.claim, CLAIM_FILE);
        if has_claim.map_err(&write_error)? {
            return Ok(false);
        }
        let claim = lock(&self.path, CLAIM_FILE).map_err(DirectoryError::identified)?;
        let metadata = claim.metadata().map_err(write_error)?;
        self.claim = claim;
        (self.inode, self.device) = (metadata.ino(), metadata.dev());
        self.shares_lock = false;
        Ok(true)
    }

    /// True if the file under this name is the open one.
    fn has_name(&self, open: &File, name: &str) -> io::Result<bool> {
        let open = open.metadata()?;
        match fs::symlink_metadata(self.path.join(name)) {
            Ok(named) => Ok((open.ino(), open.dev()) == (named.ino(), named.dev())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Writes the record: one write in place, of fixed length. It needs no
    /// room on the disk and cannot be torn by a kill. It is not synced: it
    /// proves nothing after a crash of the machine anyway (another boot).
    ///
    /// # Errors
    /// What the file system says.
    pub fn record(
        &self,
        claim: Option<Claim>,
        token: Token,
        lease_longest: Option<Duration>,
    ) -> io::Result<()> {
        let record = Record {
            schema: 1,
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

    fn read(&self) -> io::Result<Memory> {
        let mut bytes = [0; RECORD_LENGTH];
        let length = self.claim.read_at(&mut bytes, 0)?;
        let Some(text) = bytes.get(..length).filter(|text| !text.is_empty()) else {
            return Ok(Memory::default());
        };
        let damaged = Memory {
            damaged: true,
            ..Memory::default()
        };
        let Ok(record) = serde_json::from_slice::<Record>(text) else {
            return Ok(damaged);
        };
        let Some(token) = Token::new(record.token).filter(|_| record.schema == 1) else {
            return Ok(damaged);
        };
        // A copied directory has another inode, a restored image another boot:
        // neither proves that the process of this claim is gone. A boot that
        // cannot be read matches nothing.
        let proven = self.boot_id.is_some()
            && record.boot_id == self.boot_id
            && record.inode == self.inode
            && record.device == self.device;
        let claim = record.claim.as_deref().filter(|_| proven);
        Ok(Memory {
            claim: claim.and_then(parse_claim),
            token,
            lease_longest: record
                .lease_longest_ms
                .and_then(|millis| Declared { millis }.valid()),
            damaged: claim.is_some_and(|c| parse_claim(c).is_none()),
            unproven: (claim.is_some() && !record.children).then_some(Unproven::NotRecorded),
        })
    }

    /// Under a claim of this process nothing runs yet.
    fn forget_children(&self) -> io::Result<()> {
        self.claim.write_all_at(&no_children(), PLACES_BEGIN as u64)
    }

    /// Takes away what a dead process said: its files may name a deadline ahead.
    fn clear(&self) -> io::Result<()> {
        for name in [super::file::JSON_FILE, super::file::ENV_FILE] {
            match fs::remove_file(self.path.join(name)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Whether new files can be made: a directory that turned read-only around
    /// a writable claim file is a configuration error, a full disk is not.
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

/// The directory for `lease`: `configured`, else `/run/leasehold/<lease>`, else
/// `$XDG_RUNTIME_DIR/leasehold/<lease>` where the former cannot be made.
pub fn default_directory(lease: &LeaseName, configured: Option<&Path>) -> PathBuf {
    let user = user_root(std::env::var_os("XDG_RUNTIME_DIR"));
    choose(lease, configured, Path::new(RUN_ROOT), user.as_deref())
}

/// Where a reader finds the directories of running daemons, in the order in
/// which a daemon chooses them.
pub fn roots() -> Vec<PathBuf> {
    let user = user_root(std::env::var_os("XDG_RUNTIME_DIR"));
    let user = user.map(|root| root.join("leasehold"));
    std::iter::once(PathBuf::from(RUN_ROOT))
        .chain(user)
        .collect()
}

/// The runtime directory of the user. The specification says that a relative
/// path is to be ignored; below whatever directory this process was started in,
/// no reader would look.
fn user_root(variable: Option<OsString>) -> Option<PathBuf> {
    variable
        .map(PathBuf::from)
        .filter(|root| root.is_absolute())
}

fn choose(
    lease: &LeaseName,
    configured: Option<&Path>,
    run_root: &Path,
    user_root: Option<&Path>,
) -> PathBuf {
    if let Some(configured) = configured {
        return configured.to_owned();
    }
    let first = run_root.join(lease.as_str());
    let usable = || {
        make_directory(&first, MODE).is_ok() && rustix::fs::access(&first, Access::WRITE_OK).is_ok()
    };
    match user_root {
        Some(user) if !usable() => user.join("leasehold").join(lease.as_str()),
        Some(_) | None => first,
    }
}

/// The lock of the claim, as soon as nobody who shares it is left.
fn lock_after(
    directory: &Path,
    patience: Duration,
    waiting: impl FnOnce(&[Occupant]),
) -> Result<File, DirectoryError> {
    let until = clock::boot_now() + patience;
    let mut waiting = Some(waiting);
    loop {
        match lock(directory, CLAIM_FILE) {
            Err(DirectoryError::Locked { .. }) if clock::boot_now() < until => {
                if let Some(waiting) = waiting.take() {
                    waiting(&occupant::of_file(&directory.join(CLAIM_FILE)));
                }
                std::thread::sleep(GUARD_POLL);
            }
            locked => return locked,
        }
    }
}

fn lock(directory: &Path, name: &'static str) -> Result<File, DirectoryError> {
    let path = directory.join(name);
    let error = DirectoryError::writing(directory, name);
    for _ in 0..OPEN_ATTEMPTS_MAX {
        // The standard library sets O_CLOEXEC, so no hook or workload inherits
        // the lock and outlives us with it.
        let file = place::open_or_create(&path).map_err(&error)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(DirectoryError::Locked {
                    path: directory.to_owned(),
                    file: name,
                    by: Vec::new(),
                });
            }
            Err(errno) => return Err(error(errno.into())),
        }
        // A lock on a file that was deleted in between excludes nobody.
        let locked = file.metadata().map_err(&error)?;
        match fs::symlink_metadata(&path) {
            Ok(named) if (named.ino(), named.dev()) == (locked.ino(), locked.dev()) => {
                return Ok(file);
            }
            Ok(_) => {}
            Err(source) if source.kind() == ErrorKind::NotFound => {}
            Err(source) => return Err(error(source)),
        }
    }
    Err(error(io::Error::other(
        "the file that is locked keeps being replaced",
    )))
}

fn parse_claim(text: &str) -> Option<Claim> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let number = u128::from_str_radix(&digits, 16).ok()?;
    let claim = Claim::from_bytes(number.to_be_bytes());
    (claim.to_string() == text).then_some(claim)
}

#[cfg(test)]
mod tests;
