//! Flags of the commands for locks.

use clap::{Arg, ArgMatches};
use leasehold_config::Key;
use leasehold_core::election::LeaseName;

use super::misuse::{Misuse, wrong};

/// Keys in sections that a lock uses, but without effect on it. As flags they are rejected. In
/// files and in the environment they are accepted, because other commands may need them.
const UNUSED_KEYS: [&str; 15] = [
    "lease.name",
    // Replaced by `--lease-duration`, which scales the other durations too.
    "lease.lease_duration",
    "lease.handoff_delay",
    "lease.prefer",
    "lease.prefer_interval",
    "identity.priority",
    "identity.address",
    "mongodb.watch",
    "workload.on_exit",
    "workload.ends_first",
    "workload.health.url",
    "workload.health.command",
    "workload.health.period",
    "workload.health.timeout",
    "workload.health.failures",
];

/// Returns the help of a key in these sections, if the key has an effect on locks.
pub fn lock_help(key: &Key, sections: &[&str]) -> Option<&'static str> {
    let used = sections.contains(&key.section) && !UNUSED_KEYS.contains(&key.path().as_str());
    used.then_some(key.lock_help)
}

/// Defines the name of a lock.
pub fn name() -> Arg {
    Arg::new("name")
        .value_name("NAME")
        .help("Name of the lock")
        .required(true)
}

/// Parses the name of a lock.
///
/// # Errors
/// [`Misuse`] if the name is not legal.
pub fn lock_name(path: &[&str], matches: &mut ArgMatches) -> Result<LeaseName, Misuse> {
    let name: String = matches.remove_one("name").unwrap_or_default();
    LeaseName::new(name).map_err(|error| wrong(path, &format!("NAME {error}")))
}
