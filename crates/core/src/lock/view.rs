//! The document as shown by replies, and checks for outdated replies.

use std::time::Duration;

use super::{
    AHEAD_SHOWN_MAX, Ahead, Entry, FoundLock, LockDocument, LockOutcome, Observations, Options,
    WentBack,
};
use crate::claim::{Rollback, Watermarks};
use crate::election::{BootTime, CallId, Claim, Token};

#[derive(Debug, Clone)]
pub(super) struct LockView {
    pub(super) lock: Option<LockDocument>,
    /// Newest call whose document was recorded. Replies to earlier calls contain nothing new.
    pub(super) call: u64,
    pub(super) marks: Watermarks,
    /// Earliest instant to join after the last loss of acknowledged writes, if any.
    pub(super) joins_from: Option<BootTime>,
    /// Highest token seen, apart from grants of this claim. A grant must have a higher token,
    /// because a restored document may reuse tokens.
    pub(super) token_floor: Token,
    pub(super) observations: Observations,
    pub(super) store_reached: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryPlace<'a> {
    Absent,
    Queue(usize, &'a Entry),
    Holder(&'a Entry),
}

impl<'a> EntryPlace<'a> {
    pub(super) fn of(claim: Claim, lock: &'a LockDocument) -> Self {
        if let Some(entry) = lock.holders.iter().find(|entry| entry.claim == claim) {
            return Self::Holder(entry);
        }
        let mut queue = lock.queue.iter().enumerate();
        let queued = queue.find(|(_, entry)| entry.claim == claim);
        queued.map_or(Self::Absent, |(p, entry)| Self::Queue(p, entry))
    }

    pub(super) fn entry(self) -> Option<&'a Entry> {
        match self {
            Self::Absent => None,
            Self::Queue(_, entry) | Self::Holder(entry) => Some(entry),
        }
    }
}

impl LockView {
    pub(super) fn new(options: &Options) -> Self {
        let token = options.token_remembered;
        let mut marks = Watermarks::new(token, options.timings.lease_duration());
        if let Some(went_back) = options.went_back {
            marks.document_token = went_back.found;
        }
        Self {
            lock: None,
            call: 0,
            marks,
            joins_from: options.went_back.map(|went_back| went_back.joins_from),
            token_floor: token,
            observations: options.observations.clone(),
            store_reached: false,
        }
    }

    /// Returns the loss that later contenders should remember, if any.
    pub(super) fn went_back(&self) -> Option<WentBack> {
        let found = self.marks.document_token;
        let joins_from = self.joins_from?;
        let lower = found < Some(self.marks.token_highest);
        lower.then_some(WentBack { found, joins_from })
    }

    pub(super) fn rollback(&self, found: &FoundLock) -> Option<Rollback> {
        match found {
            FoundLock::Lock(lock) => self.marks.rollback(Some(lock.token)),
            FoundLock::Missing => self.marks.rollback(None),
            FoundLock::Foreign(_) => None,
        }
    }

    pub(super) fn token(&self) -> Token {
        self.marks.document_token.unwrap_or_default()
    }

    /// Returns true if no other claim can have had the token, so that a grant with this token is
    /// valid.
    pub(super) fn is_unused(&self, token: Token) -> bool {
        token > self.token_floor
    }

    /// Records the facts that any reply proves. Even an old reply shows that its token was used.
    pub(super) fn note_reply(&mut self, outcome: &LockOutcome, mine: Claim) {
        self.store_reached |= matches!(outcome, LockOutcome::Applied(_) | LockOutcome::Rejected);
        let LockOutcome::Applied(FoundLock::Lock(lock)) = outcome else {
            return;
        };
        let held = lock.holders.iter().filter_map(|entry| entry.token).max();
        let token = lock.token.max(held.unwrap_or_default());
        // A lower token in a later reply comes from a deposed primary or a rolled-back store.
        self.marks.note_document(lock.token);
        self.marks.note_used(token);
        if !lock.holders.iter().any(|entry| entry.claim == mine) {
            self.token_floor = self.token_floor.max(token);
        }
        let entries = lock.holders.iter().chain(&lock.queue);
        self.marks
            .note_declared(entries.map(|entry| entry.lease_duration));
    }

    pub(super) fn is_news(&self, call: CallId) -> bool {
        call.0 > self.call
    }

    pub(super) fn roll_back(&mut self, found: Option<Token>, now: BootTime) -> (Token, Duration) {
        let seen = self.token();
        self.joins_from = Some(now + self.marks.lease_longest);
        self.marks.document_token = found;
        self.lock = None;
        self.observations = Observations::default();
        (seen, self.marks.lease_longest)
    }

    /// Returns true if, after a manual edit, `claim` heads the queue and the lock has free
    /// capacity.
    pub(super) fn is_overlooked(&self, claim: Claim) -> bool {
        self.lock.as_ref().is_some_and(|lock| {
            let mut queue = lock.queue.iter();
            let head = queue.next().filter(|head| head.claim == claim);
            head.is_some_and(|head| lock.has_room(head.mode, lock.slots))
        })
    }

    pub(super) fn ahead(&self, claim: Claim) -> (usize, usize, Vec<Ahead>) {
        let Some(lock) = &self.lock else {
            return (0, 0, Vec::new());
        };
        let other = |entry: &&Entry| entry.claim != claim;
        let holders: Vec<_> = lock.holders.iter().filter(other).collect();
        let queue: Vec<_> = lock.queue.iter().take_while(other).collect();
        let shown = [(&holders, true), (&queue, false)].map(|(entries, holds)| {
            let shown = entries.iter().take(AHEAD_SHOWN_MAX);
            shown.map(move |entry| Ahead {
                identity: entry.owner.identity.clone(),
                mode: entry.mode,
                token: entry.token,
                holds,
                work_done: entry.work_done,
                silent: entry.is_silent(lock.store_now),
                since: entry.owner.acquired_at,
            })
        });
        let shown = shown.into_iter().flatten().collect();
        (holders.len(), queue.len(), shown)
    }
}

#[cfg(proof)]
impl LockView {
    pub(super) fn compare(&self, form: &mut impl super::Form) {
        let Self {
            // The document is omitted, because decisions are made when it is recorded.
            lock: _,
            call,
            marks,
            // Concerns only later contenders.
            joins_from: _,
            token_floor,
            observations,
            store_reached: _,
        } = self;
        form.put(call);
        form.put(&(marks, token_floor));
        observations.compare(form);
    }
}
