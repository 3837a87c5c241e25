//! Replaces the two status files, without knowing their format.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use super::{ENV_FILE, JSON_FILE};
use crate::publish::directory::{empty, replace_file, temporary};

/// World-readable, because the workload that mounts the directory runs as another user.
const MODE: u32 = 0o644;

/// Writes both files, the second even if the first fails. There is no sync, which would cost a disk
/// flush per renewal: after a crash of the machine, the boot id in a file invalidates it.
pub(super) fn replace(directory: &Path, json: &str, env: &str) -> io::Result<()> {
    let [first, second] = [(JSON_FILE, json), (ENV_FILE, env)].map(|(name, text)| {
        let path = directory.join(name);
        replace_file(&path, &temporary(&path), MODE, text.as_bytes())
    });
    first.and(second)
}

/// Removes both files, or empties them if the directory forbids removal.
pub(super) fn remove(directory: &Path) -> io::Result<()> {
    let [first, second] = [JSON_FILE, ENV_FILE].map(|name| {
        let path = directory.join(name);
        match fs::remove_file(&path).map_err(|error| error.kind()) {
            // The file cannot exist if its directory does not.
            Ok(()) | Err(ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(()),
            Err(_) => empty(&path),
        }
    });
    first.and(second)
}
