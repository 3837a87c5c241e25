//! `leasehold locks`: lists, breaks and prunes locks, for operators.
//!
//! The command never contends for a lock, and removes only expired entries unless `--force` is
//! given.

mod arguments;
mod breaking;
mod calls;
mod listing;
mod pruning;

use std::process::ExitCode;

use leasehold_config::{ConfigError, LockConfig};
use leasehold_core::election::ResourceName;
use leasehold_host::exit;
use leasehold_host::log;
use leasehold_mongodb::store::Failure;
use leasehold_mongodb::store::mongo::lock::MongoLocks;

pub use self::arguments::LocksArgs;
use self::arguments::LocksCommand;
use self::breaking::Target;
use self::calls::Calls;
use crate::ToolError;
use leasehold_cli::run_to_end;
use leasehold_cli::store_options::of_locks;

/// Reason why the command failed.
#[derive(Debug, thiserror::Error)]
pub enum LocksError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// MongoDB does not respond, or rejected the operation.
    #[error("cannot {doing}: {failure}")]
    Store {
        /// The failed operation.
        doing: &'static str,
        /// The cause.
        failure: Failure,
    },
    /// The outcome of a write is not known.
    #[error(
        "lock {name}: the outcome is not known, because MongoDB did not acknowledge the write: {failure}; \
         leasehold locks shows whether it was applied"
    )]
    Unknown {
        /// Name of the lock.
        name: ResourceName,
        /// The last failure.
        failure: Failure,
    },
    /// The document of this name is not a lock.
    #[error("lock {name}: the document of this name is not a lock: {why}")]
    NoLock {
        /// Name of the lock.
        name: ResourceName,
        /// Reason why the document is not a lock.
        why: String,
    },
    /// The event loop could not be started.
    #[error("cannot start the event loop")]
    System(#[source] std::io::Error),
}

impl LocksError {
    /// Returns the exit code for this kind of error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_) | Self::NoLock { .. } => exit::CONFIGURATION,
            Self::Store { .. } | Self::Unknown { .. } => exit::STORE_UNREACHABLE,
            Self::System(_) => exit::NEGATIVE,
        }
    }
}

/// Runs the requested action.
///
/// # Errors
/// [`ToolError`], not yet printed.
pub fn run(args: LocksArgs) -> Result<ExitCode, ToolError> {
    let config = args.sources().load().lock_config();
    let config = config.map_err(LocksError::Config)?;
    log::start(config.log.level.filter(), config.log.format.json());
    let answered = run_to_end(answer(args, &config)).map_err(LocksError::System)?;
    answered.map(ExitCode::from)
}

async fn answer(args: LocksArgs, config: &LockConfig) -> Result<u8, ToolError> {
    let locks = MongoLocks::new(of_locks(config, config.timings));
    let calls = Calls::new(&locks, config, args.timeout());
    let answered = match args.command {
        None => list(&calls, args.output.json()).await,
        Some(LocksCommand::Break(args)) => {
            let target = Target {
                store: locks.lock(args.name.clone()),
                name: &args.name,
                calls: &calls,
                round_trip: config.timings.operation_timeout(),
            };
            target.broken(args.force, args.yes).await
        }
        Some(LocksCommand::Prune(args)) => pruning::run(&locks, &calls, args.unused_for).await,
    };
    locks.shut_down().await;
    answered
}

async fn list(calls: &Calls<'_>, json: bool) -> Result<u8, ToolError> {
    let listed = calls.list().await?;
    leasehold_cli::answer(listing::listing(&listed, json).as_bytes())?;
    Ok(exit::DONE)
}
