//! `leasehold locks prune`: shrinks the documents of unused locks.

use std::time::Duration;

use super::calls::{Calls, LockCalls, Reread, WriteResult, version};
use crate::operators::OperatorError;
use crate::operators::render::short;
use leasehold_cli::{answer, say};
use leasehold_core::election::{BootTime, ResourceName};
use leasehold_core::lock::{Ending, Entry, LockDocument, LockOperation};
use leasehold_host::{CommandError, exit};
use leasehold_mongodb::store::mongo::operators::Content;

/// Shrinks the documents of locks that have had no holder for this long.
pub(super) async fn run(calls: &Calls<'_>, unused_for: Duration) -> Result<u8, CommandError> {
    let at_least = i64::try_from(unused_for.as_millis()).unwrap_or(i64::MAX);
    let mut exit = exit::NEGATIVE;
    for listed in calls.list().await? {
        if let (Content::Lock(record), Ok(name)) = (listed.content, ResourceName::new(listed.name))
            && is_idle(&record.lock)
        {
            let lock = calls.of(name);
            match prune(&lock, &record.lock, at_least).await {
                Ok(false) => {}
                Ok(true) => {
                    answer(format!("pruned {}\n", lock.name).as_bytes())?;
                    exit = exit::DONE;
                }
                // The document was replaced after it was listed.
                Err(error @ OperatorError::Foreign { .. }) => say(&format!("{error}; skipped")),
                Err(error) => return Err(error.into()),
            }
        }
    }
    if exit == exit::NEGATIVE {
        let unused_for = short(unused_for);
        say(&format!("no lock has been unused for {unused_for}"));
    }
    Ok(exit)
}

/// Returns true if no entry waits, and the work and the minimum hold of all holders have ended.
fn is_idle(document: &LockDocument) -> bool {
    let ended = |entry: &Entry| entry.work_done && entry.min_hold.is_zero();
    document.holders.iter().all(ended) && document.queue.is_empty()
}

/// Prunes a lock that has been unused for `at_least` milliseconds; returns true if it was pruned.
async fn prune(
    lock: &LockCalls<'_>,
    document: &LockDocument,
    at_least: i64,
) -> Result<bool, OperatorError> {
    if !document.holders.is_empty() {
        evict(lock, document).await?;
    }
    let unused = unused_millis(lock, document, lock.calls.deadline()).await?;
    if unused.is_none_or(|unused| unused < at_least) {
        return Ok(false);
    }
    let send = || {
        let store = lock.store.clone();
        async move { store.prune().await }
    };
    let written = lock.write("prune a lock", send, async |document, deadline| {
        let Some(document) = document.filter(is_idle) else {
            return Ok(Reread::Changed);
        };
        Ok(match unused_millis(lock, &document, deadline).await? {
            None => Reread::Done,
            Some(unused) if unused < at_least => Reread::Changed,
            Some(_) => Reread::Unchanged,
        })
    });
    // The write is rejected if the lock was used again after it was listed.
    Ok(written.await? != WriteResult::Rejected)
}

/// Removes the entries of holders whose work and minimum hold have ended.
async fn evict(lock: &LockCalls<'_>, document: &LockDocument) -> Result<(), OperatorError> {
    let entries: Vec<_> = document.holders.iter().map(version).collect();
    let evict = LockOperation::Evict {
        entries: entries.clone(),
        me: None,
        ending: Ending::Expired,
        seen: document.token,
    };
    let written = lock.perform("remove an ended holder", &evict, |found| {
        let mut holders = found.iter().flat_map(|lock| &lock.holders);
        match holders.any(|entry| entries.contains(&version(entry))) {
            true => Reread::Unchanged,
            false => Reread::Done,
        }
    });
    written.await.map(drop)
}

/// Returns how long the lock has been unused, by the server's clock; `None` without a history, if
/// the lock was pruned before or never held.
async fn unused_millis(
    lock: &LockCalls<'_>,
    document: &LockDocument,
    deadline: BootTime,
) -> Result<Option<i64>, OperatorError> {
    let successes = document.successes.iter().map(|success| success.at.0);
    let last_end = lock.last_end(deadline).await?;
    let last = last_end.map(|last_end| successes.fold(last_end, i64::max));
    Ok(last.map(|last| document.store_now.0.saturating_sub(last)))
}
