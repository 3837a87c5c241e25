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

use leasehold_config::LockConfig;
use leasehold_core::election::ResourceName;
use leasehold_host::exit;
use leasehold_host::log;
use leasehold_mongodb::store::Failure;
use leasehold_mongodb::store::mongo::lock::MongoLocks;

pub use self::arguments::LocksArgs;
use self::arguments::LocksCommand;
use self::breaking::Target;
use self::calls::Calls;
use leasehold_cli::run_to_end;
use leasehold_cli::store_options::of_locks;
use leasehold_host::CommandError;

/// Reason why the command failed.
#[derive(Debug, thiserror::Error)]
pub enum LocksError {
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
}

impl From<LocksError> for CommandError {
    fn from(error: LocksError) -> Self {
        let exit = match &error {
            LocksError::NoLock { .. } => exit::CONFIGURATION,
            LocksError::Store { .. } | LocksError::Unknown { .. } => exit::STORE_UNREACHABLE,
        };
        Self::new(exit, error.to_string())
    }
}

/// Runs the requested action.
///
/// # Errors
/// [`CommandError`], not yet printed.
pub fn run(args: LocksArgs) -> Result<ExitCode, CommandError> {
    let config = args.sources().load().lock_config()?;
    log::start(config.log.level.filter(), config.log.format.json());
    run_to_end(exit::NEGATIVE, answer(args, &config))?.map(ExitCode::from)
}

async fn answer(args: LocksArgs, config: &LockConfig) -> Result<u8, CommandError> {
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

async fn list(calls: &Calls<'_>, json: bool) -> Result<u8, CommandError> {
    let listed = calls.list().await?;
    leasehold_cli::answer(listing::listing(&listed, json).as_bytes())?;
    Ok(exit::DONE)
}
