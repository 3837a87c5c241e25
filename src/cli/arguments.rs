//! Flags and subcommands. The configuration flags are generated from the table of keys, so that
//! every key has one.

#[cfg(test)]
mod tests;
mod tips;
mod unexpected;
mod usage_error;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::Error;
use clap::{Arg, ArgMatches, Command, ValueHint, value_parser};
use clap_complete::Shell;
use leasehold_cli::flags::{
    LAYERS, command_words, given, need_a_command, output, sources, wants_json, with_configuration,
    words,
};
use leasehold_cli::misuse::{Misuse, wrong};

use self::tips::with_tip;
pub use self::usage_error::UsageError;
use super::{ConfigArgs, Invocation, RunArgs};
use crate::config::{Key, Sources, find, suggest_key};
use leasehold_job::arguments::{self as locking, lock_command};
use leasehold_operate::arguments::{checking, locks, operating, replicas, status};

/// Keys without effect in a `leasehold run` that has no command. As flags they are rejected there.
/// In a file they are accepted, because the file may be shared with a daemon that has a command.
const OF_A_COMMAND: [&str; 5] = [
    "workload.stop_signal",
    "workload.stop_scope",
    "workload.stop_grace",
    "workload.linger",
    "workload.on_exit",
];

/// Keys without effect in a `leasehold run` that has a command, because it awaits the command's
/// end. Treated like [`OF_A_COMMAND`].
const OF_NO_COMMAND: [&str; 2] = ["lease.handoff_delay", "workload.ends_first"];

/// Returns the clap definition of the command line.
pub fn command() -> Command {
    Command::new("leasehold")
        .version(version())
        .about("Leader election for replicated workloads, on the MongoDB they already have")
        .after_help(EXAMPLES)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(run_command())
        .subcommand(lock_command())
        .subcommand(locks::locks_command())
        .subcommands(operating::commands())
        .subcommand(status::status_command())
        .subcommand(checking::check_command())
        .subcommand(replicas::replicas_command())
        .subcommand(config_command())
        .subcommand(completions_command())
        .subcommand(install_command())
}

/// Parses a command line.
///
/// # Errors
/// [`UsageError`] for a usage error, and for a requested help or version.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Invocation, UsageError> {
    let arguments: Vec<_> = arguments.into_iter().collect();
    let usage_error = |error| UsageError {
        error,
        arguments: arguments.clone(),
    };
    let misuse = |misuse: Misuse| usage_error(misuse.explained(command()));
    let matches = command().try_get_matches_from(&arguments);
    let mut matches = matches.map_err(|error| {
        let error = unexpected::explained(error, &arguments);
        usage_error(with_tip(error, &arguments))
    })?;
    if arguments.last().is_some_and(|last| last == "--") {
        // Typically an empty variable in a script. Without this check, nothing would be supervised.
        return Err(usage_error(command().error(
            clap::error::ErrorKind::MissingRequiredArgument,
            "a command is expected after --",
        )));
    }
    let Some((name, mut matches)) = matches.remove_subcommand() else {
        return Err(usage_error(missing_subcommand()));
    };
    match name.as_str() {
        "run" => run(&mut matches).map(Invocation::Run).map_err(misuse),
        "check" => checking::check(&mut matches)
            .map(Invocation::Check)
            .map_err(misuse),
        "replicas" => replicas::replicas(&mut matches)
            .map(Invocation::Replicas)
            .map_err(misuse),
        "lock" => locking::lock(&mut matches)
            .map(Invocation::Lock)
            .map_err(misuse),
        "locks" => locks::locks(matches).map(Invocation::Locks).map_err(misuse),
        "status" => Ok(Invocation::Status(status::status(&mut matches))),
        "config" => Ok(Invocation::Config(ConfigArgs {
            key: matches.remove_one("key"),
            sources: sources(&mut matches),
            json: wants_json(&matches),
        })),
        "completions" => match matches.remove_one("shell") {
            Some(shell) => Ok(Invocation::Completions(shell)),
            None => Err(usage_error(missing_subcommand())),
        },
        "install" => match matches.remove_one("directory") {
            Some(directory) => Ok(Invocation::Install(directory)),
            None => Err(usage_error(missing_subcommand())),
        },
        name if operating::COMMANDS.contains(&name) => operating::parse(name, &mut matches)
            .map(Invocation::Operator)
            .map_err(misuse),
        _ => Err(usage_error(missing_subcommand())),
    }
}

