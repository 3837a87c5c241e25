//! Replaces the two files as a whole. It does not know what they say.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::{ENV_FILE, JSON_FILE};
use crate::publish::directory::{create_anew, empty};

/// World-readable: the workload that mounts the directory is another user.
const MODE: u32 = 0o644;

/// A file and the name under which its successor is written. The name is
/// fixed, so that a kill leaves at most one of them, which the next write uses.
#[derive(Debug)]
struct Replaceable {
    path: PathBuf,
    temporary: PathBuf,
}

/// The pair of files.
#[derive(Debug)]
pub(super) struct Files {
    json: Replaceable,
    env: Replaceable,
}

impl Files {
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

    /// Writes both; tries the second also if the first fails.
    pub(super) fn replace(&self, json: &str, env: &str) -> io::Result<()> {
        let first = self.json.replace(json);
        let second = self.env.replace(env);
        first.and(second)
    }

    /// Makes sure that neither file says anything.
    pub(super) fn remove(&self) -> io::Result<()> {
        let first = self.json.remove();
        let second = self.env.remove();
        first.and(second)
    }
}

impl Replaceable {
    fn replace(&self, text: &str) -> io::Result<()> {
        let written = self.write_temporary(text.as_bytes());
        let replaced = written.and_then(|()| fs::rename(&self.temporary, &self.path));
        if replaced.is_err() {
            // Half a file would keep the room that the next attempt needs.
            let _ = fs::remove_file(&self.temporary);
        }
        replaced
    }

    /// Without fsync: the file speaks of this boot only, and a reader that
    /// sees it after a crash of the machine finds another boot id. A sync would
    /// cost a disk flush at every renewal and prevent nothing.
    fn write_temporary(&self, text: &[u8]) -> io::Result<()> {
        let mut file = create_anew(&self.temporary, MODE)?;
        file.write_all(text)
    }

    fn remove(&self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Ok(()) => Ok(()),
            // Without its directory there is no file either.
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                Ok(())
            }
            // A directory that lets no name go may still let the content go.
            Err(_) => empty(&self.path),
        }
    }
}
