//! Readable reasons for operating system errors.

use std::ffi::OsStr;
use std::io::{Error, ErrorKind};
use std::path::Path;

/// Returns the cause without an error number. A custom error keeps its own message.
pub(crate) fn cause(error: &Error) -> String {
    match error.kind() {
        _ if error.get_ref().is_some() => error.to_string(),
        ErrorKind::NotFound => "no such file or directory".to_owned(),
        kind => kind.to_string(),
    }
}

/// Returns why a program cannot be executed. The kernel reports ENOENT both for a missing script
/// and for a script whose interpreter is missing.
pub(crate) fn not_executable(program: &OsStr, error: &Error) -> String {
    match error.kind() {
        ErrorKind::NotFound if Path::new(program).is_file() => {
            "its interpreter or its loader does not exist".to_owned()
        }
        _ => cause(error),
    }
}
