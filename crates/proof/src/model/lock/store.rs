//! The store that the protocol assumes. The store has one primary, and never loses a write that a
//! majority has. Every write on the primary is checked.

use crate::election::{Claim, Identity, Revision, WallMillis};
use crate::lock::{Entry, FoundLock, Hint, LockDocument, LockOperation, LockOutcome};
use crate::proof::sim::lock::entries::all;
use crate::proof::sim::lock::{broken, invariants::documents};
use crate::reference::lock::{By, next};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Store {
    /// The document on the primary. The store compares the filters of writes with this document.
    pub(crate) primary: FoundLock,
    /// The document that a majority has. Reads return it, and a new primary starts with it.
    pub(crate) committed: FoundLock,
    /// The document that a majority had before `committed`. A deposed primary may still return it.
    pub(crate) previous: Option<FoundLock>,
    /// Events of the writes that no majority has yet. Each event belongs to the stream of one
    /// claim.
    pub(crate) events: Vec<(Claim, Hint)>,
}

impl Store {
    pub(crate) fn new(missing: bool) -> Self {
        let found = if missing {
            FoundLock::Missing
        } else {
            FoundLock::Lock(LockDocument::default())
        };
        Self {
            primary: found.clone(),
            committed: found,
            previous: None,
            events: Vec::new(),
        }
    }

    /// Replicates the primary's document to a majority, and returns the events of its writes. Keeps
    /// the previous document if `remember` is true.
    pub(crate) fn commit(&mut self, remember: bool) -> Vec<(Claim, Hint)> {
        if self.lags() {
            let before = std::mem::replace(&mut self.committed, self.primary.clone());
            self.previous = remember.then_some(before);
        }
        std::mem::take(&mut self.events)
    }

    pub(crate) fn roll_back(&mut self) {
        self.primary = self.committed.clone();
        self.events.clear();
    }

    pub(crate) fn lags(&self) -> bool {
        self.primary != self.committed
    }

    /// Performs `operation` on the primary, and returns the invariant that the write breaks, if
    /// any. Only `commit` replicates the write to a majority.
    pub(crate) fn perform(
        &mut self,
        identity: &Identity,
        operation: &LockOperation,
    ) -> (LockOutcome, Option<&'static str>) {
        if let LockOperation::Read { .. } = operation {
            return (LockOutcome::Applied(self.committed.clone()), None);
        }
        let at = WallMillis(0);
        let before = self.primary.clone();
        let performed = broken::apply(
            &mut self.primary,
            By {
                identity,
                at,
                store_now: WallMillis(1),
            },
            operation,
        );
        let mut violation = None;
        if let (FoundLock::Lock(before), FoundLock::Lock(after)) = (&before, &self.primary)
            && performed.outcome != LockOutcome::Rejected
        {
            violation = documents::check(before, after).map(|violation| violation.invariant);
            let granted = performed.granted.iter();
            self.events
                .extend(granted.map(|(claim, grant)| (*claim, Hint::Granted(*grant))));
            let head = next(after).filter(|claim| next(before) != Some(*claim));
            self.events.extend(head.map(|claim| (claim, Hint::Next)));
        }
        (performed.outcome, violation)
    }

    pub(crate) fn documents(&self) -> impl Iterator<Item = &LockDocument> {
        let found = [Some(&self.primary), Some(&self.committed)];
        let found = found.into_iter().chain([self.previous.as_ref()]);
        found.flatten().filter_map(lock_of)
    }

    fn stored(&self) -> impl Iterator<Item = &Entry> {
        let stored = [&self.primary, &self.committed];
        stored.into_iter().filter_map(lock_of).flat_map(all)
    }

    pub(crate) fn has(&self, claim: Claim, revision: Revision) -> bool {
        let mut stored = self.stored();
        stored.any(|entry| (entry.claim, entry.revision) == (claim, revision))
    }

    pub(crate) fn has_revision(&self, revision: Revision) -> bool {
        self.stored().any(|entry| entry.revision == revision)
    }
}

pub(crate) fn lock_of(found: &FoundLock) -> Option<&LockDocument> {
    match found {
        FoundLock::Lock(lock) => Some(lock),
        FoundLock::Missing | FoundLock::Foreign(_) => None,
    }
}

pub(crate) fn has_claim(found: &FoundLock, claim: Claim) -> bool {
    lock_of(found).is_some_and(|lock| all(lock).any(|entry| entry.claim == claim))
}
