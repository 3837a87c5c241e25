//! The command line: arguments, subcommands and their dispatch.
//!
//! A command line error exits 64 and never prints an argument that could be a connection string,
//! even if it was passed as another argument.

pub mod completions;
pub mod config;
pub mod install;
pub mod run;

mod arguments;

use std::process::ExitCode;

use clap::Subcommand;

use crate::config::ConfigError;
use leasehold_host::limits;

use crate::exit;

pub use arguments::{UsageError, command, parse};
use leasehold_job as lock;
pub use leasehold_operate::status;
use leasehold_operate::{ToolError, check, locks, operators, replicas};

use leasehold_cli::{
    OutputError, UNSUPPORTED, answer, run_with, store_elections, store_options, trace, uri_notices,
};

pub use leasehold_cli::trace::of_guard as guard_trace;

/// One parsed command line.
#[derive(Debug, Subcommand)]
pub enum Invocation {
    /// Contend for a lease, renew it, and publish who leads
    Run(run::RunArgs),
    /// Run a command under a distributed lock, or hold the lock until standard input closes
    Lock(lock::LockArgs),
    /// Show the locks of a collection; break or prune them
    Locks(locks::LocksArgs),
    #[allow(missing_docs, reason = "its variants are the commands")]
    #[command(flatten)]
    Operator(operators::OperatorCommand),
    /// Query the local daemon: exit 0 if it leads, 1 if not, 2 if unknown
    Status(status::StatusArgs),
    /// Examine the installation that run would use, without changing anything
    Check(check::CheckArgs),
    /// Ask every replica of a lease over HTTP: exit 0 if exactly one leads and all use one MongoDB
    /// collection
    Replicas(replicas::ReplicasArgs),
    /// Print the effective configuration and where each value came from
    Config(config::ConfigArgs),
    /// Print a completion script
    Completions(completions::CompletionsArgs),
    /// Copy this program into a directory, to be run by a container of another image
    Install(install::InstallArgs),
}

/// Reason why a command failed, printed by `main`.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The daemon failed to start or to continue.
    #[error(transparent)]
    Run(#[from] run::RunError),
    /// The program was not copied.
    #[error(transparent)]
    Install(#[from] install::InstallError),
    /// The lock cannot be contended for.
    #[error(transparent)]
    Lock(#[from] lock::LockCommandError),
    /// A tool of operators failed.
    #[error(transparent)]
    Tool(Box<ToolError>),
    /// The limit of open files is too low.
    #[error(transparent)]
    Limits(#[from] limits::TooFewFiles),
    /// The output cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
}

impl From<ToolError> for CommandError {
    fn from(error: ToolError) -> Self {
        Self::Tool(Box::new(error))
    }
}

impl CommandError {
    /// Returns the exit code for this kind of error.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Config(_) | Self::Install(_) | Self::Limits(_) => exit::CONFIGURATION,
            Self::Run(error) => error.exit_code(),
            Self::Lock(error) => error.exit_code(),
            Self::Tool(error) => error.exit_code(),
            Self::Output(_) => exit::CANNOT_TELL,
        })
    }
}

/// Executes the parsed command line.
///
/// # Errors
/// [`CommandError`], not yet printed.
pub fn dispatch(invocation: Invocation) -> Result<ExitCode, CommandError> {
    match invocation {
        Invocation::Run(args) => {
            limits::check()?;
            Ok(run::run(args)?)
        }
        Invocation::Lock(args) => {
            limits::check()?;
            Ok(lock::run(args)?)
        }
        Invocation::Locks(args) => {
            limits::check()?;
            Ok(locks::run(args)?)
        }
        Invocation::Operator(command) => {
            limits::check()?;
            Ok(operators::run(command)?)
        }
        Invocation::Check(args) => {
            limits::check()?;
            Ok(check::run(args)?)
        }
        Invocation::Replicas(args) => Ok(replicas::run(&args)?),
        Invocation::Status(args) => Ok(status::run(&args)),
        Invocation::Config(args) => config::run(args).map(|()| ExitCode::from(exit::DONE)),
        Invocation::Completions(args) => {
            completions::run(&args).map(|()| ExitCode::from(exit::DONE))
        }
        Invocation::Install(args) => {
            let installed = install::run(&args)?;
            let line = format!("{}\n", installed.display());
            Ok(answer(line.as_bytes()).map(|()| ExitCode::from(exit::DONE))?)
        }
    }
}
