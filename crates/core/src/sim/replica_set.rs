//! The store: a primary, the state that a majority has, and at times a deposed primary that does
//! not know yet.
//!
//! A write changes the primary immediately, and is acknowledged when a majority has it. A failover
//! discards a suffix of the writes that no majority has. Filters and updates come from the
//! election's reference, with which the shipped ones are compared.

use std::collections::{BTreeMap, VecDeque};

use crate::election::mutation::planted;
use crate::election::{
    Found, Identity, Lease, Operation, Outcome, Revision, Token, WallMillis, reference,
};

/// As in `store/mongo/document.rs`.
pub(super) const HISTORY_MAX: usize = 20;
/// Number of states of which a backup is kept.
const BACKUPS_MAX: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Document {
    Missing,
    Lease(Lease),
    Foreign,
}

/// The document, and the part that candidates do not see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) document: Document,
    pub(super) history: usize,
}

/// A write that no majority has yet.
struct Entry {
    seq: u64,
    state: Stored,
    by: Writer,
}

/// The writer of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Writer {
    Process(usize),
    /// An operator, by hand.
    Operator,
}

/// A call that waits for an acknowledgement.
#[derive(Debug, Clone)]
pub(super) struct Waiting {
    pub(super) seq: u64,
    pub(super) process: usize,
    pub(super) call: crate::election::CallId,
    pub(super) outcome: Outcome,
}

/// The result of a call that reached a member.
pub(super) enum Landed {
    /// Answered immediately.
    Answered(Outcome),
    /// Answered when a majority has everything up to this sequence number.
    Waits(u64, Outcome),
    /// Not answered.
    Silence,
}

/// A primary that lost the votes of the others.
struct Deposed {
    state: Stored,
    committed: Stored,
}

/// A write that a majority has.
pub(super) struct Committed {
    pub(super) before: Stored,
    /// The token that every process may know.
    pub(super) token_before: Option<Token>,
    pub(super) after: Stored,
    pub(super) by: Writer,
}

pub(super) struct ReplicaSet {
    primary: Stored,
    committed: Stored,
    suffix: VecDeque<Entry>,
    seq: u64,
    deposed: Option<Deposed>,
    pub(super) waiting: Vec<Waiting>,
    /// Every revision that a majority ever had, with its token and its place in the order of
    /// commits.
    pub(super) durable: BTreeMap<Revision, (Token, u64)>,
    /// The token of the newest lease that a majority had, even while a foreign document is stored
    /// instead.
    token: Option<Token>,
    /// Older states, as contained in backups.
    pub(super) backups: Vec<Stored>,
    pub(super) no_primary_until: u64,
    pub(super) no_majority_until: u64,
    /// Offset of the primary's clock from true time.
    pub(super) clock_skew: i64,
}

