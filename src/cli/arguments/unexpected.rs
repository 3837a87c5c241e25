//! Remedies for options of other lock programs that clap does not know.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

use leasehold_cli::misuse::wrong;

use super::command;
use leasehold_job::arguments::habit;

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
        &["lock"],
        &format!("unexpected argument '{unknown}': {remedy}"),
    )
    .explained(command())
}

/// Returns true for `-n 3`, which consul lock accepts where `--slots 3` is meant here.
fn count_given(arguments: &[OsString]) -> bool {
    arguments.windows(2).any(|pair| {
        let value = pair[1].to_str().unwrap_or_default();
        pair[0] == "-n" && !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit())
    })
}
