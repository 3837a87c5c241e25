//! The store that the protocol assumes. The store has one primary, and never loses a write that a
//! majority has.

use crate::election::{Identity, Lease, Operation, Outcome, Revision, WallMillis};
use crate::proof::sim::election::broken;
use crate::reference::election as reference;

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Store {
    /// The document on the primary. The store compares the filters of writes with this document.
    pub(crate) primary: Option<Lease>,
    /// The document that a majority has. Reads return it, and a new primary starts with it.
    pub(crate) committed: Option<Lease>,
    /// The document that a majority had before `committed`. A deposed primary may still return it.
    pub(crate) previous: Option<Lease>,
}

impl Store {
    /// Replicates the primary's document to a majority. Keeps the previous document if `remember`
    /// is true.
    pub(crate) fn commit(&mut self, remember: bool) {
        if self.committed != self.primary {
            let before = std::mem::replace(&mut self.committed, self.primary.clone());
            self.previous = before.filter(|_| remember);
        }
    }

    pub(crate) fn lags(&self) -> bool {
        self.primary != self.committed
    }

    pub(crate) fn with_revision(&self, revision: Revision) -> Option<&Lease> {
        let stored = [&self.committed, &self.primary];
        stored
            .into_iter()
            .flatten()
            .find(|lease| lease.revision == revision)
    }

    /// Performs `operation` on the primary. Only `commit` replicates the write to a majority.
    pub(crate) fn perform(&mut self, by: &Identity, operation: &Operation) -> Outcome {
        if let Operation::Read { .. } = operation {
            return Outcome::Applied(reference::found(self.committed.as_ref()));
        }
        let matched = broken::write(&mut self.primary, by, WallMillis(0), operation);
        reference::outcome(matched, self.primary.as_ref())
    }

    /// Edits the document as an operator does, without a new revision.
    pub(crate) fn edit(&mut self, change: impl FnOnce(&mut Lease)) {
        if let Some(lease) = &mut self.primary {
            change(lease);
        }
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.committed.as_ref().is_some_and(|lease| lease.paused)
    }
}
