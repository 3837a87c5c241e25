//! Flags and subcommands. The configuration flags are generated from the table of keys, so that
//! every key has one.

mod checking;
mod locking;
mod locks;
mod operating;
mod replicas;
#[cfg(test)]
mod tests;
mod tips;
mod unexpected;
mod usage_error;
mod web;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::Error;
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint, value_parser};
use clap_complete::Shell;

use self::checking::check_command;
use self::locking::lock_command;
use self::locks::locks_command;
use self::tips::with_tip;
pub use self::usage_error::UsageError;
use super::{ConfigArgs, Invocation, RunArgs, StatusArgs};
use crate::config::{KEYS, Key, Sources, ValueType, find, suggest_key};

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
        .subcommand(locks_command())
        .subcommands(operating::commands())
        .subcommand(status_command())
        .subcommand(check_command())
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
        "run" => run(&mut matches).map(Invocation::Run).map_err(usage_error),
        "check" => checking::check(&mut matches)
            .map(Invocation::Check)
            .map_err(usage_error),
        "replicas" => replicas::replicas(&mut matches)
            .map(Invocation::Replicas)
            .map_err(usage_error),
        "lock" => locking::lock(&mut matches)
            .map(Invocation::Lock)
            .map_err(usage_error),
        "locks" => locks::locks(matches)
            .map(Invocation::Locks)
            .map_err(usage_error),
        "status" => Ok(Invocation::Status(StatusArgs {
            directory: matches.remove_one("directory"),
            lease: matches
                .remove_one("lease")
                .or_else(|| matches.remove_one("name")),
            json: wants_json(&matches),
            watch: matches.get_flag("watch"),
        })),
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
            .map_err(usage_error),
        _ => Err(usage_error(missing_subcommand())),
    }
}

/// Builds the arguments of `leasehold run`.
fn run(matches: &mut ArgMatches) -> Result<RunArgs, Error> {
    let (sources, command) = (sources(matches), words(matches));
    need_a_command(&["run"], &OF_A_COMMAND, &sources, &command)?;
    need_no_command(&OF_NO_COMMAND, &sources, &command)?;
    Ok(RunArgs { sources, command })
}

/// Rejects flags of these keys if there is no command that they apply to.
fn need_a_command(
    subcommand: &[&str],
    keys: &[&str],
    sources: &Sources,
    command: &[OsString],
) -> Result<(), Error> {
    let Some(flag) = given(keys, sources).filter(|_| command.is_empty()) else {
        return Ok(());
    };
    let message = format!(
        "--{flag} applies to a command that leasehold runs: put -- and the command at the end, or leave it out"
    );
    Err(locking::wrong(subcommand, &message))
}

/// Rejects flags of these keys if there is a command.
fn need_no_command(keys: &[&str], sources: &Sources, command: &[OsString]) -> Result<(), Error> {
    let Some(flag) = given(keys, sources).filter(|_| !command.is_empty()) else {
        return Ok(());
    };
    let message = format!(
        "--{flag} applies to a workload that leasehold does not run: leave it out, since the end of the command after -- is awaited"
    );
    Err(locking::wrong(&["run"], &message))
}

/// Returns the first flag that was given for one of these keys.
fn given(keys: &[&str], sources: &Sources) -> Option<String> {
    let mut flags = sources.flags.iter();
    let (key, _) = flags.find(|(key, _)| keys.contains(&key.path().as_str()))?;
    Some(key.flag())
}

