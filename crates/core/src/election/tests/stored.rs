//! The document and its history, and writes of other candidates.

use super::harness::free;
use crate::election::*;
use crate::reference::election as reference;

/// The reply to a read when there is no document.
pub(super) const MISSING: Outcome = Outcome::Applied(Found::Missing);

/// Returns the reply to a read of a document that is not a lease of this version.
pub(super) fn foreign() -> Outcome {
    Outcome::Applied(Found::Foreign("newer".into()))
}

#[derive(Debug, Clone, Default)]
pub(super) struct Stored {
    pub(super) document: Option<Lease>,
    pub(super) history: Vec<HistoryEntry>,
    /// Number of writes by other candidates. Each of these writes has its own revision, which is
    /// derived from this number.
    others_writes: u8,
}

impl Stored {
    pub(super) fn free(token: Token) -> Self {
        Self {
            document: Some(free(Revision::from_bytes([9; 16]), token)),
            ..Self::default()
        }
    }

    /// Writes another revision, as another candidate does.
    pub(super) fn rewrite(&mut self) {
        self.others_writes += 1;
        self.lease_mut().revision = Revision::from_bytes([49 + self.others_writes; 16]);
    }

    /// Removes the holder, as a release by another candidate does.
    pub(super) fn vacate(&mut self) {
        self.lease_mut().holder = None;
        self.rewrite();
    }

    pub(super) fn holder_mut(&mut self) -> &mut Holder {
        self.lease_mut().holder.as_mut().expect("held")
    }

    pub(super) fn claim(&self) -> Claim {
        self.lease().holder.as_ref().expect("held").claim
    }

    pub(super) fn lease(&self) -> &Lease {
        self.document.as_ref().expect("a document")
    }

    pub(super) fn lease_mut(&mut self) -> &mut Lease {
        self.document.as_mut().expect("a document")
    }

    pub(super) fn apply(&mut self, by: &Identity, operation: &Operation) -> Outcome {
        if let Operation::Read { .. } = operation {
            return Outcome::Applied(reference::found(self.document.as_ref()));
        }
        let matched = reference::write(&mut self.document, by, WallMillis(0), operation);
        self.history
            .extend(reference::ends(operation).filter(|_| matched).cloned());
        reference::outcome(matched, self.document.as_ref())
    }
}
