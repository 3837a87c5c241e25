//! `leasehold locks`: lists, breaks and prunes locks, for operators. Without `--force`, only
//! expired entries are removed.

mod breaking;
mod calls;
mod pruning;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};

use self::calls::Calls;
use crate::operators::arguments::{ConnectionArgs, OBSERVE_MAX};
use crate::operators::{configured, list_locks, run_on};
use leasehold_cli::keys::LocksKeys;
use leasehold_cli::names::LockName;
use leasehold_cli::store_options::of_locks;
use leasehold_cli::values::{Output, between};
use leasehold_host::CommandError;
use leasehold_mongodb::store::mongo::operators::MongoCollection;

/// The key of a flag that these commands accept, because scripts also pass them the flags of
/// `lock`. The flag is hidden, because these commands hold no lock.
const IDENTITY: &str = "identity.name";
const UNUSED_MAX: Duration = Duration::from_secs(3650 * 24 * 3600);

const HELP: &str = "\
Examples:
  leasehold locks
                             who holds what, and who waits
  leasehold locks --watch
                             live table on a terminal; otherwise one JSON line per change except renewals
  leasehold describe nightly-report
                             one lock: holders, waiters, last successes, history
  leasehold locks break nightly-report
                             remove expired holders and waiters
  leasehold locks prune --unused-for 30d
                             shrink the documents of unused locks, and hide them; --all lists them

Exit codes: 0 done, 1 nothing to be done, 64 usage, 69 MongoDB is unreachable or refuses a call, or it is not known whether a \
write was applied, 78 configuration, or the name belongs to a lease.";

const BREAK_HELP: &str = "\
Examples:
  leasehold locks break nightly-report
                             remove expired holders and waiters; holders that renew are kept
  leasehold locks break nightly-report --force
                             unsafe: a live holder keeps running until its next renewal

Exit codes: 0 removed, 1 nothing to remove, or refused; 64 usage; 69 MongoDB is unreachable or refuses a call, or it is not known \
whether the write was applied; 78 configuration, or no such lock.";

const PRUNE_HELP: &str = "\
Examples:
  leasehold locks prune --unused-for 30d
                             shrink the documents of unused locks

Exit codes: 0 pruned, 1 nothing to prune; 64 usage; 69 MongoDB is unreachable or refuses a call, or it is not known whether a \
write was applied; 78 configuration.";

/// Arguments of `leasehold locks`.
#[derive(Debug, Args)]
#[command(after_help = HELP, mut_arg(IDENTITY, |unused| unused.hide(true)))]
pub struct LocksArgs {
    // These flags may precede or follow the subcommand.
    #[command(flatten)]
    connection: ConnectionArgs<LocksKeys>,
    #[command(flatten)]
    output: Output,
    /// Watch and print changes
    #[arg(long, conflicts_with = "observe")]
    watch: bool,
    /// List pruned locks too
    #[arg(short, long)]
    all: bool,
    /// Maximum wait for renewals [default: 0s]
    ///
    /// Without a wait, the dates of the last renewals show which holders and waiters are silent.
    #[arg(long, value_name = "DURATION", allow_negative_numbers = true,
          value_parser = between(Duration::ZERO, OBSERVE_MAX))]
    observe: Option<Duration>,
    #[command(subcommand)]
    command: Option<LocksCommand>,
}

#[derive(Debug, Subcommand)]
enum LocksCommand {
    /// Remove expired holders and waiters of a lock
    #[command(after_help = BREAK_HELP)]
    Break(BreakArgs),
    /// Shrink the documents of unused locks, keeping their tokens
    ///
    /// Until a lock is acquired again, lists and the page omit it.
    #[command(after_help = PRUNE_HELP)]
    Prune(PruneArgs),
}

#[derive(Debug, Args)]
#[command(mut_arg(IDENTITY, |unused| unused.hide(true)))]
struct BreakArgs {
    #[command(flatten)]
    connection: ConnectionArgs<LocksKeys>,
    #[command(flatten)]
    lock: LockName,
    /// Remove live holders too (unsafe)
    ///
    /// Removes all holders; two processes may then hold the lock. Asks for confirmation.
    #[arg(long)]
    force: bool,
    /// Do not ask for confirmation
    #[arg(long, requires = "force")]
    yes: bool,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Args)]
#[command(mut_arg(IDENTITY, |unused| unused.hide(true)))]
struct PruneArgs {
    #[command(flatten)]
    connection: ConnectionArgs<LocksKeys>,
    /// Minimum time since the last hold
    ///
    /// Prunes only locks whose last hold ended at least this long ago, such as 30d.
    #[arg(long, value_name = "DURATION", value_parser = between(Duration::ZERO, UNUSED_MAX))]
    unused_for: Duration,
    #[command(flatten)]
    output: Output,
}

impl LocksArgs {
    fn inner(&self) -> Option<(&'static str, &ConnectionArgs<LocksKeys>)> {
        Some(match self.command.as_ref()? {
            LocksCommand::Break(args) => ("break", &args.connection),
            LocksCommand::Prune(args) => ("prune", &args.connection),
        })
    }

    /// Returns the error for flags that contradict the subcommand.
    pub fn contradiction(&self) -> Option<String> {
        let (subcommand, inner) = self.inner()?;
        let of_list = [
            ("watch", self.watch),
            ("all", self.all),
            ("observe", self.observe.is_some()),
        ];
        self.connection.contradiction(&of_list, subcommand, inner)
    }
}

/// Runs the requested action.
#[inline(never)]
pub fn run(args: LocksArgs) -> Result<ExitCode, CommandError> {
    let inner = args.inner().map(|(_, inner)| inner);
    let connection = args.connection.joined(inner);
    let timeout = connection.timeout();
    configured(&connection, false, async |config| {
        let Some(command) = args.command else {
            let observe = args.observe.unwrap_or_default();
            let observe = (!args.watch).then_some(observe);
            return list_locks(&config, args.output.json(), timeout, (args.all, observe)).await;
        };
        let locks = MongoCollection::brief(of_locks(&config, config.timings));
        let calls = Calls::new(&locks, &config, timeout);
        let json = args.output.json();
        let done = async {
            match command {
                LocksCommand::Break(it) => {
                    let lock = calls.of(it.lock.get().clone());
                    let round_trip = config.timings.operation_timeout();
                    let json = json || it.output.json();
                    breaking::run(&lock, it.force, it.yes, round_trip, json).await
                }
                LocksCommand::Prune(prune) => {
                    let json = json || prune.output.json();
                    pruning::run(&calls, prune.unused_for, json).await
                }
            }
        };
        let done = run_on(&locks, &config.mongodb.uri, Some(timeout), done).await;
        done.map(Into::into)
    })
}
