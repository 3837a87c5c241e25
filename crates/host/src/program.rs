//! Looks up a program as execvp(3) does, before a lease or a lock is acquired for it.

mod interpreter;

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

/// Reason why exec would fail.
#[derive(Debug, PartialEq, Eq)]
enum NotExecutable {
    /// The search for the program failed.
    Program(Errno),
    /// The program names this interpreter or loader, which does not exist.
    Interpreter(PathBuf),
}

/// Fails with a shell's exit code if exec would not find the program, or could not execute it.
pub fn check_executable(program: &OsStr) -> Result<(), CommandError> {
    let Err(unusable) = found(program, env::var_os("PATH").as_deref()) else {
        return Ok(());
    };
    let code = match &unusable {
        NotExecutable::Program(Errno::NOENT) | NotExecutable::Interpreter(_) => exit::NOT_FOUND,
        NotExecutable::Program(_) => exit::CANNOT_EXECUTE,
    };
    let why = match unusable {
        NotExecutable::Program(errno) => not_executable(program, &io::Error::from(errno)),
        // Quoted, because a carriage return at the end of the name would otherwise be invisible.
        NotExecutable::Interpreter(path) => format!("its interpreter {path:?} does not exist"),
    };
    let what = format!("cannot execute {}", program.display());
    Err(CommandError::new(code, what).because(why))
}

/// Without PATH, the C library decides where to search.
fn found(program: &OsStr, path: Option<&OsStr>) -> Result<(), NotExecutable> {
    let is_path = program.is_empty() || program.as_encoded_bytes().contains(&b'/');
    let candidates: Vec<PathBuf> = match path {
        _ if is_path => vec![program.into()],
        Some(path) => env::split_paths(path).map(|it| it.join(program)).collect(),
        None => return Ok(()),
    };
    let (mut is_denied, mut lacking) = (false, None);
    for candidate in candidates {
        match accessat(CWD, &candidate, Access::EXEC_OK, AtFlags::EACCESS) {
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            // Without faccessat2 (before Linux 5.8), the check ignores ambient capabilities.
            Err(Errno::ACCESS) if !may_be_executable(&candidate) => is_denied = true,
            Ok(()) | Err(_) => match interpreter::missing(&candidate) {
                // Here exec fails with ENOENT, and the search continues in the next directory.
                Some(missing) => lacking = Some(missing),
                // Only exec itself can detect other errors.
                None => return Ok(()),
            },
        }
    }
    Err(match lacking {
        _ if is_denied => NotExecutable::Program(Errno::ACCESS),
        Some(interpreter) => NotExecutable::Interpreter(interpreter),
        None => NotExecutable::Program(Errno::NOENT),
    })
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
        let write = |name: &str, content: &str, mode| {
            let path = place.path().join(name);
            fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
            fs::write(&path, content).expect("a file");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("its owner");
        };
        write("runs", "#!/bin/sh\n", 0o755);
        write("plain", "#!/bin/sh\n", 0o644);
        write("lacks", "#!/no/such\n", 0o755);
        write("first/runs", "#!/no/such\n", 0o755);
        let directory = place.path().display();
        let path = format!("/nowhere:{directory}/first:{directory}");
        let of = |program: &str| found(program.as_ref(), Some(path.as_ref()));
        assert_eq!(of("runs"), Ok(()));
        assert_eq!(of("plain"), Err(NotExecutable::Program(Errno::ACCESS)));
        assert_eq!(of("missing"), Err(NotExecutable::Program(Errno::NOENT)));
        assert_eq!(of(""), Err(NotExecutable::Program(Errno::NOENT)));
        assert_eq!(of("./missing"), Err(NotExecutable::Program(Errno::NOENT)));
        assert_eq!(of("/dev/null/x"), Err(NotExecutable::Program(Errno::NOENT)));
        assert_eq!(
            of("lacks"),
            Err(NotExecutable::Interpreter("/no/such".into()))
        );
        assert_eq!(found("missing".as_ref(), None), Ok(()));
        let error = check_executable("/nowhere/at-all".as_ref()).expect_err("it is missing");
        assert_eq!(error.exit, 127);
        let expected = "cannot execute /nowhere/at-all: no such file or directory";
        assert_eq!(error.to_string(), expected);
        let lacks = place.path().join("lacks");
        let error = check_executable(lacks.as_os_str()).expect_err("it has no interpreter");
        assert_eq!(error.exit, 127);
        assert_eq!(
            error.cause.as_deref(),
            Some("its interpreter \"/no/such\" does not exist")
        );
    }
}
