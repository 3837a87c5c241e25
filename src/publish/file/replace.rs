//! Replaces the two files as a whole. It does not know what they say.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::{ENV_FILE, JSON_FILE};
use crate::publish::directory::{empty, replace_file};

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
    /// Without a sync: a reader that sees the file after a crash of the machine
    /// finds another boot id. A sync would cost a disk flush at every renewal
    /// and prevent nothing.
    fn replace(&self, text: &str) -> io::Result<()> {
        replace_file(&self.path, &self.temporary, MODE, text.as_bytes())
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
