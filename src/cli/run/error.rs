//! Reasons why the daemon could not start or continue.

use std::error::Error;

use super::PodError;
use crate::admin::BindError;
use crate::cli::trace::TraceError;
use crate::config::ConfigError;
use crate::exit;
use crate::publish::directory::DirectoryError;
use crate::workload::prerequisites::MissingPrerequisite;

/// Reason why the daemon could not start or continue.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The status directory is not usable.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The port is not usable.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The file of the trace is not usable.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Labels are required, but the cluster or the pod is unknown.
    #[error(transparent)]
    Kubernetes(#[from] PodError),
    /// The guard of a command cannot work here.
    #[error(transparent)]
    Guard(#[from] MissingPrerequisite),
    /// The operating system or a part of the daemon failed.
    #[error("cannot {doing}")]
    System {
        /// The failed operation.
        doing: &'static str,
        /// The cause.
        source: Box<dyn Error + Send + Sync>,
    },
}

impl RunError {
    /// Returns the exit code for this kind of error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Directory(_)
            | Self::Bind(_)
            | Self::Config(_)
            | Self::Trace(_)
            | Self::Kubernetes(_) => exit::CONFIGURATION,
            Self::Guard(_) => exit::SYSTEM,
            Self::System { .. } => exit::NEGATIVE,
        }
    }
}

pub(super) fn system<E: Into<Box<dyn Error + Send + Sync>>>(
    doing: &'static str,
) -> impl Fn(E) -> RunError {
    move |error| RunError::System {
        doing,
        source: error.into(),
    }
}
