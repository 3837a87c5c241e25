//! The stored document and its committed states. The reference implementation applies writes. Tests
//! compare the reference implementation with the shipped filters and updates.

use std::collections::BTreeMap;

use super::broken;
use crate::election::mutation::planted;
use crate::election::{
    Claim, Found, Identity, Lease, Operation, Outcome, Revision, Token, WallMillis,
};
use crate::proof::sim::replica_set;
use crate::reference::election as reference;

/// Must equal the value in `store/mongo/document.rs`.
pub(super) const HISTORY_MAX: usize = 20;
const BACKUPS_MAX: usize = 64;

pub(super) type Committed = replica_set::Committed<Stored, Writer>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Document {
    Missing,
    Lease(Lease),
    Foreign,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) document: Document,
    pub(super) history: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Writer {
    Process(usize),
    Operator,
}

impl Stored {
    pub(super) const EMPTY: Self = Self {
        document: Document::Missing,
        history: 0,
    };

    /// Returns the reply that shows this document.
    pub(super) fn shown(&self) -> Outcome {
        Outcome::Applied(match &self.document {
            Document::Missing => Found::Missing,
            Document::Lease(lease) => Found::Lease(lease.clone()),
            Document::Foreign => Found::Foreign("somebody else's".into()),
        })
    }

    pub(super) fn lease(&self) -> Option<&Lease> {
        match &self.document {
            Document::Lease(lease) => Some(lease),
            Document::Missing | Document::Foreign => None,
        }
    }

    pub(super) fn lease_mut(&mut self) -> Option<&mut Lease> {
        match &mut self.document {
            Document::Lease(lease) => Some(lease),
            Document::Missing | Document::Foreign => None,
        }
    }

    pub(super) fn write(&mut self, by: &Identity, wall: i64, operation: &Operation) -> bool {
        if planted!(ForeignOverwritten)
            && matches!(operation, Operation::Create { .. })
            && self.document == Document::Foreign
        {
            self.document = Document::Missing;
        }
        let mut lease = match std::mem::replace(&mut self.document, Document::Missing) {
            Document::Missing => None,
            Document::Lease(lease) => Some(lease),
            Document::Foreign => {
                self.document = Document::Foreign;
                return false;
            }
        };
        let matched = broken::write(&mut lease, by, WallMillis(wall), operation);
        self.document = lease.map_or(Document::Missing, Document::Lease);
        match (matched, operation) {
            (true, Operation::Create { .. }) => self.history = 0,
            (true, other) => {
                let entries = usize::from(reference::ends(other).is_some());
                let trimmed = if planted!(HistoryUnbounded) {
                    usize::MAX
                } else {
                    HISTORY_MAX
                };
                self.history = (self.history + entries).min(trimmed);
            }
            (false, _) => {}
        }
        matched
    }
}

pub(super) fn claim_of(lease: &Lease) -> Option<Claim> {
    lease.holder.as_ref().map(|holder| holder.claim)
}

#[derive(Default)]
pub(super) struct Archive {
    /// Every revision that a majority ever had, with its token and its position in the order of
    /// commits.
    pub(super) durable: BTreeMap<Revision, (Token, u64)>,
    /// The token of the newest lease that a majority had. A foreign document does not change this
    /// token.
    token: Option<Token>,
    pub(super) backups: Vec<Stored>,
}

impl Archive {
    /// Records a committed state. `newest` is the sequence number of the newest write. Returns the
    /// token of the previous state, which any process may already have seen.
    pub(super) fn record(&mut self, state: &Stored, newest: u64) -> Option<Token> {
        let token_before = self.token;
        self.token = match &state.document {
            Document::Lease(lease) => Some(lease.token),
            Document::Missing => None,
            Document::Foreign => token_before,
        };
        if let Some(lease) = state.lease() {
            let next = self.durable.len() as u64 + 1;
            let entry = self.durable.entry(lease.revision);
            entry.or_insert((lease.token, next));
        }
        if state.document != Document::Foreign {
            self.keep_backup(state, newest);
        }
        token_before
    }

    fn keep_backup(&mut self, state: &Stored, newest: u64) {
        if self.backups.len() < BACKUPS_MAX {
            self.backups.push(state.clone());
        } else {
            let place = (newest.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
            self.backups[place % BACKUPS_MAX] = state.clone();
        }
    }

    /// Returns the position of a document in the order of commits, or `None` if no majority ever
    /// had the document. Also returns the newest position.
    pub(super) fn order(&self, revision: Revision) -> (Option<u64>, u64) {
        let order = self.durable.get(&revision).map(|(_, order)| *order);
        (order, self.durable.len() as u64)
    }
}
