//! Arguments of `leasehold locks`, `locks break` and `locks prune`.

use std::time::Duration;

use clap::{Args, Subcommand};

use crate::operators::arguments::ConnectionArgs;
use leasehold_cli::keys::LocksKeys;
use leasehold_cli::values::{Output, between, name};
use leasehold_core::election::ResourceName;

/// Maximum of `--unused-for`: ten years.
const UNUSED_MAX: Duration = Duration::from_secs(3650 * 24 * 3600);

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
    // May be given before or after the subcommand.
    #[command(flatten)]
    connection: ConnectionArgs<LocksKeys>,
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
    connection: ConnectionArgs<LocksKeys>,
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
    connection: ConnectionArgs<LocksKeys>,
    /// Only locks whose last holder ended this long ago, such as 30d
    #[arg(long, value_name = "DURATION", value_parser = between(Duration::ZERO, UNUSED_MAX))]
    pub(super) unused_for: Duration,
}

impl LocksArgs {
    fn inner(&self) -> Option<(&'static str, &ConnectionArgs<LocksKeys>)> {
        Some(match self.command.as_ref()? {
            LocksCommand::Break(args) => ("break", &args.connection),
            LocksCommand::Prune(args) => ("prune", &args.connection),
        })
    }

    /// Returns the error for a flag that is given before and after the subcommand.
    pub fn contradiction(&self) -> Option<String> {
        let outer = &self.connection;
        let (subcommand, inner) = self.inner()?;
        let is_given = |key| {
            outer
                .configuration
                .flags
                .iter()
                .any(|(other, _)| *other == key)
        };
        let mut keys = inner.configuration.flags.iter().map(|(key, _)| *key);
        let flag = match keys.find(|key| is_given(*key)) {
            Some(key) => key.flag(),
            None => outer
                .timeout
                .and(inner.timeout)
                .map(|_| "timeout".to_owned())?,
        };
        Some(format!(
            "--{flag} is given before and after {subcommand}: give it once"
        ))
    }

    /// Returns the connection from both sides of the subcommand.
    pub(super) fn connection(&self) -> ConnectionArgs<LocksKeys> {
        let mut connection = self.connection.clone();
        if let Some((_, inner)) = self.inner() {
            let sources = &mut connection.configuration;
            sources.files.extend_from_slice(&inner.configuration.files);
            sources.flags.extend_from_slice(&inner.configuration.flags);
            connection.timeout = connection.timeout.or(inner.timeout);
        }
        connection
    }
}
