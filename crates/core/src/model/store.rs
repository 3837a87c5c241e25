//! The store as the protocol assumes it: one primary, a state that a majority
//! has, and nothing lost of that.

use crate::election::{Identity, Lease, Operation, Outcome, Revision, WallMillis, reference};

/// One lease, as the primary and as a majority have it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Store {
    /// What the primary has: writes are judged by it.
    pub(crate) primary: Option<Lease>,
    /// What a majority has: reads show it, and a new primary begins with it.
    pub(crate) committed: Option<Lease>,
    /// What a majority had before: a deposed primary may still show it.
    pub(crate) previous: Option<Lease>,
}

impl Store {
    /// A majority has all that the primary has.
    pub(crate) fn commit(&mut self, remember: bool) {
        if self.committed != self.primary {
            let before = std::mem::replace(&mut self.committed, self.primary.clone());
            self.previous = before.filter(|_| remember);
        }
    }

    /// Whether some write is not with a majority.
    pub(crate) fn lags(&self) -> bool {
        self.primary != self.committed
    }

    /// The stored lease with this revision, if there is one.
    pub(crate) fn with_revision(&self, revision: Revision) -> Option<&Lease> {
        let stored = [&self.committed, &self.primary];
        stored
            .into_iter()
            .flatten()
            .find(|lease| lease.revision == revision)
    }

    /// Performs `operation` on the primary. A write is not with a majority yet.
    pub(crate) fn perform(&mut self, by: &Identity, operation: &Operation) -> Outcome {
        if let Operation::Read { .. } = operation {
            return Outcome::Applied(reference::found(self.committed.as_ref()));
        }
        let matched = reference::write(&mut self.primary, by, WallMillis(0), operation);
        reference::outcome(matched, self.primary.as_ref())
    }

    /// An operator sets fields; the revision stays.
    pub(crate) fn edit(&mut self, change: impl FnOnce(&mut Lease)) {
        if let Some(lease) = &mut self.primary {
            change(lease);
        }
    }

    /// Whether an operator paused the lease, as a majority has it.
    pub(crate) fn is_paused(&self) -> bool {
        self.committed.as_ref().is_some_and(|lease| lease.paused)
    }
}
