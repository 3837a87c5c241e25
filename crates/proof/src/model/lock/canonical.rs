//! Canonical form of a lock's state. It omits revisions that cannot be stored again, and the order
//! in which claims were drawn.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

use crate::election::{Claim, Revision};
use crate::lock::{Form, FoundLock, LockDocument, LockOperation, LockOutcome};
use crate::proof::model::calls::Place;
use crate::proof::model::canonical::Canonical;
use crate::proof::model::lock::machine::{Call, Machine};
use crate::proof::model::lock::store::{Store, lock_of};
use crate::proof::sim::lock::entries::all;

/// The revisions that are stored, shown to a process, or carried by a write that the store may
/// still apply.
#[derive(Debug, Default)]
pub(crate) struct Live(BTreeSet<Revision>);

impl Live {
    pub(crate) fn of<'a>(store: &Store, machines: impl Iterator<Item = &'a Machine>) -> Self {
        let mut live = Self::default();
        store.documents().for_each(|lock| live.document(lock));
        for machine in machines {
            machine.calls.iter().for_each(|call| live.call(call));
            live.0.extend(machine.stream.granted_revisions());
        }
        live
    }

    /// Returns the revisions that are stored, or carried by a write that the store may still
    /// apply.
    pub(crate) fn storable<'a>(store: &Store, machines: impl Iterator<Item = &'a Machine>) -> Self {
        let mut live = Self::default();
        for lock in [&store.primary, &store.committed]
            .into_iter()
            .filter_map(lock_of)
        {
            live.document(lock);
        }
        for machine in machines {
            let calls = machine.calls.iter();
            let unapplied = calls.filter(|c| matches!(c.place, Place::Sent | Place::Delayed));
            let carried = unapplied.filter_map(|call| revision_of(&call.operation));
            live.0.extend(carried.map(|(_, revision)| revision));
        }
        live
    }

    fn document(&mut self, lock: &LockDocument) {
        self.0.extend(all(lock).map(|entry| entry.revision));
    }

    fn call(&mut self, call: &Call) {
        self.0
            .extend(revision_of(&call.operation).map(|(_, revision)| revision));
        if let Place::Answered(outcome) | Place::Lagging(outcome) = &call.place
            && let LockOutcome::Applied(FoundLock::Lock(lock)) = outcome
        {
            self.document(lock);
        }
    }

    pub(crate) fn contains(&self, revision: Revision) -> bool {
        self.0.contains(&revision)
    }
}

/// Returns the sender's claim, and the revision that the write would leave in the sender's entry.
pub(crate) fn revision_of(operation: &LockOperation) -> Option<(Claim, Revision)> {
    match operation {
        LockOperation::Join { entry, .. } => Some((entry.claim, entry.revision)),
        LockOperation::Renew {
            claim, revision, ..
        }
        | LockOperation::Keep {
            claim, revision, ..
        } => Some((*claim, *revision)),
        LockOperation::Evict { me, .. } => me.map(|me| (me.claim, me.revision)),
        LockOperation::Create { .. }
        | LockOperation::Leave { .. }
        | LockOperation::Break { .. }
        | LockOperation::Read { .. } => None,
    }
}

pub(crate) struct LockForm<'a, 'b, H> {
    pub(crate) to: &'a mut Canonical<'b, H>,
    pub(crate) live: &'a Live,
}

impl<H: Hasher> Form for LockForm<'_, '_, H> {
    fn put(&mut self, value: &impl Hash) {
        self.to.put(value);
    }

    fn is_live(&self, revision: Revision) -> bool {
        self.live.contains(revision)
    }

    fn order(&mut self, claim: Claim) -> usize {
        self.to.place(claim.bytes())
    }
}

/// Adds an operation in flight to the canonical form, without the revisions that its filter cannot
/// match.
pub(crate) fn put_operation<H: Hasher>(
    operation: &LockOperation,
    live: &Live,
    to: &mut Canonical<'_, H>,
) {
    let mut operation = operation.clone();
    match &mut operation {
        LockOperation::Renew { mine, .. }
        | LockOperation::Keep { mine, .. }
        | LockOperation::Leave { mine, .. } => {
            mine.retain(|revision| live.contains(*revision));
        }
        LockOperation::Evict { entries, .. } => {
            entries.retain(|seen| live.contains(seen.revision));
            entries.sort_by_cached_key(|seen| to.place(seen.claim.bytes()));
        }
        LockOperation::Create { .. }
        | LockOperation::Join { .. }
        | LockOperation::Break { .. }
        | LockOperation::Read { .. } => {}
    }
    to.put(&operation);
}
