//! The store as the protocol assumes it: one primary, and the majority-committed state, which is
//! never lost.

use crate::election::{Identity, Lease, Operation, Outcome, Revision, WallMillis};
use crate::proof::sim::election::broken;
use crate::reference::election as reference;

/// One lease, as stored on the primary and on a majority.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Store {
    /// State of the primary. The filters of writes are evaluated on this state.
    pub(crate) primary: Option<Lease>,
    /// Majority-committed state: reads return it, and a new primary starts from it.
    pub(crate) committed: Option<Lease>,
    /// Previous majority-committed state, which a deposed primary may still return.
    pub(crate) previous: Option<Lease>,
}

impl Store {
    /// Replicates the primary's state to a majority. The previous state is kept if `remember`.
    pub(crate) fn commit(&mut self, remember: bool) {
        if self.committed != self.primary {
            let before = std::mem::replace(&mut self.committed, self.primary.clone());
            self.previous = before.filter(|_| remember);
        }
    }

    /// Returns true if a write has not reached a majority.
    pub(crate) fn lags(&self) -> bool {
        self.primary != self.committed
    }

    /// Returns the stored lease with this revision, if any.
    pub(crate) fn with_revision(&self, revision: Revision) -> Option<&Lease> {
        let stored = [&self.committed, &self.primary];
        stored
            .into_iter()
            .flatten()
            .find(|lease| lease.revision == revision)
    }

    /// Performs `operation` on the primary. A write does not reach a majority yet.
    pub(crate) fn perform(&mut self, by: &Identity, operation: &Operation) -> Outcome {
        if let Operation::Read { .. } = operation {
            return Outcome::Applied(reference::found(self.committed.as_ref()));
        }
        let matched = broken::write(&mut self.primary, by, WallMillis(0), operation);
        reference::outcome(matched, self.primary.as_ref())
    }

    /// Sets fields like an operator, without changing the revision.
    pub(crate) fn edit(&mut self, change: impl FnOnce(&mut Lease)) {
        if let Some(lease) = &mut self.primary {
            change(lease);
        }
    }

    /// Returns true if the majority-committed lease is paused.
    pub(crate) fn is_paused(&self) -> bool {
        self.committed.as_ref().is_some_and(|lease| lease.paused)
    }
}
