//! The store as the protocol assumes it: one primary, a state that a majority
//! has, and nothing lost of that.

use crate::election::{
    Acquisition, Claim, Found, Holder, Identity, Lease, Operation, Outcome, Revision, Token,
    WallMillis,
};

/// One lease, as the primary and as a majority have it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Store {
    /// What the primary has: writes are judged by it.
    pub primary: Option<Lease>,
    /// What a majority has: reads show it, and a new primary begins with it.
    pub committed: Option<Lease>,
    /// What a majority had before: a deposed primary may still show it.
    pub previous: Option<Lease>,
}

impl Store {
    /// A majority has all that the primary has.
    pub fn commit(&mut self, remember: bool) {
        if self.committed != self.primary {
            let before = std::mem::replace(&mut self.committed, self.primary.clone());
            self.previous = before.filter(|_| remember);
        }
    }

    /// Whether some write is not with a majority.
    pub fn lags(&self) -> bool {
        self.primary != self.committed
    }

    /// The stored lease with this revision, if there is one.
    pub fn with_revision(&self, revision: Revision) -> Option<&Lease> {
        let stored = [&self.committed, &self.primary];
        stored
            .into_iter()
            .flatten()
            .find(|lease| lease.revision == revision)
    }

    /// Performs `operation` on the primary. A write is not with a majority yet.
    pub fn perform(&mut self, by: &Identity, operation: &Operation) -> Outcome {
        let applied = match operation {
            Operation::Read { .. } => return Outcome::Applied(found(self.committed.as_ref())),
            Operation::Create { revision, token } => {
                let absent = self.primary.is_none();
                if absent {
                    self.primary = Some(free(*revision, *token));
                }
                absent
            }
            Operation::Acquire(acquisition) => self.acquire(by, acquisition, true),
            Operation::TakeOver {
                acquisition,
                ended: _,
            } => self.acquire(by, acquisition, false),
            Operation::Renew {
                claim,
                revision,
                chain,
            } => self.change(*claim, chain, |lease| lease.revision = *revision),
            Operation::Release {
                claim,
                revision,
                chain,
                ended: _,
                reserved_for,
            } => self.change(*claim, chain, |lease| {
                lease.revision = *revision;
                lease.holder = None;
                lease.reserved_for.clone_from(reserved_for);
            }),
        };
        if applied {
            Outcome::Applied(found(self.primary.as_ref()))
        } else {
            Outcome::Rejected
        }
    }

    fn acquire(&mut self, by: &Identity, new: &Acquisition, free: bool) -> bool {
        let matching = |lease: &&mut Lease| {
            lease.revision == new.expected && !lease.paused && (!free || lease.holder.is_none())
        };
        let Some(lease) = self.primary.as_mut().filter(matching) else {
            return false;
        };
        lease.token = new.token;
        lease.revision = new.revision;
        lease.request = None;
        lease.reserved_for = None;
        lease.holder = Some(Holder {
            identity: by.clone(),
            session: new.session,
            claim: new.claim,
            acquired_at: WallMillis(0),
            lease_duration: new.lease_duration,
        });
        true
    }

    fn change(&mut self, claim: Claim, chain: &[Revision], by: impl FnOnce(&mut Lease)) -> bool {
        let matching = |lease: &&mut Lease| {
            let holder = lease.holder.as_ref();
            holder.is_some_and(|h| h.claim == claim) && chain.contains(&lease.revision)
        };
        let Some(lease) = self.primary.as_mut().filter(matching) else {
            return false;
        };
        by(lease);
        true
    }
}

/// What a read shows of `lease`.
pub fn found(lease: Option<&Lease>) -> Found {
    lease.map_or(Found::Missing, |lease| Found::Lease(lease.clone()))
}

fn free(revision: Revision, token: Token) -> Lease {
    Lease {
        token,
        revision,
        holder: None,
        paused: false,
        request: None,
        reserved_for: None,
    }
}
