//! Tips for unexpected arguments.

use std::ffi::OsString;

use clap::Command;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

use super::command;

/// Adds a tip if clap has none, and replaces wrong ones. For an unknown flag, clap suggests passing
/// it after `--`, which would run it as a command.
pub(super) fn with_tip(mut error: Error, arguments: &[OsString]) -> Error {
    let Some(ContextValue::String(unexpected)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let unexpected = unexpected.clone();
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

/// Returns the flag of a command that ends with `-{flag}`, if there is exactly one.
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
