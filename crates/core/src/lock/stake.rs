//! One claim on a lock, and every write that carried a revision of it.
//!
//! A stake does not read the document. Its owner reports the outcomes of the writes to it.

use super::operation::Writer;
use crate::election::{BootTime, CallId, Claim, Randomness, Revision};

/// Maximum number of revisions kept for the filter, 2 kB of it. While none is answered, a waiter
/// sends one per `operation_timeout` and retry interval. At the defaults 128 of them span eight
/// minutes without a majority; at a lease duration of 4 s, a minute and a half. A forgotten
/// revision can cost the place in the queue but never leads to a second one.
const MINE_MAX: usize = 128;
/// Number of oldest revisions among them that are not dropped. When a store that lost its majority
/// recovers, the first of the pending joins lands and the others do not match.
const OLDEST_KEPT: usize = 8;

/// A claim from its join on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stake {
    pub(super) claim: Claim,
    /// Oldest first.
    pub(super) attempts: Vec<Attempt>,
    /// Number of calls sent when the claim was first known to be in the document. The reply to a
    /// later call can prove it absent.
    pub(super) present: Option<u64>,
    /// True if writes were forgotten whose revision may be stored.
    pub(super) forgotten: bool,
}

/// A write that carried a revision of the claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Attempt {
    pub(super) call: CallId,
    pub(super) kind: Kind,
    pub(super) revision: Revision,
    pub(super) sent: BootTime,
    fate: Fate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Fate {
    /// Not answered yet.
    Awaited,
    /// Applied, possibly applied, or possibly applied later.
    Open,
    /// The filter did not match. The revision is kept nevertheless, because a write that the
    /// network delivers twice could match the second time.
    Rejected,
}

/// Purpose of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Join,
    Renew,
    Evict,
    Keep,
}

impl Stake {
    pub(super) fn new(random: &mut dyn Randomness) -> Self {
        Self {
            claim: Claim::random(random),
            attempts: Vec::new(),
            present: None,
            forgotten: false,
        }
    }

    /// Returns every revision that may be stored.
    pub(super) fn mine(&self) -> Vec<Revision> {
        self.attempts.iter().map(|a| a.revision).collect()
    }

    /// Returns true if this claim sent `revision` and it may be stored.
    pub(super) fn sent(&self, revision: Revision) -> bool {
        self.attempts.iter().any(|a| a.revision == revision)
    }

    /// Returns when the write that carried `revision` was sent; `None` if it is no longer known.
    pub(super) fn sent_at(&self, revision: Revision) -> Option<BootTime> {
        let carried = |a: &&Attempt| a.revision == revision;
        let attempt = match planted!(AnchorPerClaim) {
            true => self.attempts.last(),
            false => self.attempts.iter().find(carried),
        };
        attempt.map(|attempt| attempt.sent)
    }

    /// Returns true if an entry of this claim may be in the document, now or later.
    pub(super) fn may_be_stored(&self) -> bool {
        let open = |a: &Attempt| a.kind == Kind::Join && a.fate != Fate::Rejected;
        self.present.is_some() || self.forgotten || self.attempts.iter().any(open)
    }

    /// Returns true if the claim is known to be in the document.
    pub(super) fn is_present(&self) -> bool {
        self.present.is_some()
    }

    /// Records that a reply showed the claim in the document when `calls` calls had been sent.
    pub(super) fn seen_present(&mut self, calls: u64) {
        self.present.get_or_insert(calls);
    }

    /// Returns true if a reply to `call` that does not show the claim proves it absent.
    pub(super) fn proves_absent(&self, call: CallId) -> bool {
        self.present.is_some_and(|calls| call.0 > calls)
    }

    /// Records a write that is sent now.
    pub(super) fn send(&mut self, call: CallId, kind: Kind, revision: Revision, now: BootTime) {
        if self.attempts.len() == MINE_MAX {
            self.attempts.remove(OLDEST_KEPT);
            self.forgotten = true;
        }
        self.attempts.push(Attempt {
            call,
            kind,
            revision,
            sent: now,
            fate: Fate::Awaited,
        });
    }

    pub(super) fn attempt(&self, call: CallId) -> Option<Attempt> {
        self.attempts.iter().find(|a| a.call == call).copied()
    }

    /// Returns the number of unanswered writes.
    pub(super) fn in_flight(&self) -> usize {
        let awaited = |a: &&Attempt| a.fate == Fate::Awaited;
        self.attempts.iter().filter(awaited).count()
    }

    /// Returns true if a join is in flight.
    pub(super) fn is_joining(&self) -> bool {
        let joins = |a: &Attempt| a.kind == Kind::Join && a.fate == Fate::Awaited;
        self.attempts.iter().any(joins)
    }

    /// Returns true if no other write of this claim was sent after `call`.
    pub(super) fn is_newest(&self, call: CallId) -> bool {
        self.attempts.last().is_some_and(|a| a.call == call)
    }

    /// Marks a write as applied or of unknown outcome. Earlier writes are kept, because a join that
    /// lands late can bring an evicted entry back.
    pub(super) fn open(&mut self, call: CallId) {
        self.settle(call, Fate::Open);
    }

    /// Marks a write whose filter did not match.
    pub(super) fn rejected(&mut self, call: CallId) {
        self.settle(call, Fate::Rejected);
    }

    /// Overwrites a write's send time. Only for the planted bug `AnchorAtReply`.
    #[cfg(proof)]
    pub(super) fn sent_again(&mut self, call: CallId, at: BootTime) {
        if let Some(attempt) = self.attempts.iter_mut().find(|a| a.call == call) {
            attempt.sent = at;
        }
    }

    /// Removes a write that was provably never sent.
    pub(super) fn failed(&mut self, call: CallId) {
        self.attempts.retain(|a| a.call != call);
    }

    fn settle(&mut self, call: CallId, fate: Fate) {
        if let Some(attempt) = self.attempts.iter_mut().find(|a| a.call == call) {
            attempt.fate = fate;
        }
    }

    /// Returns this claim as the writer of a sweep.
    pub(super) fn writer(&self, revision: Revision) -> Writer {
        Writer {
            claim: self.claim,
            revision,
        }
    }
}
