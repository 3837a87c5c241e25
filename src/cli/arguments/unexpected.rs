use std::ffi::OsString;

use clap::Command;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

use super::{command, wrong};

/// Adds a remedy or a tip to the error about an unexpected argument. Removes clap's tip to pass an
/// unknown flag after `--`, which would run the flag as a command.
pub(super) fn explained(mut error: Error, arguments: &[OsString]) -> Error {
    let unexpected = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(unexpected)) => unexpected.clone(),
        _ => return error,
    };
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    if arguments
        .get(1)
        .is_some_and(|subcommand| subcommand == "lock")
        && let Some(remedy) = habit(&unexpected, arguments)
    {
        let message = format!("unexpected argument '{unexpected}': {remedy}");
        return wrong("lock", &message);
    }
    let commands = command();
    let subcommand = arguments
        .iter()
        .find_map(|argument| commands.find_subcommand(argument));
    if let Some(flag) = unexpected.strip_prefix("--") {
        error.remove(ContextKind::Suggested);
        let near = subcommand.and_then(|command| near_flag(command, flag));
        if let Some(near) = near {
            error.insert(ContextKind::SuggestedArg, ContextValue::String(near));
        }
    } else if unexpected.starts_with('-') {
        // A flag, or a value that begins with a dash, is not a command.
        error.remove(ContextKind::Suggested);
    } else if subcommand.is_some_and(takes_command) {
        let tip = format!("to run a command, put '--' before it: -- {unexpected} …");
        let tips = ContextValue::StyledStrs(vec![tip.into()]);
        error.insert(ContextKind::Suggested, tips);
    }
    error
}

/// Returns the remedy for an option of flock(1) or `consul lock` that works differently here.
fn habit(argument: &str, arguments: &[OsString]) -> Option<&'static str> {
    // `-n 3`, which `consul lock` accepts.
    let count = || {
        arguments.windows(2).any(|pair| {
            let value = pair[1].to_str().unwrap_or_default();
            pair[0] == "-n" && !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit())
        })
    };
    Some(match argument {
        "-c" | "--command" => "put the command after --, as in -- sh -c 'COMMAND'",
        "-u" | "--unlock" => "a lock is free when its command has ended",
        "-o" | "--close" => "the command inherits no descriptor of the lock: leave it out",
        "-F" | "--no-fork" => "the command always runs under a guard: leave it out",
        _ if !argument.starts_with('-') && count() => {
            "-n takes no value, it is --no-wait; for N holders at a time: --slots N"
        }
        _ => return None,
    })
}

/// Returns the command's only flag that ends with `-{flag}`, if exactly one does.
fn near_flag(command: &Command, flag: &str) -> Option<String> {
    let end = format!("-{flag}");
    let mut near = command
        .get_arguments()
        .filter_map(|argument| argument.get_long())
        .filter(|long| long.ends_with(&end));
    let first = near.next()?;
    near.next().is_none().then(|| format!("--{first}"))
}

fn takes_command(command: &Command) -> bool {
    let mut arguments = command.get_arguments();
    arguments.any(|argument| argument.get_id() == "command")
}
