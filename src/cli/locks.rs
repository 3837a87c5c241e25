//! `leasehold locks`: lists, breaks and prunes locks, for operators.
//!
//! The command never contends for a lock, and removes only expired entries unless `--force` is
//! given.

mod breaking;
mod listing;

use std::future::Future;
use std::process::ExitCode;
use std::time::Duration;

use crate::config::{ConfigError, LockConfig, Sources};
use crate::election::LeaseName;
use crate::exit;
use crate::lock::{Ending, Entry, Found, Operation, Outcome, Seen};
use crate::log;
use crate::store::mongo::StoreOptions;
use crate::store::mongo::lock::{Listed, MongoLockStore, MongoLocks};
use crate::store::{Failure, Store as _};

use super::store_options::of_locks;
use super::{CommandError, run_to_end};

/// Arguments of `leasehold locks`.
#[derive(Debug)]
pub struct LocksArgs {
    /// Sources of the configuration.
    pub sources: Sources,
    /// The requested action.
    pub command: LocksCommand,
}

/// Actions of `leasehold locks`.
#[derive(Debug)]
pub enum LocksCommand {
    /// List holders and waiters.
    List {
        /// JSON instead of text.
        json: bool,
    },
    /// Remove expired holders and waiters.
    Break {
        /// Name of the lock.
        name: LeaseName,
        /// Remove all holders immediately, including live ones.
        force: bool,
        /// Skip the confirmation.
        confirmed: bool,
    },
    /// Shrink the documents of unused locks.
    Prune {
        /// Minimum time since the last holder ended.
        unused_for: Duration,
    },
}

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
    /// The document of this name is not a lock.
    #[error("lock {name}: the document of this name is not a lock: {why}")]
    NoLock {
        /// Name of the lock.
        name: LeaseName,
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
            Self::Store { .. } => exit::STORE_UNREACHABLE,
            Self::System(_) => exit::NEGATIVE,
        }
    }
}

/// Runs the requested action.
///
/// # Errors
/// [`CommandError`], not yet printed.
pub fn run(args: LocksArgs) -> Result<ExitCode, CommandError> {
    let LocksArgs { sources, command } = args;
    let config = sources.load().lock_config().map_err(LocksError::Config)?;
    log::start(&config.log);
    let answered = run_to_end(answer(command, &config)).map_err(LocksError::System)?;
    answered.map(ExitCode::from)
}

async fn answer(command: LocksCommand, config: &LockConfig) -> Result<u8, CommandError> {
    match command {
        LocksCommand::List { json } => {
            let locks = MongoLocks::new(store_options(config));
            let listed = list(&locks, config).await;
            locks.shut_down().await;
            super::answer(listing::listing(&listed?, json).as_bytes())?;
            Ok(exit::DONE)
        }
        LocksCommand::Break {
            name,
            force,
            confirmed,
        } => breaking::run(name, config, force, confirmed).await,
        LocksCommand::Prune { unused_for } => prune(config, unused_for).await,
    }
}

/// Lists the locks.
async fn list(locks: &MongoLocks, config: &LockConfig) -> Result<Vec<Listed>, LocksError> {
    let listed = answered(config, locks.list()).await;
    listed.map_err(store("list the locks"))
}

/// Waits for an answer of MongoDB: it selects a server within one `operation_timeout` and answers
/// within another.
async fn answered<T>(
    config: &LockConfig,
    call: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let limit = 2 * config.timings.operation_timeout();
    let answered = tokio::time::timeout(limit, call).await;
    answered.unwrap_or_else(|_| Err(Failure::no_answer(limit)))
}

/// Performs an operation that is answered in time.
async fn performed(
    config: &LockConfig,
    one: &MongoLockStore,
    operation: Operation,
) -> Result<Outcome, Failure> {
    let call = async {
        let answer = one.perform(operation).await;
        answer.failure.map_or(Ok(answer.outcome), Err)
    };
    answered(config, call).await
}

/// Shrinks the documents of locks that have had no holder for this long.
async fn prune(config: &LockConfig, unused_for: Duration) -> Result<u8, CommandError> {
    let locks = MongoLocks::new(store_options(config));
    let pruned = prune_each(&locks, config, unused_for).await;
    locks.shut_down().await;
    if pruned? == 0 {
        let unused_for = humantime::format_duration(unused_for);
        super::say(&format!("no lock has been unused for {unused_for}"));
        return Ok(exit::NEGATIVE);
    }
    Ok(exit::DONE)
}

/// Returns the number of locks that were pruned.
async fn prune_each(
    locks: &MongoLocks,
    config: &LockConfig,
    unused_for: Duration,
) -> Result<usize, CommandError> {
    let unused_for = i64::try_from(unused_for.as_millis()).unwrap_or(i64::MAX);
    let mut pruned = 0;
    for lock in list(locks, config).await? {
        let Found::Lock(document) = &lock.found else {
            continue;
        };
        let ended = |entry: &Entry| entry.is_over && entry.at_least.is_zero();
        let (true, Ok(name)) = (
            document.holders.iter().all(ended) && document.queue.is_empty(),
            LeaseName::new(lock.name),
        ) else {
            continue;
        };
        let one = locks.lock(name.clone());
        if !document.holders.is_empty() {
            // The places of work that ended before its least time stay until they are removed.
            let seen = |entry: &Entry| Seen {
                claim: entry.claim,
                revision: entry.revision,
            };
            let evict = Operation::Evict {
                entries: document.holders.iter().map(seen).collect(),
                me: None,
                ending: Ending::Expired,
                seen: document.token,
            };
            let evicted = performed(config, &one, evict).await;
            evicted.map_err(store("remove an ended holder"))?;
        }
        let history = answered(config, one.history()).await;
        let history = history.map_err(store("read the history"))?;
        // A document without a history was pruned before, or never held.
        let last = history.iter().map(|end| end.ended_at.0).max();
        // The server dates the end of each holder, each success, and this reply.
        let successes = document.successes.iter().map(|success| success.at.0);
        let last = last.map(|last| successes.fold(last, i64::max));
        let oldest = document.store_now.0.saturating_sub(unused_for);
        if last.is_some_and(|at| at <= oldest) {
            let call = async {
                let answer = one.prune().await;
                answer.failure.map_or(Ok(answer.outcome), Err)
            };
            let outcome = answered(config, call).await;
            // Rejected if the lock came into use again just now.
            if let Outcome::Applied(_) = outcome.map_err(store("prune a lock"))? {
                super::answer(format!("pruned {name}\n").as_bytes())?;
                pruned += 1;
            }
        }
    }
    Ok(pruned)
}

fn store_options(config: &LockConfig) -> StoreOptions {
    of_locks(config, config.timings)
}

fn store(doing: &'static str) -> impl Fn(Failure) -> LocksError {
    move |failure| LocksError::Store { doing, failure }
}
