//! Arguments of `leasehold locks`, `locks break` and `locks prune`.

use std::time::Duration;

use clap::{Args, Subcommand};

use leasehold_cli::keys::{Configuration, LocksKeys};
use leasehold_cli::values::{Output, between, name, timeout};
use leasehold_config::Sources;
use leasehold_core::election::ResourceName;

/// Maximum of `--unused-for`: ten years.
const UNUSED_MAX: Duration = Duration::from_secs(3650 * 24 * 3600);
/// Default of `--timeout`.
const TIMEOUT: Duration = Duration::from_secs(30);

const HELP: &str = "\
Examples:
  leasehold locks --mongodb-uri-file /etc/leasehold/uri
                             who holds what, and who waits
  leasehold locks break nightly-report
                             remove expired holders and waiters
  leasehold locks prune --unused-for 30d
                             shrink the documents of unused locks

Exit codes: 0 done, 1 nothing to be done, 64 usage, 69 MongoDB unreachable or refusing, or it is not known whether a
write was applied, 78 configuration, or the name is a lease's.";

/// Arguments of `leasehold locks`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct LocksArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    pub(super) output: Output,
    #[command(subcommand)]
    pub(super) command: Option<LocksCommand>,
}

/// Changes of locks.
#[derive(Debug, Subcommand)]
pub(super) enum LocksCommand {
    /// Remove expired holders and waiters of a lock
    Break(BreakArgs),
    /// Shrink the documents of unused locks, keeping their tokens
    Prune(PruneArgs),
}

/// Arguments of `leasehold locks break`.
#[derive(Debug, Args)]
pub(super) struct BreakArgs {
    #[command(flatten)]
    connection: Connection,
    /// Name of the lock
    #[arg(value_parser = name)]
    pub(super) name: ResourceName,
    /// Remove all holders, live ones too (unsafe: two may then hold the lock); asks for confirmation
    #[arg(long)]
    pub(super) force: bool,
    /// Do not ask for confirmation
    #[arg(long, requires = "force")]
    pub(super) yes: bool,
}

/// Arguments of `leasehold locks prune`.
#[derive(Debug, Args)]
pub(super) struct PruneArgs {
    #[command(flatten)]
    connection: Connection,
    /// Only locks whose last holder ended this long ago, such as 30d
    #[arg(long, value_name = "DURATION", value_parser = between(Duration::ZERO, UNUSED_MAX))]
    pub(super) unused_for: Duration,
}

/// The connection, which may be given before or after the subcommand.
#[derive(Debug, Args)]
#[group(skip)]
struct Connection {
    #[command(flatten)]
    configuration: Configuration<LocksKeys>,
    /// Maximum time to wait for each answer of MongoDB [default: 30s]
    #[arg(long, value_name = "DURATION", allow_negative_numbers = true, value_parser = timeout)]
    timeout: Option<Duration>,
}

impl LocksArgs {
    fn inner(&self) -> Option<(&'static str, &Connection)> {
        Some(match self.command.as_ref()? {
            LocksCommand::Break(args) => ("break", &args.connection),
            LocksCommand::Prune(args) => ("prune", &args.connection),
        })
    }

    /// Returns the error for a flag that is given before and after the subcommand.
    pub fn contradiction(&self) -> Option<String> {
        let outer = &self.connection;
        let (subcommand, inner) = self.inner()?;
        let mut keys = inner.configuration.flags.iter().map(|(key, _)| *key);
        let twice = keys.find(|key| {
            outer
                .configuration
                .flags
                .iter()
                .any(|(other, _)| other == key)
        });
        let flag = match twice {
            Some(key) => key.flag(),
            None if outer.timeout.is_some() && inner.timeout.is_some() => "timeout".to_owned(),
            None => return None,
        };
        Some(format!(
            "--{flag} is given before and after {subcommand}: give it once"
        ))
    }

    /// Returns the sources of the configuration.
    pub(super) fn sources(&self) -> Sources {
        let mut sources = self.connection.configuration.clone().into_sources();
        if let Some((_, inner)) = self.inner() {
            sources.files.extend_from_slice(&inner.configuration.files);
            sources.flags.extend_from_slice(&inner.configuration.flags);
        }
        sources
    }

    /// Returns the maximum time to wait for each answer of MongoDB.
    pub(super) fn timeout(&self) -> Duration {
        let inner = self.inner().and_then(|(_, inner)| inner.timeout);
        inner.or(self.connection.timeout).unwrap_or(TIMEOUT)
    }
}
