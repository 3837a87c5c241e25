//! The command line: what was asked for, and who answers it.
//!
//! A wrong command line exits 64 and never shows what could be a connection
//! string, also where it was given as something else.

pub mod completions;
pub mod config;
pub mod install;
pub mod limits;
pub mod lock;
pub mod locks;
pub mod run;
pub mod status;

mod arguments;
mod privacy;
mod store_options;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::config::{ConfigError, Key, Sources};
use crate::exit;

pub use arguments::{Stop, command, parse};

/// One parsed command line.
#[derive(Debug)]
pub enum Invocation {
    /// `leasehold run`.
    Run(RunArgs),
    /// `leasehold status`.
    Status(StatusArgs),
    /// `leasehold lock`.
    Lock(lock::LockArgs),
    /// `leasehold locks`.
    Locks(locks::LocksArgs),
    /// `leasehold config`.
    Config(ConfigArgs),
    /// `leasehold completions`.
    Completions(clap_complete::Shell),
    /// `leasehold install`, with the directory.
    Install(PathBuf),
}

/// What `leasehold run` was given.
#[derive(Debug)]
pub struct RunArgs {
    /// Where the configuration comes from; kept for SIGHUP.
    pub sources: Sources,
    /// A command to supervise; empty: none.
    pub command: Vec<OsString>,
}

/// What `leasehold status` was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusArgs {
    /// The status directory to read.
    pub directory: Option<PathBuf>,
    /// The lease whose default status directory is to be read.
    pub lease: Option<String>,
    /// JSON instead of text.
    pub json: bool,
    /// Watch and print changes.
    pub watch: bool,
}

/// What `leasehold config` was given.
#[derive(Debug)]
pub struct ConfigArgs {
    /// Where the configuration comes from.
    pub sources: Sources,
    /// JSON instead of TOML.
    pub json: bool,
    /// Only the value of this key.
    pub key: Option<&'static Key>,
}

/// Why a command could not do its work; `main` prints it.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The daemon could not begin or go on.
    #[error(transparent)]
    Run(#[from] run::RunError),
    /// There is no copy of the program.
    #[error(transparent)]
    Install(#[from] install::InstallError),
    /// A lock cannot be contended for.
    #[error(transparent)]
    Lock(#[from] lock::LockCommandError),
    /// Locks cannot be shown or changed.
    #[error(transparent)]
    Locks(#[from] locks::LocksError),
    /// Too few files can be opened.
    #[error(transparent)]
    Limits(#[from] limits::TooFewFiles),
    /// The answer cannot be written.
    #[error("cannot write to standard output")]
    Output(#[source] std::io::Error),
}

impl CommandError {
    /// The exit code that tells what kind of error it is.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Config(_) | Self::Install(_) | Self::Limits(_) => exit::CONFIGURATION,
            Self::Run(error) => error.exit_code(),
            Self::Lock(error) => error.exit_code(),
            Self::Locks(error) => error.exit_code(),
            Self::Output(_) => exit::CANNOT_TELL,
        })
    }
}

/// Does what was asked for.
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
        Invocation::Locks(args) => locks::run(args),
        Invocation::Status(args) => Ok(status::run(&args)),
        Invocation::Config(args) => config::run(args).map(|()| ExitCode::from(exit::DONE)),
        Invocation::Completions(shell) => {
            completions::run(shell).map(|()| ExitCode::from(exit::DONE))
        }
        Invocation::Install(directory) => {
            let installed = install::run(&directory)?;
            let line = format!("{}\n", installed.display());
            answer(line.as_bytes()).map(|()| ExitCode::from(exit::DONE))
        }
    }
}

/// Writes an answer. A reader that went away has had enough: no error.
fn answer(text: &[u8]) -> Result<(), CommandError> {
    use std::io::Write;

    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(CommandError::Output),
    }
}
