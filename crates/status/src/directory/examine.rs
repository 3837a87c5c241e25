//! Examines a status directory. Changes nothing, and takes no lock that could keep a daemon from
//! starting.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat, statvfs};

use super::{DAEMON_FILE, cannot_create, cannot_write, choose, place, roots};
use leasehold_core::election::ResourceName;
use leasehold_host::CommandError;
use leasehold_host::occupant::{self, Occupant};

/// The state of a usable status directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Examined {
    /// The directory is missing. A daemon can create it in this existing directory.
    Missing(PathBuf),
    /// A daemon can create files in the directory.
    Writable {
        /// The processes that use the directory; empty if none are visible.
        by: Vec<Occupant>,
    },
    /// The disk of the directory is full, so no file can be created.
    Full,
}

/// Examines a directory. Fails if a daemon could not create the directory or write to it.
pub fn examine(path: &Path) -> Result<Examined, CommandError> {
    place::refuse_planted_links(path).map_err(cannot_create(path))?;
    let existing = path
        .ancestors()
        .filter(|part| !part.as_os_str().is_empty())
        .find(|part| fs::symlink_metadata(part).is_ok())
        .unwrap_or(Path::new("."));
    let missing = existing != path;
    let usable = match fs::metadata(existing) {
        Ok(found) if !found.is_dir() => Err(ErrorKind::NotADirectory.into()),
        Ok(_) => may_write_in(existing),
        Err(error) => Err(error),
    };
    match usable {
        Err(source) if missing => Err(cannot_create(path)(source)),
        Err(source) => Err(cannot_write(path, DAEMON_FILE)(source)),
        Ok(()) if missing => Ok(Examined::Missing(existing.to_owned())),
        Ok(()) if statvfs(path).is_ok_and(|disk| disk.f_bavail == 0 && disk.f_blocks > 0) => {
            Ok(Examined::Full)
        }
        Ok(()) => Ok(Examined::Writable {
            by: occupant::of_file(&path.join(DAEMON_FILE)),
        }),
    }
}

/// Returns the directory that a daemon would choose for `lease`, but does not create it.
pub fn intended_directory(lease: &ResourceName, configured: Option<&Path>) -> PathBuf {
    choose(lease, configured, roots(), |path| examine(path).is_ok())
}

fn may_write_in(directory: &Path) -> io::Result<()> {
    let access = Access::WRITE_OK | Access::EXEC_OK;
    // A daemon creates files as its effective user.
    Ok(accessat(CWD, directory, access, AtFlags::EACCESS)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_directory_is_not_created() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a/b");
        let expected = Examined::Missing(place.path().to_owned());
        assert_eq!(examine(&path).unwrap(), expected);
        assert!(!place.path().join("a").exists());
    }

    #[test]
    fn an_existing_directory_is_not_changed() {
        let place = tempfile::tempdir().unwrap();
        let free = Examined::Writable { by: Vec::new() };
        assert_eq!(examine(place.path()).unwrap(), free);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_instead_of_a_directory_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        fs::write(&file, "").unwrap();
        for path in [file.join("below"), file] {
            let error = examine(&path).unwrap_err().to_string();
            assert!(error.contains("not a directory"), "{error}");
        }
    }
}
