//! Replaces the two status files atomically, without knowing their format.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::{ENV_FILE, JSON_FILE};
use crate::publish::directory::{empty, replace_file};

/// World-readable, because the workload that mounts the directory runs as another user.
const MODE: u32 = 0o644;

/// A file, and the temporary name of its replacement. The name is fixed, so that
/// a kill leaves at most one temporary file, which the next write reuses.
#[derive(Debug)]
struct Replaceable {
    path: PathBuf,
    temporary: PathBuf,
}

/// The pair of status files.
#[derive(Debug)]
pub(super) struct StatusFilePair {
    json: Replaceable,
    env: Replaceable,
}

impl StatusFilePair {
    pub(super) fn new(directory: &Path) -> Self {
        let file = |name: &str| Replaceable {
            path: directory.join(name),
            temporary: directory.join(format!(".{name}.tmp")),
        };
        Self {
            json: file(JSON_FILE),
            env: file(ENV_FILE),
        }
    }

    /// Writes both files. The second is tried even if the first fails.
    pub(super) fn replace(&self, json: &str, env: &str) -> io::Result<()> {
        let first = self.json.replace(json);
        let second = self.env.replace(env);
        first.and(second)
    }

    /// Removes both files, or at least their content.
    pub(super) fn remove(&self) -> io::Result<()> {
        let first = self.json.remove();
        let second = self.env.remove();
        first.and(second)
    }
}

impl Replaceable {
    /// Replaces the file without a sync. A reader that sees the file after a crash of the machine
    /// finds another boot id, so a sync would cost a disk flush at every renewal and prevent
    /// nothing.
    fn replace(&self, text: &str) -> io::Result<()> {
        replace_file(&self.path, &self.temporary, MODE, text.as_bytes())
    }

    fn remove(&self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Ok(()) => Ok(()),
            // The file cannot exist if its directory does not.
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                Ok(())
            }
            // A directory that forbids the removal of files may still permit truncating them.
            Err(_) => empty(&self.path),
        }
    }
}
