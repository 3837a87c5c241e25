//! Why the operating system refused something, in words for people.

use std::ffi::OsStr;
use std::io::{Error, ErrorKind};
use std::path::Path;

/// The cause without an error number. An error with words of ours has them shown.
pub(crate) fn cause(error: &Error) -> String {
    match error.kind() {
        _ if error.get_ref().is_some() => error.to_string(),
        ErrorKind::NotFound => "no such file or directory".to_owned(),
        kind => kind.to_string(),
    }
}

/// Why a program cannot be executed. The kernel says the same of a script whose
/// interpreter is missing as of a missing script.
pub(crate) fn not_executable(program: &OsStr, error: &Error) -> String {
    match error.kind() {
        ErrorKind::NotFound if Path::new(program).is_file() => {
            "its interpreter or its loader does not exist".to_owned()
        }
        _ => cause(error),
    }
}
