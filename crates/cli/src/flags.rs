//! Flags that several commands have. Each key of the configuration has one, generated from the table
//! of keys.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint, value_parser};
use leasehold_config::{KEYS, Key, Sources, ValueType, duration};

use super::misuse::{Misuse, wrong};

/// Help about the layers of the configuration.
pub const LAYERS: &str = "\
Later wins: built-in defaults, files, environment variables LEASEHOLD_<SECTION>__<KEY> (such as \
LEASEHOLD_LEASE__RENEW_DEADLINE), flags. Durations have a unit: 500ms, 18s, 1m30s.";

/// Defines `-- CMD ARG…`.
pub fn command_words(help: &'static str) -> Arg {
    Arg::new("command")
        .value_name("CMD")
        .help(help)
        .num_args(1..)
        .last(true)
        .value_parser(value_parser!(OsString))
}

/// Returns the arguments after `--`.
pub fn words(matches: &mut ArgMatches) -> Vec<OsString> {
    matches
        .remove_many("command")
        .map(Iterator::collect)
        .unwrap_or_default()
}

/// Rejects flags of these keys if there is no command that they apply to.
///
/// # Errors
/// [`Misuse`] that names the first flag.
pub fn need_a_command(
    subcommand: &[&str],
    keys: &[&str],
    sources: &Sources,
    command: &[OsString],
) -> Result<(), Misuse> {
    let Some(flag) = given(keys, sources).filter(|_| command.is_empty()) else {
        return Ok(());
    };
    let message = format!(
        "--{flag} applies to a command that leasehold runs: put -- and the command at the end, or leave it out"
    );
    Err(wrong(subcommand, &message))
}

/// Returns the first flag that was given for one of these keys.
pub fn given(keys: &[&str], sources: &Sources) -> Option<String> {
    let mut flags = sources.flags.iter();
    let (key, _) = flags.find(|(key, _)| keys.contains(&key.path().as_str()))?;
    Some(key.flag())
}

/// Defines `--output`, with JSON as the alternative.
pub fn output(first: &'static str) -> Arg {
    Arg::new("output")
        .short('o')
        .long("output")
        .value_name("FORM")
        .help("Output format")
        .value_parser([first, "json"])
        .default_value(first)
}

/// Returns true for `--output json`.
pub fn wants_json(matches: &ArgMatches) -> bool {
    matches
        .get_one::<String>("output")
        .is_some_and(|form| form == "json")
}

/// Adds the flags of all keys.
pub fn with_configuration(command: Command) -> Command {
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
pub fn with_keys(command: Command, help: impl Fn(&Key) -> Option<&'static str>) -> Command {
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

/// Returns the sources of the configuration that the command line names.
pub fn sources(matches: &mut ArgMatches) -> Sources {
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

/// Parses the value of a flag as a duration within a range.
///
/// # Errors
/// [`Misuse`] with the accepted values.
pub fn time(
    path: &[&str],
    matches: &mut ArgMatches,
    flag: &str,
    min: Duration,
    max: Duration,
) -> Result<Option<Duration>, Misuse> {
    let Some(text) = matches.remove_one::<String>(flag) else {
        return Ok(None);
    };
    let parsed = duration(&text, min, max);
    parsed.map(Some).map_err(|expected| {
        wrong(
            path,
            &format!("--{flag} {text:?} is not accepted: {expected}"),
        )
    })
}
