use super::LockOutcome;
use crate::claim::{SentWrites, WriteState};
use crate::election::{BootTime, CallId, Claim, Revision};

/// Maximum number of revisions in the filter. At the default timings, they cover eight minutes
/// without answers. Forgetting a revision may cost the contender its position, but never adds a
/// second entry.
const MINE_MAX: usize = 128;
/// Number of oldest revisions to keep. After an outage, the store applies the oldest pending join,
/// so the revision of this join must not be forgotten.
const OLDEST_KEPT: usize = 8;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClaimWrites {
    pub(super) claim: Claim,
    pub(super) sent: SentWrites<WritePurpose, MINE_MAX, OLDEST_KEPT>,
    /// Number of calls sent before the claim was first seen. Only replies to later calls can prove
    /// that the claim is gone.
    present: Option<u64>,
    /// True if this contender has forgotten a revision that may be stored.
    pub(super) forgotten: bool,
    pub(super) declared: bool,
}

pub(super) type SentWrite = crate::claim::SentWrite<WritePurpose>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum WritePurpose {
    Join,
    Renew,
    Evict,
    Keep,
}

impl ClaimWrites {
    pub(super) fn new(claim: Claim) -> Self {
        Self {
            claim,
            sent: SentWrites::new(),
            present: None,
            forgotten: false,
            declared: false,
        }
    }

    pub(super) fn mine(&self) -> Vec<Revision> {
        self.sent.revisions().collect()
    }

    pub(super) fn sent_at(&self, revision: Revision) -> Option<BootTime> {
        let carried = |write: &&SentWrite| write.revision == revision;
        let mut sent = self.sent.iter();
        let write = planted!(AnchorPerClaim, sent.next_back(), sent.find(carried));
        write.map(|write| write.sent)
    }

    pub(super) fn may_be_stored(&self) -> bool {
        let mut joins = self.joins();
        let open = joins.any(|state| state != WriteState::Rejected);
        self.present.is_some() || self.forgotten || open
    }

    pub(super) fn is_joining(&self) -> bool {
        self.joins().any(|state| state == WriteState::Awaited)
    }

    fn joins(&self) -> impl Iterator<Item = WriteState> {
        let joins = |write: &&SentWrite| write.purpose == WritePurpose::Join;
        self.sent.iter().filter(joins).map(|write| write.state)
    }

    pub(super) fn is_present(&self) -> bool {
        self.present.is_some()
    }

    pub(super) fn seen_present(&mut self, calls: u64) {
        self.present.get_or_insert(calls);
    }

    /// Returns true if the claim is provably absent when a reply to `call` lacks it.
    pub(super) fn proves_absent(&self, call: CallId) -> bool {
        self.present.is_some_and(|calls| call.0 > calls)
    }

    pub(super) fn send(
        &mut self,
        call: CallId,
        purpose: WritePurpose,
        fresh: Revision,
        now: BootTime,
    ) -> Revision {
        let revision = match self.sent.iter().next_back() {
            Some(last) if planted!(RevisionKept) && purpose == WritePurpose::Renew => last.revision,
            Some(_) | None => fresh,
        };
        self.forgotten |= self.sent.send(call, purpose, revision, now);
        revision
    }

    pub(super) fn record(&mut self, call: CallId, outcome: &LockOutcome) {
        match outcome {
            LockOutcome::Applied(_) | LockOutcome::PrimaryOnly | LockOutcome::Unknown => {
                self.open(call)
            }
            LockOutcome::Rejected => self.sent.settle(call, WriteState::Rejected),
            LockOutcome::Failed => self.sent.remove(call),
        }
    }

    /// Marks a write as possibly applied. Keeps earlier joins, because a late join may add the
    /// entry.
    pub(super) fn open(&mut self, call: CallId) {
        self.sent.settle(call, WriteState::Open);
    }

    /// Overwrites a write's send time. Only for the planted bug `AnchorAtReply`.
    #[cfg(proof)]
    pub(super) fn sent_again(&mut self, call: CallId, at: BootTime) {
        if let Some(write) = self.sent.get_mut(call) {
            write.sent = at;
        }
    }
}

#[cfg(proof)]
impl ClaimWrites {
    /// Adds the state to `form`, but omits store writes whose revision cannot be stored again.
    pub(super) fn compare(&self, form: &mut impl super::Form) {
        let Self {
            claim,
            sent,
            present,
            forgotten,
            declared,
        } = self;
        form.put(claim);
        form.put(present);
        form.put(&(forgotten, declared, self.may_be_stored()));
        let newest = sent.iter().next_back().map(|write| write.revision);
        let live = newest.is_some_and(|revision| form.is_live(revision));
        form.put(&live);
        let live = sent.iter().filter(|write| form.is_live(write.revision));
        let live: Vec<_> = live.collect();
        form.put(&live);
    }
}
