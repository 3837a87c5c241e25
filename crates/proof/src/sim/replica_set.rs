//! The store consists of a primary, the state that a majority has, and sometimes a deposed primary
//! that has not noticed the election yet.
//!
//! A write changes the primary immediately, and is acknowledged once a majority has it. A failover
//! keeps the oldest uncommitted writes, or none, and discards the others.

use std::collections::VecDeque;

use super::world::Protocol;
use crate::election::CallId;

struct Entry<P: Protocol> {
    seq: u64,
    after: P::State,
    write: P::Write,
}

pub(super) struct Committed<S, W> {
    pub(super) seq: u64,
    pub(super) before: S,
    pub(super) after: S,
    pub(super) write: W,
}

pub(super) struct Waiting<O> {
    pub(super) seq: u64,
    pub(super) process: usize,
    pub(super) call: CallId,
    pub(super) outcome: O,
}

pub(super) enum Landed<O> {
    Answered(O),
    /// The store answers once a majority has the writes up to this sequence number.
    Waits(u64, O),
    Silence,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    /// Reads with read concern `linearizable`.
    Confirm,
    Write,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Weak {
    /// Reads use read concern `local`.
    pub(super) reads: bool,
    /// The primary alone acknowledges writes.
    pub(super) writes: bool,
}

struct Deposed<S> {
    state: S,
    committed: S,
}

pub(super) struct ReplicaSet<P: Protocol> {
    primary: P::State,
    committed: P::State,
    suffix: VecDeque<Entry<P>>,
    seq: u64,
    deposed: Option<Deposed<P::State>>,
    waiting: Vec<Waiting<P::Outcome>>,
    pub(super) no_primary_until: u64,
    pub(super) no_majority_until: u64,
}

impl<P: Protocol> ReplicaSet<P> {
    pub(super) fn new(empty: P::State) -> Self {
        Self {
            primary: empty.clone(),
            committed: empty,
            suffix: VecDeque::new(),
            seq: 0,
            deposed: None,
            waiting: Vec::new(),
            no_primary_until: 0,
            no_majority_until: 0,
        }
    }

    pub(super) fn primary(&self) -> &P::State {
        &self.primary
    }

    pub(super) fn committed(&self) -> &P::State {
        &self.committed
    }

    pub(super) fn is_deposed_up(&self) -> bool {
        self.deposed.is_some()
    }

    pub(super) fn deposed_learns(&mut self) {
        self.deposed = None;
    }

    /// Applies a call at a member. `read` computes the answer to a read. `apply` computes the
    /// answer to a write, and returns the write if its filter matched. Also returns the sequence
    /// number to replicate, if any.
    pub(super) fn land(
        &mut self,
        (access, weak): (Access, Weak),
        stale: bool,
        read: impl Fn(&P::State) -> P::Outcome,
        apply: impl FnOnce(&mut P::State) -> (P::Outcome, Option<P::Write>),
    ) -> (Landed<P::Outcome>, Option<u64>) {
        if let (true, Some(deposed)) = (stale, &mut self.deposed) {
            let landed = match access {
                Access::Read if weak.reads => Landed::Answered(read(&deposed.state)),
                Access::Read => Landed::Answered(read(&deposed.committed)),
                Access::Confirm => Landed::Silence,
                Access::Write => match (apply(&mut deposed.state), weak.writes) {
                    ((outcome, _), true) => Landed::Answered(outcome),
                    (_, false) => Landed::Silence,
                },
            };
            return (landed, None);
        }
        match access {
            Access::Read if weak.reads => (Landed::Answered(read(&self.primary)), None),
            Access::Read => (Landed::Answered(read(&self.committed)), None),
            Access::Confirm => (Landed::Waits(self.seq, read(&self.primary)), None),
            Access::Write => {
                let (outcome, write) = apply(&mut self.primary);
                let to_replicate = write.map(|write| self.append(write));
                let landed = match weak.writes {
                    true => Landed::Answered(outcome),
                    false => Landed::Waits(self.seq, outcome),
                };
                (landed, to_replicate)
            }
        }
    }

    /// Appends the newest change of the primary to the uncommitted writes, and returns its number.
    fn append(&mut self, write: P::Write) -> u64 {
        self.seq += 1;
        self.suffix.push_back(Entry {
            seq: self.seq,
            after: self.primary.clone(),
            write,
        });
        self.seq
    }

    /// Applies an operator's change to the document, or returns `None` if the document is
    /// unchanged.
    pub(super) fn edit(
        &mut self,
        write: P::Write,
        change: impl FnOnce(&mut P::State),
    ) -> Option<u64>
    where
        P::State: PartialEq,
    {
        let before = self.primary.clone();
        change(&mut self.primary);
        (self.primary != before).then(|| self.append(write))
    }

    pub(super) fn wait(&mut self, seq: u64, process: usize, call: CallId, outcome: P::Outcome) {
        self.waiting.push(Waiting {
            seq,
            process,
            call,
            outcome,
        });
    }

    /// Commits the writes up to `seq` on a majority, except writes that a failover has discarded.
    pub(super) fn commit(&mut self, seq: u64) -> Vec<Committed<P::State, P::Write>> {
        let mut all = Vec::new();
        while self.suffix.front().is_some_and(|entry| entry.seq <= seq) {
            let Some(Entry { seq, after, write }) = self.suffix.pop_front() else {
                break;
            };
            let before = std::mem::replace(&mut self.committed, after.clone());
            all.push(Committed {
                seq,
                before,
                after,
                write,
            });
        }
        all
    }

    pub(super) fn acknowledged(&mut self) -> Vec<Waiting<P::Outcome>> {
        let open = self.suffix.front().map_or(u64::MAX, |entry| entry.seq);
        self.waiting.extract_if(.., |w| w.seq < open).collect()
    }

    pub(super) fn newest(&self) -> u64 {
        self.seq
    }

    pub(super) fn open_writes(&self) -> usize {
        self.suffix.len()
    }

    /// Makes another member primary. The new primary keeps the first `kept` uncommitted writes.
    /// Returns the calls that waited for a majority, and the sequence number that the new primary
    /// must still replicate.
    pub(super) fn fail_over(
        &mut self,
        kept: usize,
        deposed_lives: bool,
    ) -> (Vec<Waiting<P::Outcome>>, Option<u64>) {
        self.deposed = deposed_lives.then(|| Deposed {
            state: self.primary.clone(),
            committed: self.committed.clone(),
        });
        self.suffix.truncate(kept);
        let newest = self.suffix.back();
        self.primary = newest.map_or(&self.committed, |e| &e.after).clone();
        let to_replicate = newest.map(|e| e.seq);
        (std::mem::take(&mut self.waiting), to_replicate)
    }
}
