//! `leasehold locks prune`: shrinks the documents of unused locks.

use std::time::Duration;

use super::LocksError;
use super::calls::{Calls, Reread, WriteResult};
use leasehold_cli::{answer, say};
use leasehold_core::election::{BootTime, ResourceName};
use leasehold_core::lock::{Ending, Entry, EntryVersion, FoundLock, LockDocument, LockOperation};
use leasehold_host::CommandError;
use leasehold_host::exit;
use leasehold_mongodb::store::Store as _;
use leasehold_mongodb::store::mongo::lock::{MongoLockStore, MongoLocks};

/// Shrinks the documents of locks that have had no holder for this long.
pub(super) async fn run(
    locks: &MongoLocks,
    calls: &Calls<'_>,
    unused_for: Duration,
) -> Result<u8, CommandError> {
    let unused_millis = i64::try_from(unused_for.as_millis()).unwrap_or(i64::MAX);
    let mut pruned = false;
    for listed in calls.list().await? {
        let FoundLock::Lock(document) = listed.found else {
            continue;
        };
        if let (true, Ok(name)) = (is_idle(&document), ResourceName::new(listed.name)) {
            let idle = Idle {
                calls,
                store: locks.lock(name.clone()),
                name,
                unused_millis,
            };
            pruned |= idle.prune(document).await?;
        }
    }
    if !pruned {
        let unused_for = humantime::format_duration(unused_for);
        say(&format!("no lock has been unused for {unused_for}"));
        return Ok(exit::NEGATIVE);
    }
    Ok(exit::DONE)
}

/// Returns true for a lock without waiters whose holders, if any, have ended.
fn is_idle(document: &LockDocument) -> bool {
    let ended = |entry: &Entry| entry.work_done && entry.min_hold.is_zero();
    document.holders.iter().all(ended) && document.queue.is_empty()
}

fn seen(entry: &Entry) -> EntryVersion {
    EntryVersion {
        claim: entry.claim,
        revision: entry.revision,
    }
}

/// The age of an idle lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Age {
    /// The document has no history: it was pruned before, or never held.
    Unknown,
    Recent,
    Old,
}

/// A lock without a holder.
struct Idle<'a> {
    calls: &'a Calls<'a>,
    store: MongoLockStore,
    name: ResourceName,
    unused_millis: i64,
}

impl Idle<'_> {
    /// Returns true if the lock was pruned.
    async fn prune(&self, document: LockDocument) -> Result<bool, CommandError> {
        if !document.holders.is_empty() {
            self.evict(&document).await?;
        }
        if self.age(&document, self.calls.deadline()).await? != Age::Old {
            return Ok(false);
        }
        let send = || {
            let store = self.store.clone();
            async move { store.prune().await }
        };
        let doing = ("prune a lock", &self.name);
        let written = self.calls.write(doing, send, async |deadline| {
            let FoundLock::Lock(document) = self.calls.lock(&self.store, true, deadline).await?
            else {
                return Ok(Reread::Changed);
            };
            Ok(match self.age(&document, deadline).await? {
                _ if !is_idle(&document) => Reread::Changed,
                Age::Unknown => Reread::Done,
                Age::Recent => Reread::Changed,
                Age::Old => Reread::Unchanged,
            })
        });
        // Rejected if the lock came into use again just now.
        let pruned = written.await? != WriteResult::Rejected;
        if pruned {
            answer(format!("pruned {}\n", self.name).as_bytes())?;
        }
        Ok(pruned)
    }

    /// Removes the places of work that ended before its minimum hold.
    async fn evict(&self, document: &LockDocument) -> Result<(), LocksError> {
        let entries: Vec<_> = document.holders.iter().map(seen).collect();
        let evict = LockOperation::Evict {
            entries: entries.clone(),
            me: None,
            ending: Ending::Expired,
            seen: document.token,
        };
        let send = || {
            let (store, evict) = (self.store.clone(), evict.clone());
            async move { store.perform(evict).await }
        };
        let doing = ("remove an ended holder", &self.name);
        let written = self.calls.write(doing, send, async |deadline| {
            let found = self.calls.lock(&self.store, true, deadline).await?;
            let FoundLock::Lock(lock) = found else {
                return Ok(Reread::Changed);
            };
            let is_left = |entry: &Entry| entries.contains(&seen(entry));
            Ok(match lock.holders.iter().any(is_left) {
                true => Reread::Unchanged,
                false => Reread::Done,
            })
        });
        written.await.map(drop)
    }

    async fn age(&self, document: &LockDocument, deadline: BootTime) -> Result<Age, LocksError> {
        let history = || self.store.history();
        let history = self.calls.read("read the history", deadline, history);
        let history = history.await?;
        let Some(last) = history.iter().map(|end| end.ended_at.0).max() else {
            return Ok(Age::Unknown);
        };
        // The server dates the end of each holder, each success, and this reply.
        let successes = document.successes.iter().map(|success| success.at.0);
        let oldest = document.store_now.0.saturating_sub(self.unused_millis);
        Ok(match successes.fold(last, i64::max) <= oldest {
            true => Age::Old,
            false => Age::Recent,
        })
    }
}
