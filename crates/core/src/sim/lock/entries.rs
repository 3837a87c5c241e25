//! The entries of a lock, and since when each is unchanged.

use std::collections::BTreeMap;

use crate::election::{Claim, Declared, Revision};
use crate::lock::{Entry, LockDocument};

/// An entry as it was shown. `T` is the clock of its observer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ObservedEntry<T> {
    pub(crate) revision: Revision,
    pub(crate) holds: bool,
    pub(crate) confirmed: bool,
    pub(crate) lease_duration: Declared,
    /// Time since which it is unchanged.
    pub(crate) since: T,
}

pub(crate) type Entries<T> = BTreeMap<Claim, ObservedEntry<T>>;

/// Returns the holders, and then the queue.
pub(crate) fn all(lock: &LockDocument) -> impl Iterator<Item = &Entry> {
    lock.holders.iter().chain(&lock.queue)
}

/// Returns the entries of a lock that is shown now. An entry that is unchanged keeps its time.
pub(crate) fn shown<T: Copy>(lock: &LockDocument, now: T, before: &Entries<T>) -> Entries<T> {
    let holding = lock.holders.len();
    let each = all(lock).enumerate().map(|(place, entry)| {
        let now = ObservedEntry {
            revision: entry.revision,
            holds: place < holding,
            confirmed: entry.is_confirmed(),
            lease_duration: entry.lease_duration,
            since: now,
        };
        let state = |shown: &ObservedEntry<T>| (shown.revision, shown.holds, shown.confirmed);
        let unchanged = before.get(&entry.claim).filter(|b| state(b) == state(&now));
        (entry.claim, *unchanged.unwrap_or(&now))
    });
    each.collect()
}
