//! One claim on a lock, and every write that carried a revision of it.
//!
//! It never reads the document: whoever holds it tells it what became of the
//! writes that it sent.

use super::operation::Writer;
use crate::election::{BootTime, CallId, Claim, Randomness, Revision};

/// Revisions that are kept for the filter, 2 kB of it. A waiter sends one in
/// `operation_timeout` and a retry while none is answered: at the defaults 128
/// span eight minutes without a majority, at a lease duration of 4 s a minute
/// and a half. A forgotten one can cost the place and never doubles it.
const MINE_MAX: usize = 128;
/// Of these the oldest: when a store that lost its majority goes on, of all
/// joins that wait there the first one lands, and the others do not match.
const OLDEST_KEPT: usize = 8;

/// A claim, from its join on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stake {
    pub(super) claim: Claim,
    /// Oldest first.
    attempts: Vec<Attempt>,
    /// How many calls had been sent when it was first known to be in the
    /// document: the reply to a later one proves it absent.
    present: Option<u64>,
    /// Writes have been forgotten whose revision may be stored.
    pub(super) forgotten: bool,
}

/// A write that carried a revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Attempt {
    pub(super) call: CallId,
    pub(super) kind: Kind,
    pub(super) revision: Revision,
    pub(super) sent: BootTime,
    fate: Fate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Nobody has answered.
    Awaited,
    /// It was applied, or may have been, or may land later.
    Open,
    /// Its filter did not match. Its revision is kept all the same: what a
    /// network delivers twice could match the second time.
    Rejected,
}

/// What a write was for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Join,
    Renew,
    Sweep,
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

    /// Every revision that may be stored.
    pub(super) fn mine(&self) -> Vec<Revision> {
        self.attempts.iter().map(|a| a.revision).collect()
    }

    /// Whether this claim sent `revision` and it may be stored.
    pub(super) fn sent(&self, revision: Revision) -> bool {
        self.attempts.iter().any(|a| a.revision == revision)
    }

    /// Whether an entry of this claim may be in the document, now or later.
    pub(super) fn may_be_stored(&self) -> bool {
        let open = |a: &Attempt| a.kind == Kind::Join && a.fate != Fate::Rejected;
        self.present.is_some() || self.forgotten || self.attempts.iter().any(open)
    }

    /// Whether it is known to be in the document.
    pub(super) fn is_present(&self) -> bool {
        self.present.is_some()
    }

    /// A reply showed it in the document, when `calls` had been sent.
    pub(super) fn seen_present(&mut self, calls: u64) {
        self.present.get_or_insert(calls);
    }

    /// Whether the reply to this call proves it absent if it does not show it.
    pub(super) fn proves_absent(&self, call: CallId) -> bool {
        let any = planted!(OldReplyProvesAbsence);
        self.present.is_some_and(|calls| call.0 > calls || any)
    }

    /// Notes a write that is sent now.
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

    /// Writes that nobody has answered.
    pub(super) fn in_flight(&self) -> usize {
        let awaited = |a: &&Attempt| a.fate == Fate::Awaited;
        self.attempts.iter().filter(awaited).count()
    }

    /// Whether a join is under way.
    pub(super) fn is_joining(&self) -> bool {
        let joins = |a: &Attempt| a.kind == Kind::Join && a.fate == Fate::Awaited;
        self.attempts.iter().any(joins)
    }

    /// Whether no other write of this claim was sent after `call`.
    pub(super) fn is_newest(&self, call: CallId) -> bool {
        self.attempts.last().is_some_and(|a| a.call == call)
    }

    /// This write was applied, or its fate is not known. What was sent before
    /// it is kept: an entry that was swept comes back by a join that lands late.
    pub(super) fn open(&mut self, call: CallId) {
        self.settle(call, Fate::Open);
    }

    /// This write's filter did not match.
    pub(super) fn rejected(&mut self, call: CallId) {
        self.settle(call, Fate::Rejected);
    }

    /// This write was provably never sent.
    pub(super) fn failed(&mut self, call: CallId) {
        self.attempts.retain(|a| a.call != call);
    }

    fn settle(&mut self, call: CallId, fate: Fate) {
        if let Some(attempt) = self.attempts.iter_mut().find(|a| a.call == call) {
            attempt.fate = fate;
        }
    }

    /// The writer as a sweep names it.
    pub(super) fn writer(&self, revision: Revision) -> Writer {
        Writer {
            claim: self.claim,
            revision,
        }
    }
}
