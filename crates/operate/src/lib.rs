//! The tools of operators: they list, explain, request, repair, check and serve a page, for leases and
//! for locks.
//!
//! A tool never contends for a lease or a lock, and does not run a command. It knows the
//! daemon, another process, by status files, HTTP and the documents in MongoDB.

#![forbid(unsafe_code)]

mod ask;
pub mod check;
pub mod locks;
pub mod operators;
pub mod replicas;
pub mod status;
mod table;

use leasehold_cli::OutputError;
use leasehold_config::ConfigError;
use leasehold_host::exit;

/// Reason why a tool failed.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The locks cannot be listed or changed.
    #[error(transparent)]
    Locks(#[from] locks::LocksError),
    /// The leases cannot be listed or changed.
    #[error(transparent)]
    Operator(#[from] operators::OperatorError),
    /// The checks could not begin.
    #[error(transparent)]
    Check(#[from] check::CheckError),
    /// The replicas cannot be asked.
    #[error(transparent)]
    Replicas(#[from] replicas::ReplicasError),
    /// The output cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
}

impl ToolError {
    /// Returns the exit code for this kind of error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_) => exit::CONFIGURATION,
            Self::Locks(error) => error.exit_code(),
            Self::Operator(error) => error.exit_code(),
            Self::Check(_) => exit::CHECK_FAILED,
            Self::Replicas(_) | Self::Output(_) => exit::CANNOT_TELL,
        }
    }
}