/// Builds the arguments of `leasehold run`.
fn run(matches: &mut ArgMatches) -> Result<RunArgs, Misuse> {
    let (sources, command) = (sources(matches), words(matches));
    need_a_command(&["run"], &OF_A_COMMAND, &sources, &command)?;
    need_no_command(&OF_NO_COMMAND, &sources, &command)?;
    Ok(RunArgs { sources, command })
}

/// Rejects flags of these keys if there is a command.
fn need_no_command(keys: &[&str], sources: &Sources, command: &[OsString]) -> Result<(), Misuse> {
    let Some(flag) = given(keys, sources).filter(|_| !command.is_empty()) else {
        return Ok(());
    };
    let message = format!(
        "--{flag} applies to a workload that leasehold does not run: leave it out, since the end of the command after -- is awaited"
    );
    Err(wrong(&["run"], &message))
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

/// Returns the version with the revision that the build script found.
const fn version() -> &'static str {
    concat!(
        env!("CARGO_PKG_VERSION"),
        " (revision ",
        env!("LEASEHOLD_REVISION"),
        ")"
    )
}

fn run_command() -> Command {
    with_configuration(
        Command::new("run")
            .about("Contend for a lease, renew it, and publish who leads")
            .after_help(format!(
                "{LAYERS}\n\nExamples:\n  leasehold run --lease orders --mongodb-uri-file /etc/leasehold/uri\n  \
                 LEASEHOLD_MONGODB__URI=mongodb://localhost leasehold run --lease orders --http-listen ''\n  \
                 leasehold run --config /etc/leasehold.toml --config site.yaml --log-level debug\n  \
                 leasehold run --lease orders --workload-stop-grace 2m -- ./scheduler --verbose\n\nSignals: TERM, INT \
                 and QUIT step down, release the lease and exit 0; a second one 1s or more after the first exits at \
                 once, without a release. HUP reads the configuration again, USR1 steps down, USR2 logs the status."
            )),
    )
    .arg(command_words("Command to run while this replica leads"))
}

fn config_command() -> Command {
    with_configuration(
        Command::new("config")
            .about("Print the effective configuration and where each value came from")
            .after_help(format!(
                "{LAYERS} Secrets are masked.\n\nExamples:\n  leasehold config\n  leasehold config \
                 lease.renew_deadline\n  leasehold config --config /etc/leasehold.toml --output json"
            )),
    )
    .arg(
        Arg::new("key")
            .value_name("KEY")
            .help("Print the value of this key only, such as lease.name")
            .value_parser(key_of),
    )
    .arg(output("toml"))
}

fn key_of(text: &str) -> Result<&'static Key, String> {
    find(text).ok_or_else(|| {
        let (section, name) = text.rsplit_once('.').unwrap_or(("", text));
        match suggest_key(section, name) {
            Some(near) => format!("there is no such key; did you mean {}?", near.path()),
            None => "there is no such key; leasehold config lists them".to_owned(),
        }
    })
}

fn completions_command() -> Command {
    Command::new("completions")
        .about("Print a completion script")
        .after_help("Examples:\n  leasehold completions bash > /etc/bash_completion.d/leasehold")
        .arg(
            Arg::new("shell")
                .value_name("SHELL")
                .help("The shell")
                .required(true)
                .value_parser(value_parser!(Shell)),
        )
}

fn install_command() -> Command {
    Command::new("install")
        .about("Copy this program into a directory, to be run by a container of another image")
        .after_help(
            "The copy is DIR/leasehold, mode 0755, replaced as a whole; its path is printed. It \
             needs what this program needs: on the image, see docs/image.md.\n\nExamples:\n  \
             leasehold install /opt/leasehold\n                             in an init container; \
             then, in the workload's:\n  /opt/leasehold/leasehold run --lease orders -- /orders",
        )
        .arg(
            Arg::new("directory")
                .value_name("DIR")
                .help("The directory, which has to be there")
                .required(true)
                .value_hint(ValueHint::DirPath)
                .value_parser(value_parser!(PathBuf)),
        )
}

fn missing_subcommand() -> Error {
    command().error(
        clap::error::ErrorKind::MissingSubcommand,
        "a subcommand is required: see leasehold --help",
    )
}
