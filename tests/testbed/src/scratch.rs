//! Creates temporary directories in memory or on a disk.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{statfs, statvfs};

use crate::Failure;

/// Minimum free memory for using /dev/shm. mongod writes about 200 MB of journal and files per
/// member.
const ROOM_MIN_BYTES: u64 = 2 * 1024 * 1024 * 1024;

/// The type of tmpfs in statfs(2).
const TMPFS: u64 = 0x0102_1994;

/// Maximum number of attempts to remove a directory. The attempts take about a second. If all fail,
/// the directory remains, and `leaves-nothing` reports it.
const REMOVALS_MAX: u32 = 100;
const REMOVAL_RETRY: Duration = Duration::from_millis(10);

/// The kind of storage for a store's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Storage {
    /// In memory if there is enough space, otherwise in the temporary directory.
    #[default]
    Memory,
    /// On a disk.
    Disk,
}

/// A temporary directory, removed on drop.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    // `None` after `keep`, which leaves the directory in place.
    owner: Option<tempfile::TempDir>,
}

impl Scratch {
    /// Creates a directory on /dev/shm, because a benchmark would otherwise measure a journal on a
    /// slow disk. If /dev/shm is too small, creates the directory below TMPDIR.
    pub fn new() -> Self {
        let in_memory = Path::new("/dev/shm");
        let parent = if room_bytes(in_memory) >= ROOM_MIN_BYTES {
            in_memory.to_path_buf()
        } else {
            std::env::temp_dir()
        };
        let owner = below(&parent)
            .or_else(|_| tempfile::tempdir())
            .expect("create a temporary directory");
        Self::of(owner)
    }

    /// Creates a directory in this kind of storage.
    ///
    /// # Errors
    /// If neither the temporary directory nor /var/tmp is on a disk and writable.
    pub fn on(storage: Storage) -> Result<Self, Failure> {
        if storage == Storage::Memory {
            return Ok(Self::new());
        }
        let mut parents = [std::env::temp_dir(), PathBuf::from("/var/tmp")].into_iter();
        let found =
            parents.find_map(|parent| (!in_memory(&parent)).then(|| below(&parent).ok()).flatten());
        found.map(Self::of).ok_or_else(|| {
            Failure::new("no disk: set TMPDIR to a directory that is not in memory (tmpfs)")
        })
    }

    fn of(owner: tempfile::TempDir) -> Self {
        Self {
            path: owner.path().to_path_buf(),
            owner: Some(owner),
        }
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps the directory. The caller must remove the directory.
    pub fn keep(&mut self) {
        if let Some(owner) = self.owner.take() {
            let _ = owner.keep();
        }
    }
}

impl Drop for Scratch {
    /// Retries, because an exiting process may still write while the directory is being removed.
    fn drop(&mut self) {
        let Some(owner) = self.owner.take() else {
            return;
        };
        let path = owner.keep();
        for _ in 0..REMOVALS_MAX {
            match std::fs::remove_dir_all(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    std::thread::sleep(REMOVAL_RETRY);
                }
                Ok(()) | Err(_) => return,
            }
        }
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

fn below(parent: &Path) -> std::io::Result<tempfile::TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("leasehold-testbed-").tempdir_in(parent)
}

/// Returns true for a directory in memory, and for a missing directory.
fn in_memory(path: &Path) -> bool {
    statfs(path).map_or(true, |stat| u64::try_from(stat.f_type).ok() == Some(TMPFS))
}

fn room_bytes(path: &Path) -> u64 {
    statvfs(path).map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_on_a_disk_is_not_in_memory_and_is_removed() {
        let path = match Scratch::on(Storage::Disk) {
            Ok(scratch) => {
                assert!(!in_memory(scratch.path()));
                scratch.path().to_path_buf()
            }
            Err(failure) => return assert!(failure.to_string().contains("TMPDIR"), "{failure}"),
        };
        assert!(!path.exists());
    }

    #[test]
    fn a_missing_directory_does_not_count_as_a_disk() {
        assert!(in_memory(Path::new("/does/not/exist")));
    }
}
