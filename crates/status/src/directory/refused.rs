//! Errors of a status directory, with their remedies.

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use leasehold_host::cause::cause;
use leasehold_host::occupant::{self, Occupant, named};

/// A status directory that cannot be used, which is a configuration error (exit 78).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// The directory cannot be created.
    Make {
        /// The directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file in the directory cannot be written.
    Write {
        /// The directory.
        path: PathBuf,
        /// The file in it.
        file: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// Another process has locked the directory.
    Locked {
        /// The directory.
        path: PathBuf,
        /// The file in it.
        file: &'static str,
        /// The processes that have the file open, as far as they are visible.
        by: Vec<Occupant>,
    },
}

impl fmt::Display for DirectoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.remedy() {
            Some(remedy) => write!(f, "{}. {remedy}", self.why()),
            None => f.write_str(&self.why()),
        }
    }
}

impl DirectoryError {
    /// Returns the operation that failed, and the cause.
    pub fn why(&self) -> String {
        match self {
            Self::Make { path, source } => {
                let path = path.display();
                format!("cannot create status directory {path}: {}", cause(source))
            }
            Self::Write { path, file, source } => {
                let path = path.display();
                format!(
                    "cannot write {file} in status directory {path}: {}",
                    cause(source)
                )
            }
            Self::Locked { path, file, by } => {
                let (path, by) = (path.display(), named(by));
                format!("cannot lock {file} in status directory {path}: {by} has locked it")
            }
        }
    }

    /// Returns the remedy; `None` if the cause contains it.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::Make { .. } => Some("Set status.directory to a place where this user may write"),
            Self::Locked { .. } => {
                Some("Stop that process, or give each daemon a status.directory of its own")
            }
            // An error message of our own already contains the remedy.
            Self::Write { source, .. } if source.get_ref().is_some() => None,
            Self::Write { source, .. } => Some(match source.kind() {
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "Make room there",
                ErrorKind::ReadOnlyFilesystem => {
                    "Set status.directory to a place that can be written"
                }
                _ => "This user must be able to create files there",
            }),
        }
    }

    /// Returns a converter for errors with a file of the directory.
    pub(super) fn writing(directory: &Path, file: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::Write {
            path: directory.to_owned(),
            file,
            source,
        }
    }

    /// Returns a converter for errors with the directory itself.
    pub(super) fn making(directory: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Make {
            path: directory.to_owned(),
            source,
        }
    }

    /// Adds the processes that have locked the file.
    pub(super) fn identified(self) -> Self {
        match self {
            Self::Locked { path, file, by: _ } => Self::Locked {
                by: occupant::of_file(&path.join(file)),
                path,
                file,
            },
            other => other,
        }
    }
}

impl From<DirectoryError> for io::Error {
    fn from(error: DirectoryError) -> Self {
        let kind = match &error {
            DirectoryError::Make { source, .. } | DirectoryError::Write { source, .. } => {
                source.kind()
            }
            DirectoryError::Locked { .. } => ErrorKind::ResourceBusy,
        };
        Self::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_the_cause_and_the_remedy_are_named() {
        let said = |source: io::Error| {
            let error =
                DirectoryError::writing(Path::new("/run/leasehold/orders"), "claim")(source);
            error.to_string()
        };
        let cannot = "cannot write claim in status directory /run/leasehold/orders: ";
        for (source, expected) in [
            (
                ErrorKind::PermissionDenied.into(),
                "permission denied. This user must be able to create files there",
            ),
            (
                ErrorKind::StorageFull.into(),
                "no storage space. Make room there",
            ),
            (
                ErrorKind::ReadOnlyFilesystem.into(),
                "read-only filesystem or storage medium. Set status.directory to a place that can \
                 be written",
            ),
            (
                io::Error::other("it is a FIFO: remove it"),
                "it is a FIFO: remove it",
            ),
        ] {
            assert_eq!(said(source), format!("{cannot}{expected}"));
        }
    }

    #[test]
    fn the_process_using_the_directory_is_named_among_other_errors() {
        let error = DirectoryError::Locked {
            path: "/run/leasehold/orders".into(),
            file: "daemon",
            by: Vec::new(),
        };
        let said = error.to_string();
        let error = io::Error::from(error);
        assert_eq!(error.kind(), ErrorKind::ResourceBusy);
        assert_eq!(error.to_string(), said);
    }
}
