//! Readable reasons for operating system errors.

use std::ffi::OsStr;
use std::io::{Error, ErrorKind};
use std::path::Path;

use rustix::io::Errno;

/// Returns an error's message, without the number of an operating system error.
pub fn cause(error: &Error) -> String {
    match error.kind() {
        _ if error.get_ref().is_some() => error.to_string(),
        ErrorKind::NotFound => "no such file or directory".to_owned(),
        kind => kind.to_string(),
    }
}

/// Returns the resource limit that made fork or exec fail with this error, if any.
pub fn process_limit(error: &Error) -> Option<&'static str> {
    match Errno::from_io_error(error)? {
        Errno::AGAIN => Some("process limit reached (EAGAIN)"),
        Errno::NOMEM => Some("out of memory (ENOMEM)"),
        Errno::MFILE => Some("limit on open files reached (EMFILE)"),
        Errno::NFILE => Some("machine-wide limit on open files reached (ENFILE)"),
        _ => None,
    }
}

/// Returns why a program was not executed.
pub fn not_executed(error: &Error) -> String {
    match Errno::from_io_error(error) {
        // Some C libraries run a file without `#!` with /bin/sh; others do not.
        Some(Errno::NOEXEC) => "exec format error: add a #! line".to_owned(),
        _ => process_limit(error).map_or_else(|| cause(error), str::to_owned),
    }
}

/// Returns why a program cannot be executed. ENOENT may also mean a missing interpreter.
pub fn not_executable(program: &OsStr, error: &Error) -> String {
    match error.kind() {
        ErrorKind::NotFound if Path::new(program).is_file() => {
            "its interpreter or its loader does not exist".to_owned()
        }
        _ => not_executed(error),
    }
}
