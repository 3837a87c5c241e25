//! The command line: arguments, subcommands and their dispatch. A usage error exits 64 and never
//! prints an argument that could be a connection string.

pub mod bury;
pub mod completions;
pub mod config;
pub mod guard;
pub mod install;
pub mod run;

mod arguments;
mod help;

use std::process::ExitCode;

use clap::Subcommand;

pub use leasehold_host::CommandError;
use leasehold_host::limits;

use crate::exit;

pub use arguments::{UsageError, command, parse};
use leasehold_job as lock;
pub use leasehold_operate::status;
use leasehold_operate::{check, locks, operators, replicas};

use leasehold_cli::{
    UNSUPPORTED, answer, run_with, store_elections, store_options, trace, uri_notices,
};

pub use leasehold_cli::trace::of_guard as guard_trace;

/// One parsed command line.
#[derive(Debug, Subcommand)]
pub enum Invocation {
    /// Contend for a lease, renew it, and publish who leads
    Run(run::RunArgs),
    /// Run a command under a distributed lock
    ///
    /// Without a command, the lock is held until standard input closes.
    Lock(lock::LockArgs),
    /// Show the locks of a collection; break or prune them
    Locks(locks::LocksArgs),
    #[allow(missing_docs, reason = "the variants are the commands")]
    #[command(flatten)]
    Operator(operators::OperatorCommand),
    /// Ask this host's daemon if it leads: exit code 0 if so, 1 if not
    ///
    /// Reads the daemon's status directory, and needs no MongoDB.
    Status(status::StatusArgs),
    /// Run a workload in its own container, next to leasehold
    Guard(guard::GuardArgs),
    /// Release the lease of a daemon that was killed
    ///
    /// Meant for ExecStopPost= of a systemd unit.
    Bury(bury::BuryArgs),
    /// Examine an installation, running or not, without changing it
    Check(check::CheckArgs),
    /// Check over HTTP that exactly one replica of a lease leads
    ///
    /// Exit code 0 if exactly one leads and all use one MongoDB collection.
    Replicas(replicas::ReplicasArgs),
    /// Print the configuration in effect and where each value came from
    Config(config::ConfigArgs),
    /// Print a completion script
    Completions(completions::CompletionsArgs),
    /// Copy this program into a directory, for another image's container
    Install(install::InstallArgs),
}

/// Executes the parsed command line. `main` prints the error.
///
/// Commands with large futures are not inlined. Otherwise this function's frame, and so the stack of
/// every daemon and guard, would contain the futures of all commands (180 KB).
pub fn dispatch(invocation: Invocation) -> Result<ExitCode, CommandError> {
    if !matches!(
        invocation,
        Invocation::Replicas(_)
            | Invocation::Status(_)
            | Invocation::Config(_)
            | Invocation::Completions(_)
            | Invocation::Install(_)
            | Invocation::Guard(_)
    ) {
        limits::check()?;
    }
    let done = |()| ExitCode::from(exit::DONE);
    match invocation {
        Invocation::Run(args) => run::run(args),
        Invocation::Lock(args) => lock::run(args),
        Invocation::Locks(args) => locks::run(args),
        Invocation::Operator(command) => operators::run(command),
        Invocation::Guard(args) => guard::run(args),
        Invocation::Bury(args) => bury::run(&args),
        Invocation::Check(args) => check::run(args),
        Invocation::Replicas(args) => replicas::run(&args),
        Invocation::Status(args) => status::run(&args),
        Invocation::Config(args) => config::run(args).map(done),
        Invocation::Completions(args) => completions::run(&args).map(done),
        Invocation::Install(args) => {
            let installed = install::run(&args)?;
            answer(format!("{}\n", installed.display()).as_bytes()).map(done)
        }
    }
}
