//! The observed entries of a lock, and how long each has been unchanged.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::election::{BootTime, Claim, Declared, Revision};
use crate::lock::{Entry, LockDocument};

/// An entry in the state that its observer last saw. `T` is an instant of the observer's clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ObservedEntry<T> {
    pub(crate) revision: Revision,
    pub(crate) holds: bool,
    pub(crate) confirmed: bool,
    pub(crate) lease_duration: Declared,
    /// The minimum hold that the owner declared last.
    pub(crate) min_hold: Duration,
    pub(crate) work_done: bool,
    /// The entry has been unchanged since this time.
    pub(crate) since: T,
    /// The end of the minimum hold, counted from `since`.
    pub(crate) kept_until: Option<T>,
}

impl<T> ObservedEntry<T> {
    /// Returns how long other processes must wait while the entry stays unchanged.
    pub(crate) fn declared(&self) -> Duration {
        self.min_hold.max(self.lease_duration.duration())
    }
}

pub(crate) trait Instant: Copy + Ord {
    fn after(self, duration: Duration) -> Self;
}

impl Instant for BootTime {
    fn after(self, duration: Duration) -> Self {
        self + duration
    }
}

impl Instant for u64 {
    fn after(self, duration: Duration) -> Self {
        self + u64::try_from(duration.as_nanos()).expect("short")
    }
}

pub(crate) type Entries<T> = BTreeMap<Claim, ObservedEntry<T>>;

/// Returns the entries of the holders, and then the entries in the queue.
pub(crate) fn all(lock: &LockDocument) -> impl Iterator<Item = &Entry> {
    lock.holders.iter().chain(&lock.queue)
}

/// Returns the entries of a newly observed document. An unchanged entry keeps its `since`.
pub(crate) fn shown<T: Instant>(lock: &LockDocument, now: T, before: &Entries<T>) -> Entries<T> {
    let holding = lock.holders.len();
    let each = all(lock).enumerate().map(|(place, entry)| {
        let confirmed = place < holding && entry.is_confirmed();
        let keeps = confirmed && entry.min_hold > Duration::ZERO;
        let mut now = ObservedEntry {
            revision: entry.revision,
            holds: place < holding,
            confirmed: entry.is_confirmed(),
            lease_duration: entry.lease_duration,
            min_hold: entry.min_hold,
            work_done: entry.work_done,
            since: now,
            kept_until: keeps.then(|| now.after(entry.min_hold)),
        };
        if let Some(before) = before.get(&entry.claim) {
            let state = |shown: &ObservedEntry<T>| (shown.revision, shown.holds, shown.confirmed);
            if state(before) == state(&now) {
                (now.since, now.kept_until) = (before.since, before.kept_until);
            }
        }
        (entry.claim, now)
    });
    each.collect()
}
