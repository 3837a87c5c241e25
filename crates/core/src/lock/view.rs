//! The document as shown by replies, and checks for outdated replies.
//!
//! The entries of others are judged in `observations.rs`.

use std::time::Duration;

use super::document::{Entry, LockDocument};
use super::observations::Observations;
use super::status::{AHEAD_SHOWN_MAX, Ahead};
use crate::election::BootTime;
use crate::election::{CallId, Claim, Identity, Token};

#[derive(Debug, Clone)]
pub(super) struct View {
    /// Newest document shown, if any.
    pub(super) lock: Option<LockDocument>,
    /// Newest call whose document was recorded. Replies to earlier calls show nothing new.
    pub(super) call: u64,
    /// Lower bound of the document's token.
    pub(super) token: Token,
    /// Highest token ever seen. The next token is above it.
    pub(super) token_highest: Token,
    /// Highest token known from anything but a grant of the current claim. Only a grant with a
    /// higher token counts, because a restored document may reuse a token.
    pub(super) token_floor: Token,
    /// True if a document is known to exist.
    pub(super) exists: bool,
    pub(super) lease_longest: Duration,
    pub(super) observations: Observations,
}

/// Place of a claim in a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place<'a> {
    Absent,
    Queue(usize, &'a Entry),
    Holder(&'a Entry),
}

impl<'a> Place<'a> {
    pub(super) fn of(claim: Claim, lock: &'a LockDocument) -> Self {
        let mine = |entry: &&Entry| entry.claim == claim;
        if let Some(entry) = lock.holders.iter().find(mine) {
            return Self::Holder(entry);
        }
        let position = lock.queue.iter().position(|entry| entry.claim == claim);
        position.map_or(Self::Absent, |p| Self::Queue(p, &lock.queue[p]))
    }

    pub(super) fn entry(self) -> Option<&'a Entry> {
        match self {
            Self::Absent => None,
            Self::Queue(_, entry) | Self::Holder(entry) => Some(entry),
        }
    }
}

impl View {
    pub(super) fn new(token: Token, lease_duration: Duration, observations: Observations) -> Self {
        Self {
            lock: None,
            call: 0,
            token,
            token_highest: token,
            token_floor: token,
            exists: token > Token::ZERO,
            lease_longest: lease_duration,
            observations,
        }
    }

    /// Records the tokens and lease durations in the document of any reply. Even an old reply
    /// counts, because its token was used.
    pub(super) fn note_seen(&mut self, lock: &LockDocument, mine: Claim) {
        let held = lock.holders.iter().filter_map(|entry| entry.token).max();
        let token = lock.token.max(held.unwrap_or_default());
        // A later reply with a lower token comes from a deposed primary, or the store was rolled
        // back.
        self.token = self.token.max(lock.token);
        self.token_highest = self.token_highest.max(token);
        if !lock.holders.iter().any(|entry| entry.claim == mine) {
            self.token_floor = self.token_floor.max(token);
        }
        self.exists = true;
        let declared = |entry: &Entry| entry.lease_duration.valid();
        let entries = lock.holders.iter().chain(&lock.queue);
        let longest = entries.filter_map(declared).max();
        self.lease_longest = self.lease_longest.max(longest.unwrap_or_default());
    }

    /// Continues with another claim, whose token must exceed every token known so far.
    pub(super) fn claims_anew(&mut self) {
        self.token_floor = self.token_highest;
    }

    /// Returns true if a reply to `call` can be newer than the recorded document.
    pub(super) fn is_news(&self, call: CallId) -> bool {
        call.0 > self.call
    }

    /// Records the document in the reply to `call`. Returns the owners of entries with a duration
    /// outside the valid range, as `Observations::note` does.
    pub(super) fn take(
        &mut self,
        call: CallId,
        lock: LockDocument,
        mine: Claim,
        now: BootTime,
    ) -> Vec<(Identity, i64)> {
        self.call = call.0;
        let absurd = self.observations.note(&lock, Some(mine), now);
        self.lock = Some(lock);
        absurd
    }

    /// Resets the view after the document lost acknowledged writes. `found` is its current token.
    pub(super) fn went_back(&mut self, found: Option<Token>) {
        self.lock = None;
        self.token = found.unwrap_or(Token::ZERO);
        self.exists = found.is_some();
        self.observations = Observations::default();
    }

    /// Returns true if `claim` is the head of the queue although it may hold. No write leaves a
    /// document like that, but an edit by hand can.
    pub(super) fn is_overlooked(&self, claim: Claim) -> bool {
        self.lock.as_ref().is_some_and(|lock| {
            let mut queue = lock.queue.iter();
            let head = queue.next().filter(|head| head.claim == claim);
            head.is_some_and(|head| lock.has_room(head.mode, lock.slots))
        })
    }

    /// Returns the number of holders, and of waiters before `claim`.
    pub(super) fn numbers_ahead(&self, claim: Claim) -> (usize, usize) {
        let other = |entry: &&Entry| entry.claim != claim;
        self.lock.as_ref().map_or((0, 0), |lock| {
            let holders = lock.holders.iter().filter(other).count();
            (holders, lock.queue.iter().take_while(other).count())
        })
    }

    /// Returns the holders, and the waiters before `claim`; the first few of each.
    pub(super) fn ahead(&self, claim: Claim) -> Vec<Ahead> {
        let Some(lock) = &self.lock else {
            return Vec::new();
        };
        let shown = |holds: bool| {
            move |entry: &Entry| Ahead {
                identity: entry.identity.clone(),
                mode: entry.mode,
                token: entry.token,
                holds,
                is_over: entry.is_over,
                since: entry.acquired_at,
            }
        };
        let other = |entry: &&Entry| entry.claim != claim;
        let holders = lock.holders.iter().filter(other);
        let queue = lock.queue.iter().take_while(other);
        let holders = holders.take(AHEAD_SHOWN_MAX).map(shown(true));
        holders
            .chain(queue.take(AHEAD_SHOWN_MAX).map(shown(false)))
            .collect()
    }
}
