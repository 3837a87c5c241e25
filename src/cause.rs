//! Why the operating system refused something, in words for people.

use std::io::{Error, ErrorKind};

/// The cause without an error number. An error with words of ours has them shown.
pub(crate) fn cause(error: &Error) -> String {
    match error.kind() {
        _ if error.get_ref().is_some() => error.to_string(),
        ErrorKind::NotFound => "no such file or directory".to_owned(),
        kind => kind.to_string(),
    }
}
