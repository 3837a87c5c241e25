//! The store: a primary, the state that a majority has, and at times a deposed primary that is not
//! aware of it yet.
//!
//! A write changes the primary immediately and is acknowledged when a majority has it. A failover
//! discards a suffix of the writes that no majority has.

use std::collections::VecDeque;

use super::broken;
use crate::election::{CallId, Claim};
use crate::lock::mutation::planted;
use crate::lock::reference::By;
use crate::lock::{Found, Operation, Outcome};

/// A write that no majority has yet.
struct Entry {
    seq: u64,
    after: Found,
    by: usize,
    operation: Operation,
    granted: Vec<Claim>,
}

/// A write that has reached a majority.
pub(super) struct Committed {
    pub(super) before: Found,
    pub(super) after: Found,
    pub(super) by: usize,
    pub(super) operation: Operation,
    pub(super) granted: Vec<Claim>,
}

/// A call that waits for an acknowledgement.
pub(super) struct Waiting {
    seq: u64,
    pub(super) process: usize,
    pub(super) call: CallId,
    pub(super) outcome: Outcome,
}

/// Result of a call that reached a member.
pub(super) enum Landed {
    /// Answered immediately.
    Answered(Outcome),
    /// Answered when a majority has everything up to this write.
    Waits(u64, Outcome),
    /// Not answered.
    Silence,
}

/// A primary that lost the election to another member.
struct Deposed {
    state: Found,
    committed: Found,
}

pub(super) struct Store {
    primary: Found,
    pub(super) committed: Found,
    suffix: VecDeque<Entry>,
    seq: u64,
    deposed: Option<Deposed>,
    waiting: Vec<Waiting>,
    pub(super) no_primary_until: u64,
    pub(super) no_majority_until: u64,
}

impl Store {
    pub(super) fn new() -> Self {
        Self {
            primary: Found::Missing,
            committed: Found::Missing,
            suffix: VecDeque::new(),
            seq: 0,
            deposed: None,
            waiting: Vec::new(),
            no_primary_until: 0,
            no_majority_until: 0,
        }
    }

    pub(super) fn is_deposed_up(&self) -> bool {
        self.deposed.is_some()
    }

    pub(super) fn deposed_learns(&mut self) {
        self.deposed = None;
    }

    /// Applies a call that reaches a member. Returns its result, and the write to replicate, if
    /// any.
    pub(super) fn land(
        &mut self,
        process: usize,
        by: By<'_>,
        operation: &Operation,
        stale: bool,
    ) -> (Landed, Option<u64>) {
        if let (true, Some(deposed)) = (stale, &mut self.deposed) {
            let landed = match operation {
                Operation::Read { confirm: false } => {
                    Landed::Answered(Outcome::Applied(deposed.committed.clone()))
                }
                Operation::Read { confirm: true } => Landed::Silence,
                write => {
                    let performed = broken::apply(&mut deposed.state, by, write);
                    match planted!(WriteConcernOne) {
                        true => Landed::Answered(performed.outcome),
                        false => Landed::Silence,
                    }
                }
            };
            return (landed, None);
        }
        match operation {
            Operation::Read { confirm: false } => {
                let outcome = Outcome::Applied(self.committed.clone());
                (Landed::Answered(outcome), None)
            }
            Operation::Read { confirm: true } => {
                let outcome = Outcome::Applied(self.primary.clone());
                (Landed::Waits(self.seq, outcome), None)
            }
            write => self.write(process, by, write),
        }
    }

    fn write(
        &mut self,
        process: usize,
        by: By<'_>,
        operation: &Operation,
    ) -> (Landed, Option<u64>) {
        let performed = broken::apply(&mut self.primary, by, operation);
        if performed.outcome == Outcome::Rejected {
            return (Landed::Waits(self.seq, Outcome::Rejected), None);
        }
        self.seq += 1;
        self.suffix.push_back(Entry {
            seq: self.seq,
            after: self.primary.clone(),
            by: process,
            operation: operation.clone(),
            granted: performed.granted,
        });
        let landed = match planted!(WriteConcernOne) {
            true => Landed::Answered(performed.outcome),
            false => Landed::Waits(self.seq, performed.outcome),
        };
        (landed, Some(self.seq))
    }

    pub(super) fn wait(&mut self, seq: u64, process: usize, call: CallId, outcome: Outcome) {
        self.waiting.push(Waiting {
            seq,
            process,
            call,
            outcome,
        });
    }

    /// Commits everything up to `seq` to a majority, except what a failover discarded.
    pub(super) fn commit(&mut self, seq: u64) -> Vec<Committed> {
        let mut all = Vec::new();
        while self.suffix.front().is_some_and(|entry| entry.seq <= seq) {
            let Some(entry) = self.suffix.pop_front() else {
                break;
            };
            let Entry {
                seq: _,
                after,
                by,
                operation,
                granted,
            } = entry;
            let before = std::mem::replace(&mut self.committed, after.clone());
            all.push(Committed {
                before,
                after,
                by,
                operation,
                granted,
            });
        }
        all
    }

    /// Returns the answers that are due now.
    pub(super) fn acknowledged(&mut self) -> Vec<Waiting> {
        let open = self.suffix.front().map_or(u64::MAX, |entry| entry.seq);
        self.waiting.extract_if(.., |w| w.seq < open).collect()
    }

    /// Returns the number of the newest write.
    pub(super) fn newest(&self) -> u64 {
        self.seq
    }

    pub(super) fn open_writes(&self) -> usize {
        self.suffix.len()
    }

    /// Makes another member primary, with the first `kept` of the writes that no majority had.
    /// Returns the calls that wait in vain, and the newest write that is still to be replicated.
    pub(super) fn fail_over(
        &mut self,
        kept: usize,
        deposed_lives: bool,
    ) -> (Vec<Waiting>, Option<u64>) {
        self.deposed = deposed_lives.then(|| Deposed {
            state: self.primary.clone(),
            committed: self.committed.clone(),
        });
        self.suffix.truncate(kept);
        let newest = self.suffix.back();
        self.primary = newest.map_or(&self.committed, |entry| &entry.after).clone();
        let to_replicate = newest.map(|entry| entry.seq);
        (std::mem::take(&mut self.waiting), to_replicate)
    }
}