impl Stored {
    fn found(&self) -> Found {
        match &self.document {
            Document::Missing => Found::Missing,
            Document::Lease(lease) => Found::Lease(lease.clone()),
            Document::Foreign => Found::Foreign("somebody else's".to_owned()),
        }
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

    /// Applies an operation; returns true if its filter matched.
    fn write(&mut self, by: &Identity, wall: i64, operation: &Operation) -> bool {
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
        let matched = reference::write(&mut lease, by, WallMillis(wall), operation);
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

impl ReplicaSet {
    pub(super) fn new() -> Self {
        let empty = Stored {
            document: Document::Missing,
            history: 0,
        };
        Self {
            primary: empty.clone(),
            committed: empty,
            suffix: VecDeque::new(),
            seq: 0,
            deposed: None,
            waiting: Vec::new(),
            durable: BTreeMap::new(),
            token: None,
            backups: Vec::new(),
            no_primary_until: 0,
            no_majority_until: 0,
            clock_skew: 0,
        }
    }

    pub(super) fn primary(&self) -> &Stored {
        &self.primary
    }

    pub(super) fn is_deposed_up(&self) -> bool {
        self.deposed.is_some()
    }

    /// Applies a call at a member. The answer to a write is the document after it. Returns also the
    /// sequence number to replicate, if any.
    pub(super) fn land(
        &mut self,
        process: usize,
        by: &Identity,
        wall: i64,
        operation: &Operation,
        stale: bool,
    ) -> (Landed, Option<u64>) {
        if let (true, Some(deposed)) = (stale, &mut self.deposed) {
            let landed = match operation {
                Operation::Read { confirm: false } if planted!(LocalReadConcern) => {
                    Landed::Answered(Outcome::Applied(deposed.state.found()))
                }
                Operation::Read { confirm: false } => {
                    Landed::Answered(Outcome::Applied(deposed.committed.found()))
                }
                Operation::Read { confirm: true } => Landed::Silence,
                write => {
                    let matched = deposed.state.write(by, wall, write);
                    match (planted!(WriteConcernOne), matched) {
                        (false, _) => Landed::Silence,
                        (true, true) => Landed::Answered(Outcome::Applied(deposed.state.found())),
                        (true, false) => Landed::Answered(Outcome::Rejected),
                    }
                }
            };
            return (landed, None);
        }
        match operation {
            Operation::Read { confirm: false } if planted!(LocalReadConcern) => (
                Landed::Answered(Outcome::Applied(self.primary.found())),
                None,
            ),
            Operation::Read { confirm: false } => (
                Landed::Answered(Outcome::Applied(self.committed.found())),
                None,
            ),
            Operation::Read { confirm: true } => {
                let outcome = Outcome::Applied(self.primary.found());
                (Landed::Waits(self.seq, outcome), None)
            }
            write => {
                let mut state = self.primary.clone();
                let matched = state.write(by, wall, write);
                if !matched {
                    let landed = match planted!(WriteConcernOne) {
                        false => Landed::Waits(self.seq, Outcome::Rejected),
                        true => Landed::Answered(Outcome::Rejected),
                    };
                    return (landed, None);
                }
                let outcome = Outcome::Applied(state.found());
                let seq = self.append(state, Writer::Process(process));
                let landed = match planted!(WriteConcernOne) {
                    false => Landed::Waits(seq, outcome),
                    true => Landed::Answered(outcome),
                };
                (landed, Some(seq))
            }
        }
    }

    fn append(&mut self, state: Stored, by: Writer) -> u64 {
        self.seq += 1;
        self.primary = state.clone();
        self.suffix.push_back(Entry {
            seq: self.seq,
            state,
            by,
        });
        self.seq
    }

    /// Applies an operator's change of the document; returns `None` if nothing changed.
    pub(super) fn edit(&mut self, change: impl FnOnce(&mut Stored)) -> Option<u64> {
        let mut state = self.primary.clone();
        change(&mut state);
        (state != self.primary).then(|| self.append(state, Writer::Operator))
    }

    /// Commits everything up to `seq` on a majority, unless a failover discarded it.
    pub(super) fn commit(&mut self, seq: u64) -> Vec<Committed> {
        let mut all = Vec::new();
        while self.suffix.front().is_some_and(|entry| entry.seq <= seq) {
            let Some(Entry { state, by, .. }) = self.suffix.pop_front() else {
                break;
            };
            let before = std::mem::replace(&mut self.committed, state.clone());
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
                self.keep_backup(&state);
            }
            all.push(Committed {
                before,
                token_before,
                after: state,
                by,
            });
        }
        all
    }

    /// Keeps a sample of states of every age.
    fn keep_backup(&mut self, state: &Stored) {
        if self.backups.len() < BACKUPS_MAX {
            self.backups.push(state.clone());
        } else {
            let place = (self.seq.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
            self.backups[place % BACKUPS_MAX] = state.clone();
        }
    }

    /// Returns the place of a document in the order of commits, `None` if no majority ever had it,
    /// and the newest place.
    pub(super) fn order(&self, revision: Revision) -> (Option<u64>, u64) {
        let order = self.durable.get(&revision).map(|(_, order)| *order);
        (order, self.durable.len() as u64)
    }

    /// Returns the answers that are due now.
    pub(super) fn acknowledged(&mut self) -> Vec<Waiting> {
        let open = self.suffix.front().map_or(u64::MAX, |entry| entry.seq);
        self.waiting.extract_if(.., |w| w.seq < open).collect()
    }

    /// Makes another member primary, with the first `kept` of the writes that no majority had.
    /// Returns the calls that wait in vain, and the sequence number still to replicate.
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
        self.primary = newest.map_or(&self.committed, |e| &e.state).clone();
        let to_replicate = newest.map(|e| e.seq);
        (std::mem::take(&mut self.waiting), to_replicate)
    }

    pub(super) fn open_writes(&self) -> usize {
        self.suffix.len()
    }

    pub(super) fn deposed_learns(&mut self) {
        self.deposed = None;
    }
}
