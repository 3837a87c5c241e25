//! Temporary directories, in memory where there is room.

use std::path::{Path, PathBuf};

use rustix::fs::statvfs;

/// mongod writes some 200 MB of journal and files for each member.
const ROOM_MIN_BYTES: u64 = 2 * 1024 * 1024 * 1024;

/// A directory of its own, removed when it is dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    // Absent when the directory was given away with `keep`.
    owner: Option<tempfile::TempDir>,
}

impl Scratch {
    /// Makes one: on /dev/shm where that has room, since a journal on a slow
    /// disk would be what a benchmark measures, else in the temporary directory.
    pub fn new() -> Self {
        let in_memory = Path::new("/dev/shm");
        let parent = if room_bytes(in_memory) >= ROOM_MIN_BYTES {
            in_memory.to_path_buf()
        } else {
            std::env::temp_dir()
        };
        let owner = tempfile::Builder::new()
            .prefix("leasehold-testbed-")
            .tempdir_in(&parent)
            .or_else(|_| tempfile::tempdir())
            .expect("a temporary directory can be made");
        Self {
            path: owner.path().to_path_buf(),
            owner: Some(owner),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves the directory behind: whoever stays in it removes it.
    pub fn keep(&mut self) {
        if let Some(owner) = self.owner.take() {
            let _ = owner.keep();
        }
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

fn room_bytes(path: &Path) -> u64 {
    statvfs(path).map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize))
}
