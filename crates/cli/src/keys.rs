//! The configuration flags: `--config`, and one flag per configuration key.

use std::marker::PhantomData;
use std::path::PathBuf;

use clap::error::Error;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueHint, value_parser};

use leasehold_config::{KEYS, Key, Sources, ValueType};

/// Keys for the first setup, each with a one-line help text. `-h` shows only these flags.
const FIRST_KEYS: [(&str, &str); 7] = [
    ("lease.name", "Name of the lease"),
    ("lease.lease_duration", "Takeover timeout"),
    ("identity.name", "Candidate name"),
    ("mongodb.uri_file", "File with the connection string"),
    ("status.directory", "Directory of the status files"),
    ("http.listen", "HTTP API"),
    ("workload.stop_grace", "Grace before SIGKILL"),
];
const FIRST_HEADING: &str = "Configuration options";
/// Keys that `-h` of another command shows, provided that the command accepts them.
const ESSENTIAL_KEYS: [&str; 2] = ["lease.name", "mongodb.uri_file"];
const LAYERS: &str = "\
Later wins: built-in defaults, files, environment variables LEASEHOLD_<SECTION>__<KEY> (such as \
LEASEHOLD_LEASE__RENEW_DEADLINE), flags. Durations have a unit: 500ms, 18s, 1m30s.";

/// Prepends the list of configuration layers to a command's help.
pub fn with_layers(help: &str) -> String {
    format!("{LAYERS}\n\n{help}")
}

/// The configuration keys that a command uses. The command rejects the flags of all other keys. It
/// accepts all keys in files and in the environment, because other commands share these sources.
pub trait Selection {
    /// The sections that the command uses; `None` for a daemon, which uses all keys.
    const SECTIONS: Option<&'static [&'static str]>;
    /// True if `-h` shows the keys for the first setup of a daemon.
    const SHOWS_SETUP: bool = false;
}

macro_rules! selection {
    ($(#[$doc:meta])* $name:ident: $sections:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub struct $name;

        impl Selection for $name {
            const SECTIONS: Option<&'static [&'static str]> = $sections;
        }
    };
}

/// All keys, for the daemon.
#[derive(Debug, Clone, Copy)]
pub struct DaemonKeys;

impl Selection for DaemonKeys {
    const SECTIONS: Option<&'static [&'static str]> = None;
    const SHOWS_SETUP: bool = true;
}

selection! {
    /// All keys, for a command that examines the configuration of a daemon.
    AllKeys: None
}
selection! {
    /// The keys of a process that holds a lock.
    HolderKeys: Some(&["lease", "identity", "mongodb", "workload", "log"])
}
selection! {
    /// The keys of a command that shows or changes locks.
    LocksKeys: Some(&["identity", "mongodb", "log"])
}
selection! {
    /// The keys of a command that shows or changes leases, but does not contend for a lease.
    LeasesKeys: Some(&["mongodb", "log"])
}

fn help<S: Selection>(key: &Key) -> Option<&'static str> {
    match S::SECTIONS {
        None => Some(key.help),
        Some(sections) => key.lock_help.filter(|_| sections.contains(&key.section)),
    }
}

fn short<S: Selection>(key: &Key) -> Option<&'static str> {
    let path = key.path();
    let shown = S::SHOWS_SETUP || ESSENTIAL_KEYS.contains(&path.as_str());
    let (_, text) = FIRST_KEYS.iter().find(|(first, _)| *first == path)?;
    shown.then_some(*text)
}

/// Keys whose value is the path of a directory; all other paths name files.
const DIRECTORY_KEYS: [&str; 2] = ["status.directory", "kubernetes.credentials"];

/// A command's configuration, from flags, files and the environment.
#[derive(Debug, Clone)]
pub struct Configuration<S> {
    /// The sources of the configuration values.
    pub sources: Sources,
    selection: PhantomData<S>,
}

impl<S: Selection> Args for Configuration<S> {
    fn augment_args(command: Command) -> Command {
        let config = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .help("Configuration file, TOML or YAML")
            .help_heading(FIRST_HEADING)
            .long_help("Configuration file: TOML, or YAML if named .yaml or .yml; repeatable")
            .action(ArgAction::Append)
            .value_hint(ValueHint::FilePath)
            .value_parser(value_parser!(PathBuf));
        // Builds without the feature `kubernetes` accept its keys in files, but have no flags for
        // them.
        let known = |key: &&Key| cfg!(feature = "kubernetes") || key.section != "kubernetes";
        let keys = KEYS.iter().filter(known);
        command
            .arg(config)
            .args(keys.filter_map(|key| Some(flag(key, help::<S>(key)?, short::<S>(key)))))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<S: Selection> FromArgMatches for Configuration<S> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let files = matches.get_many("config").into_iter().flatten();
        let flags = KEYS.iter().filter_map(|key| {
            // Reading a flag fails if this command does not define the flag.
            let given = matches.try_get_one::<String>(&key.path()).ok()??;
            Some((key, given.clone()))
        });
        Ok(Self {
            sources: Sources::of_process(files.cloned().collect(), flags.collect()),
            selection: PhantomData,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Returns the first flag that sets one of these keys.
pub fn given(keys: &[&str], sources: &Sources) -> Option<String> {
    let mut flags = sources.flags.iter();
    let (key, _) = flags.find(|(key, _)| keys.contains(&key.path().as_str()))?;
    Some(key.flag())
}

/// Returns the error for a flag that only affects a supervised command.
pub fn useless_without_command(keys: &[&str], sources: &Sources) -> Option<String> {
    let flag = given(keys, sources)?;
    Some(format!(
        "--{flag} applies to a command that leasehold runs: put -- and the command at the end, or omit the flag"
    ))
}

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

/// Leaves the value unparsed, so that errors in all values are reported together.
fn flag(key: &'static Key, help: &str, short: Option<&str>) -> Arg {
    let default = match key.default() {
        "" => String::new(),
        default => format!(" [default: {default}]"),
    };
    let syntax = match key.kind {
        ValueType::Command => "; words separated by commas, or a JSON list",
        _ => "",
    };
    let is_directory = DIRECTORY_KEYS.contains(&key.path().as_str());
    let flag = Arg::new(key.path())
        .long(key.flag())
        .value_name(match is_directory {
            true => "DIR",
            false => key.kind.placeholder(),
        })
        .help(format!("{}{default}", short.unwrap_or(help)))
        .long_help(format!("{help}{syntax}{default} [env: {}]", key.variable()))
        .help_heading(short.map_or_else(|| heading(key.section), |_| FIRST_HEADING.to_owned()))
        .allow_negative_numbers(true)
        .hide_short_help(short.is_none())
        .action(ArgAction::Set);
    let flag = match key.kind {
        ValueType::Path if is_directory => flag.value_hint(ValueHint::DirPath),
        ValueType::Path => flag.value_hint(ValueHint::FilePath),
        // `--workload-ends-first` without a value means true.
        ValueType::Flag => flag
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true"),
        _ => flag,
    };
    match (key.section, key.name) {
        (section, "name") => flag.alias(format!("{section}-name")),
        // `leasehold status` names this flag --directory.
        ("status", "directory") => flag.alias("directory"),
        _ => flag,
    }
}
