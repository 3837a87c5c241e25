#[cfg(test)]
mod tests;
mod unexpected;
mod usage_error;

use std::ffi::OsString;

use clap::error::{Error, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgMatches, Command, CommandFactory, FromArgMatches, Parser};

pub use self::usage_error::UsageError;
use super::Invocation;
use leasehold_operate::operators::OperatorCommand;

/// Leader election for replicated workloads, on the MongoDB they already have
#[derive(Debug, Parser)]
#[command(name = "leasehold", version = version(), after_help = EXAMPLES)]
#[command(subcommand_required = true, arg_required_else_help = true)]
struct CommandLine {
    #[command(subcommand)]
    invocation: Invocation,
}

/// Returns the clap definition of the command line.
pub fn command() -> Command {
    CommandLine::command()
}

/// Parses a command line. A request for help or the version is a [`UsageError`] too.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Invocation, UsageError> {
    let arguments: Vec<_> = arguments.into_iter().collect();
    parsed(&arguments).map_err(|error| UsageError { error, arguments })
}

fn parsed(arguments: &[OsString]) -> Result<Invocation, Error> {
    let matches = command().try_get_matches_from(arguments);
    let mut matches = matches.map_err(|error| unexpected::explained(error, arguments))?;
    if arguments.last().is_some_and(|last| last == "--") {
        // Typically an empty variable in a script. Without this check, no command would run.
        return Err(command().error(
            ErrorKind::MissingRequiredArgument,
            "a command is expected after --",
        ));
    }
    without_effect(&matches)?;
    let CommandLine { invocation } = CommandLine::from_arg_matches_mut(&mut matches)?;
    match contradiction(&invocation) {
        Some((subcommand, message)) => Err(wrong(subcommand, &message)),
        None => Ok(invocation),
    }
}

/// Rejects `--output` for the subcommands of `locks`, which print no list.
fn without_effect(matches: &ArgMatches) -> Result<(), Error> {
    let Some(locks) = matches.subcommand_matches("locks") else {
        return Ok(());
    };
    match locks.subcommand_name() {
        Some(name) if locks.value_source("output") == Some(ValueSource::CommandLine) => Err(wrong(
            "locks",
            &format!("--output applies to the list of locks: leave it out with {name}"),
        )),
        Some(_) | None => Ok(()),
    }
}

/// Returns the subcommand and the message for arguments that are valid, but not together.
fn contradiction(invocation: &Invocation) -> Option<(&'static str, String)> {
    let (subcommand, message) = match invocation {
        Invocation::Run(args) => ("run", args.contradiction()),
        Invocation::Lock(args) => ("lock", args.contradiction()),
        Invocation::Locks(args) => ("locks", args.contradiction()),
        Invocation::Operator(OperatorCommand::Web(args)) => ("web", args.contradiction()),
        _ => return None,
    };
    Some((subcommand, message?))
}

const EXAMPLES: &str = "\
Examples:
  leasehold run --lease orders-scheduler --mongodb-uri-file /etc/leasehold/uri
                             contend for a lease and publish who leads
  leasehold run --lease orders-scheduler --mongodb-uri-file /etc/leasehold/uri -- ./scheduler
                             run a command exactly while this replica leads
  leasehold lock nightly-report --wait 30s -- ./report
                             run a job that no other host runs at the same time
  leasehold status --lease orders-scheduler && ./only-the-leader-does-this
                             ask this host's daemon: exit 0 if it leads
  leasehold check --lease orders-scheduler --mongodb-uri-file /etc/leasehold/uri
                             examine servers, rights, certificates and this host before the first start
  leasehold config --config /etc/leasehold.toml
                             the effective configuration, and where each value came from

Exit codes: 0 done, 1 no (not leader; check: warnings), 2 cannot tell (check: failed), 64 usage, 69 MongoDB unreachable or refusing, 71 system error, 75 lock not \
acquired, 76 lock lost, 78 configuration, 126/127 the command cannot be executed / found; else the command's own.";

const fn version() -> &'static str {
    concat!(
        env!("CARGO_PKG_VERSION"),
        " (revision ",
        env!("LEASEHOLD_REVISION"),
        ")"
    )
}

fn wrong(subcommand: &str, message: &str) -> Error {
    let mut root = command();
    root.build();
    let meant = match root.find_subcommand(subcommand) {
        Some(_) => root.find_subcommand_mut(subcommand).expect("it was found"),
        None => &mut root,
    };
    meant.error(ErrorKind::ValueValidation, message)
}
