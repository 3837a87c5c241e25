//! `leasehold locks`: lists, breaks and prunes locks, for operators.
//!
//! The command never contends for a lock, and removes only expired entries unless `--force` is
//! given.

mod breaking;
mod listing;

use std::process::ExitCode;
use std::time::Duration;

use crate::clock;
use crate::config::{ConfigError, LockConfig, Sources};
use crate::election::LeaseName;
use crate::exit;
use crate::lock::{Ending, Entry, Found, Operation, Seen};
use crate::log;
use crate::store::mongo::StoreOptions;
use crate::store::mongo::lock::{MongoLockStore, MongoLocks};
use crate::store::{Failure, Store as _};

use super::store_options::of_locks;
use super::{CommandError, run_to_end};

/// Capacity of the channel for events of the change stream, which is not opened here.
const NEWS_MAX: usize = 1;

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
            let listed = locks.list().await.map_err(store("list the locks"));
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

/// Shrinks the documents of locks that have had no holder for this long.
async fn prune(config: &LockConfig, unused_for: Duration) -> Result<u8, CommandError> {
    let locks = MongoLocks::new(store_options(config));
    let listed = locks.list().await.map_err(store("list the locks"))?;
    locks.shut_down().await;
    let oldest = clock::wall_now()
        .checked_sub(unused_for)
        .and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok())
        .unwrap_or_default();
    let mut pruned = 0;
    for lock in listed {
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
        let one = one(&name, config);
        if !document.holders.is_empty() {
            // The places of work that ended before its least time stay until they are removed.
            let seen = |entry: &Entry| Seen {
                claim: entry.claim,
                revision: entry.revision,
            };
            let swept = one.perform(Operation::Evict {
                entries: document.holders.iter().map(seen).collect(),
                me: None,
                ending: Ending::Expired,
                seen: document.token,
            });
            if let Some(failure) = swept.await.failure {
                let doing = "remove an ended holder";
                return Err(LocksError::Store { doing, failure }.into());
            }
        }
        let history = one.history().await.map_err(store("read the history"))?;
        // A document without a history was pruned before, or never held.
        let last = history.iter().map(|end| end.ended_at.0).max();
        let unused =
            last.is_some_and(|at| u128::try_from(at).is_ok_and(|at| at <= oldest.as_millis()));
        if unused {
            let answer = one.prune().await;
            if let Some(failure) = answer.failure {
                let doing = "prune a lock";
                return Err(LocksError::Store { doing, failure }.into());
            }
            // Rejected if the lock came into use again just now.
            if matches!(answer.outcome, crate::lock::Outcome::Applied(_)) {
                super::answer(format!("pruned {name}\n").as_bytes())?;
                pruned += 1;
            }
        }
        one.shut_down().await;
    }
    if pruned == 0 {
        let unused_for = humantime::format_duration(unused_for);
        super::say(&format!("no lock has been unused for {unused_for}"));
        return Ok(exit::NEGATIVE);
    }
    Ok(exit::DONE)
}

/// Opens one lock for reads and single writes.
fn one(name: &LeaseName, config: &LockConfig) -> MongoLockStore {
    let (news, _) = tokio::sync::mpsc::channel(NEWS_MAX);
    MongoLockStore::new(store_options(config), name.clone(), news).0
}

fn store_options(config: &LockConfig) -> StoreOptions {
    of_locks(config, config.timings)
}

fn store(doing: &'static str) -> impl Fn(Failure) -> LocksError {
    move |failure| LocksError::Store { doing, failure }
}
