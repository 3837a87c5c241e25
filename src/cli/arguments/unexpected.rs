//! Remedies for options of other lock programs that clap does not know.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

use super::wrong;

/// Returns the same error, with the remedy if it is known.
pub(super) fn explained(error: Error, arguments: &[OsString]) -> Error {
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let subcommand = arguments.get(1).map(|word| word.to_string_lossy());
    let unknown = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(unknown)) => unknown.clone(),
        _ => return error,
    };
    if subcommand.as_deref() != Some("lock") {
        return error;
    }
    let remedy = match habit(&unknown) {
        Some(remedy) => remedy,
        None if !unknown.starts_with('-') && count_given(arguments) => {
            "-n takes no value, it is --no-wait; for N holders at a time: --slots N"
        }
        None => return error,
    };
    wrong(
        "lock",
        &format!("unexpected argument '{unknown}': {remedy}"),
    )
}

/// Returns true for `-n 3`, which consul lock accepts where `--slots 3` is meant here.
fn count_given(arguments: &[OsString]) -> bool {
    arguments.windows(2).any(|pair| {
        let value = pair[1].to_str().unwrap_or_default();
        pair[0] == "-n" && !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// Returns the remedy for an option of flock(1) or consul that has another meaning here, or none.
fn habit(argument: &str) -> Option<&'static str> {
    Some(match argument {
        "-c" | "--command" => "put the command after --, as in -- sh -c 'COMMAND'",
        "-u" | "--unlock" => "a lock is free when its command has ended",
        "-o" | "--close" => "the command inherits no descriptor of the lock: leave it out",
        "-F" | "--no-fork" => "the command always runs under a guard: leave it out",
        _ => return None,
    })
}
