//! Errors of a status directory, with their remedies. All are configuration errors (exit 78).

use std::io::{self, ErrorKind};
use std::path::Path;

use super::CLAIM_FILE;
use leasehold_host::cause::cause;
use leasehold_host::occupant::{self, named};
use leasehold_host::{CommandError, exit};

pub(super) fn cannot_create(directory: &Path) -> impl Fn(io::Error) -> CommandError {
    move |error| {
        let what = format!("cannot create status directory {}", directory.display());
        let remedy = "set status.directory to a directory that this user may write to";
        refused(what, &error, remedy)
    }
}

pub(super) fn cannot_write(directory: &Path, file: &str) -> impl Fn(io::Error) -> CommandError {
    move |error| {
        let directory = directory.display();
        let what = format!("cannot write {file} in status directory {directory}");
        let remedy = match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "make room there",
            ErrorKind::ReadOnlyFilesystem => "set status.directory to a writable directory",
            _ => "let this user create files there",
        };
        refused(what, &error, remedy)
    }
}

fn refused(what: String, error: &io::Error, remedy: &str) -> CommandError {
    let refused = CommandError::new(exit::CONFIGURATION, what).because(cause(error));
    // An error message that this crate writes already contains a remedy.
    match error.get_ref() {
        Some(_) => refused,
        None => refused.to_fix(remedy),
    }
}

pub(super) fn locked(directory: &Path, file: &str) -> CommandError {
    let by = named(&occupant::of_file(&directory.join(file)));
    let directory = directory.display();
    let what = match file {
        CLAIM_FILE => format!("the claim file of status directory {directory} is locked by {by}"),
        _ => format!("status directory {directory} is used by {by}"),
    };
    CommandError::new(exit::CONFIGURATION, what)
        .to_fix("stop that process, or give each daemon a status.directory of its own")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_the_cause_and_the_remedy_are_named() {
        let cannot = "cannot write claim in status directory /run/leasehold/orders: ";
        for (error, expected) in [
            (
                ErrorKind::PermissionDenied.into(),
                "permission denied; to fix: let this user create files there",
            ),
            (
                ErrorKind::StorageFull.into(),
                "no storage space; to fix: make room there",
            ),
            (
                ErrorKind::ReadOnlyFilesystem.into(),
                "read-only filesystem or storage medium; to fix: set status.directory to a \
                 writable directory",
            ),
            (
                io::Error::other("it is a FIFO; to fix: remove it"),
                "it is a FIFO; to fix: remove it",
            ),
        ] {
            let refused = cannot_write(Path::new("/run/leasehold/orders"), "claim")(error);
            assert_eq!(refused.to_string(), format!("{cannot}{expected}"));
        }
    }
}
