//! Looks up a program as execvp(3) does, before a lease or a lock is acquired for the program.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

use crate::cause::not_executable;
use crate::{CommandError, exit};

/// Fails with the exit code of a shell if exec would not find the program, or not execute it.
pub fn check_executable(program: &OsStr) -> Result<(), CommandError> {
    let Err(errno) = found(program, env::var_os("PATH").as_deref()) else {
        return Ok(());
    };
    let error = io::Error::from(errno);
    let code = match errno {
        Errno::NOENT => exit::NOT_FOUND,
        _ => exit::CANNOT_EXECUTE,
    };
    let what = format!("cannot execute {}", program.display());
    Err(CommandError::new(code, what).because(not_executable(program, &error)))
}

/// Without PATH, the C library decides where to search.
fn found(program: &OsStr, path: Option<&OsStr>) -> Result<(), Errno> {
    let is_path = program.is_empty() || program.as_encoded_bytes().contains(&b'/');
    let candidates: Vec<PathBuf> = match path {
        _ if is_path => vec![program.into()],
        Some(path) => env::split_paths(path).map(|it| it.join(program)).collect(),
        None => return Ok(()),
    };
    let mut why = Errno::NOENT;
    for candidate in candidates {
        match accessat(CWD, &candidate, Access::EXEC_OK, AtFlags::EACCESS) {
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            // Without faccessat2 (before Linux 5.8), the check ignores ambient capabilities.
            Err(Errno::ACCESS) if !may_be_executable(&candidate) => why = Errno::ACCESS,
            // Only exec itself can decide.
            Ok(()) | Err(_) => return Ok(()),
        }
    }
    Err(why)
}

fn may_be_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_looked_up_as_exec_does() {
        let place = tempfile::tempdir().expect("a directory");
        let write = |name: &str, mode| {
            let path = place.path().join(name);
            fs::write(&path, "#!/bin/sh\n").expect("a file");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("its owner");
        };
        write("runs", 0o755);
        write("plain", 0o644);
        let path = format!("/nowhere:{}", place.path().display());
        let of = |program: &str| found(program.as_ref(), Some(path.as_ref()));
        assert_eq!(of("runs"), Ok(()));
        assert_eq!(of("plain"), Err(Errno::ACCESS));
        assert_eq!(of("missing"), Err(Errno::NOENT));
        assert_eq!(of(""), Err(Errno::NOENT));
        assert_eq!(of("./missing"), Err(Errno::NOENT));
        assert_eq!(of("/dev/null/x"), Err(Errno::NOENT));
        assert_eq!(found("missing".as_ref(), None), Ok(()));
        let error = check_executable("/nowhere/at-all".as_ref()).expect_err("it is missing");
        assert_eq!(error.exit, 127);
        let expected = "cannot execute /nowhere/at-all: no such file or directory";
        assert_eq!(error.to_string(), expected);
    }
}