/// Returns the arguments after `--`.
fn words(matches: &mut ArgMatches) -> Vec<OsString> {
    matches
        .remove_many("command")
        .map(Iterator::collect)
        .unwrap_or_default()
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

const LAYERS: &str = "\
Later wins: built-in defaults, files, environment variables LEASEHOLD_<SECTION>__<KEY> (such as \
LEASEHOLD_LEASE__RENEW_DEADLINE), flags. Durations have a unit: 500ms, 18s, 1m30s.";

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

/// Defines `-- CMD ARG…`.
fn command_words(help: &'static str) -> Arg {
    Arg::new("command")
        .value_name("CMD")
        .help(help)
        .num_args(1..)
        .last(true)
        .value_parser(value_parser!(OsString))
}

fn status_command() -> Command {
    Command::new("status")
        .about("Query the local daemon: exit 0 if it leads, 1 if not, 2 if unknown")
        .after_help(
            "Examples:\n  leasehold status orders\n  leasehold status --directory \
             /run/leasehold/orders --output json\n  leasehold status --lease orders --watch",
        )
        .arg(
            Arg::new("directory")
                .long("directory")
                .value_name("DIR")
                .help("Status directory of the daemon")
                .value_hint(ValueHint::DirPath)
                .value_parser(value_parser!(PathBuf))
                .conflicts_with("lease"),
        )
        .arg(
            Arg::new("lease")
                .long("lease")
                .value_name("NAME")
                .help("Lease whose default status directory is read"),
        )
        .arg(
            Arg::new("name")
                .value_name("NAME")
                .help("Same as --lease NAME")
                .conflicts_with_all(["lease", "directory"]),
        )
        .arg(output("text"))
        .arg(
            Arg::new("watch")
                .long("watch")
                .help("Watch and print changes")
                .action(ArgAction::SetTrue),
        )
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

/// Defines `--output`, with JSON as the alternative.
fn output(first: &'static str) -> Arg {
    Arg::new("output")
        .short('o')
        .long("output")
        .value_name("FORM")
        .help("Output format")
        .value_parser([first, "json"])
        .default_value(first)
}

fn wants_json(matches: &ArgMatches) -> bool {
    matches
        .get_one::<String>("output")
        .is_some_and(|form| form == "json")
}

/// Adds the flags of all keys.
fn with_configuration(command: Command) -> Command {
    let sections: Vec<_> = KEYS.iter().map(|key| key.section).collect();
    with_sections(command, &sections)
}

/// Keys for the first setup; `-h` shows only these flags.
const FIRST_KEYS: [&str; 9] = [
    "lease.name",
    "lease.lease_duration",
    "identity.name",
    "mongodb.uri",
    "mongodb.uri_file",
    "status.directory",
    "http.listen",
    "workload.stop_grace",
    "log.level",
];

/// Returns the heading above the flags of a section.
fn heading(section: &str) -> String {
    let words = match section {
        "http" => "HTTP".to_owned(),
        "log" => "Logging".to_owned(),
        "mongodb" => "MongoDB".to_owned(),
        "workload.health" => "Health check".to_owned(),
        section => {
            let (first, rest) = section.split_at(1);
            first.to_uppercase() + rest
        }
    };
    words + " options"
}

/// Defines the flag of a key. Values are passed on unparsed, because they are validated together
/// with all other values, so that all errors are reported together.
fn flag(key: &'static Key, help: &str) -> Arg {
    let default = match key.default() {
        "" => String::new(),
        default => format!(" [default: {default}]"),
    };
    let flag = Arg::new(key.path())
        .long(key.flag())
        .value_name(key.kind.placeholder())
        .help(format!("{help}{default}"))
        .help_heading(heading(key.section))
        .allow_negative_numbers(true)
        .hide_short_help(!FIRST_KEYS.contains(&key.path().as_str()))
        .action(ArgAction::Set);
    let flag = match key.kind {
        ValueType::Path => flag.value_hint(ValueHint::AnyPath),
        // `--workload-ends-first` without a value means true.
        ValueType::Flag => flag
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true"),
        _ => flag,
    };
    match (key.section, key.name) {
        ("lease", "name") => flag.visible_alias("lease"),
        ("identity", "name") => flag.visible_alias("identity"),
        _ => flag,
    }
}

/// Adds the flags of the keys in these sections.
fn with_sections(command: Command, sections: &[&str]) -> Command {
    with_keys(command, |key| {
        sections.contains(&key.section).then_some(key.help)
    })
}

/// Adds the flags of the keys for which `help` returns a line.
fn with_keys(command: Command, help: impl Fn(&Key) -> Option<&'static str>) -> Command {
    let config = Arg::new("config")
        .long("config")
        .value_name("FILE")
        .help("Configuration file: TOML, or YAML if named .yaml or .yml; repeatable")
        .action(ArgAction::Append)
        .value_hint(ValueHint::FilePath)
        .value_parser(value_parser!(PathBuf));
    // A build without Kubernetes accepts its keys in files only, which other builds may share.
    let known = |key: &&Key| cfg!(feature = "kubernetes") || key.section != "kubernetes";
    let keys = KEYS.iter().filter(known);
    command
        .arg(config)
        .args(keys.filter_map(|key| Some(flag(key, help(key)?))))
}

fn sources(matches: &mut ArgMatches) -> Sources {
    let files = matches
        .remove_many("config")
        .map(Iterator::collect)
        .unwrap_or_default();
    let flags = KEYS
        .iter()
        .filter_map(|key| {
            // Not every command has the flags of all keys.
            let given = matches.try_remove_one::<String>(&key.path()).ok()??;
            Some((key, given))
        })
        .collect();
    Sources::of_process(files, flags)
}

fn missing_subcommand() -> Error {
    command().error(
        clap::error::ErrorKind::MissingSubcommand,
        "a subcommand is required: see leasehold --help",
    )
}
