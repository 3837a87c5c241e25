//! The command line: arguments, subcommands and their dispatch.
//!
//! A command line error exits 64 and never prints an argument that could be a connection string,
//! even if it was passed as another argument.

pub mod completions;
pub mod config;
pub mod install;
pub mod run;

mod arguments;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::config::{ConfigError, Key, Sources};
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
#[derive(Debug)]
pub enum Invocation {
    /// `leasehold run`.
    Run(RunArgs),
    /// `leasehold status`.
    Status(status::StatusArgs),
    /// `leasehold lock`.
    Lock(lock::LockArgs),
    /// `leasehold locks`.
    Locks(locks::LocksArgs),
    /// `leasehold leases`, `describe`, `step-down`, `transfer`, `pause`, `resume`, `cancel` or
    /// `repair`.
    Operator(operators::OperatorArgs),
    /// `leasehold check`.
    Check(check::CheckArgs),
    /// `leasehold replicas`.
    Replicas(replicas::ReplicasArgs),
    /// `leasehold config`.
    Config(ConfigArgs),
    /// `leasehold completions`.
    Completions(clap_complete::Shell),
    /// `leasehold install`, with the directory.
    Install(PathBuf),
}

/// Arguments of `leasehold run`.
#[derive(Debug)]
pub struct RunArgs {
    /// Sources of the configuration, kept for SIGHUP.
    pub sources: Sources,
    /// Command to supervise; empty if there is none.
    pub command: Vec<OsString>,
}

/// Arguments of `leasehold config`.
#[derive(Debug)]
pub struct ConfigArgs {
    /// Sources of the configuration.
    pub sources: Sources,
    /// JSON instead of TOML.
    pub json: bool,
    /// The key whose value is printed; `None` prints all keys.
    pub key: Option<&'static Key>,
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
    Tool(#[from] ToolError),
    /// The limit of open files is too low.
    #[error(transparent)]
    Limits(#[from] limits::TooFewFiles),
    /// The output cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
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
        Invocation::Run(RunArgs { sources, command }) => {
            limits::check()?;
            let config = sources.load().config()?;
            Ok(run::run(config, sources, command)?)
        }
        Invocation::Lock(args) => {
            limits::check()?;
            Ok(lock::run(args)?)
        }
        Invocation::Locks(args) => {
            limits::check()?;
            Ok(locks::run(args)?)
        }
        Invocation::Operator(args) => {
            limits::check()?;
            Ok(operators::run(args)?)
        }
        Invocation::Check(args) => {
            limits::check()?;
            Ok(check::run(args)?)
        }
        Invocation::Replicas(args) => Ok(replicas::run(&args)?),
        Invocation::Status(args) => Ok(status::run(&args)),
        Invocation::Config(args) => config::run(args).map(|()| ExitCode::from(exit::DONE)),
        Invocation::Completions(shell) => {
            completions::run(shell).map(|()| ExitCode::from(exit::DONE))
        }
        Invocation::Install(directory) => {
            let installed = install::run(&directory)?;
            let line = format!("{}\n", installed.display());
            Ok(answer(line.as_bytes()).map(|()| ExitCode::from(exit::DONE))?)
        }
    }
}
