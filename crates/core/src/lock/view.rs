//! What replies showed of the document, and whether it can be so.
//!
//! It decides nothing about anybody's entry: see `sightings.rs`.

use std::time::Duration;

use super::document::{Entry, LockDocument};
use super::sightings::Sightings;
use super::status::{AHEAD_SHOWN_MAX, Ahead};
use crate::election::BootTime;
use crate::election::{CallId, Claim, Identity, Token};

#[derive(Debug, Clone)]
pub(super) struct View {
    /// The newest that was shown.
    pub(super) lock: Option<LockDocument>,
    /// The newest call whose document was taken: older ones tell nothing new.
    call: u64,
    /// The token that the document has at least.
    pub(super) token: Token,
    /// The highest one ever seen: what the next one is above.
    pub(super) token_highest: Token,
    /// Whether there was a document.
    pub(super) exists: bool,
    pub(super) lease_longest: Duration,
    pub(super) sightings: Sightings,
}

/// Where a claim stands in a document.
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
    pub(super) fn new(token: Token, lease_duration: Duration, sightings: Sightings) -> Self {
        Self {
            lock: None,
            call: 0,
            token,
            token_highest: token,
            exists: token > Token::ZERO,
            lease_longest: lease_duration,
            sightings,
        }
    }

    /// Any reply showed this, however old it is: its token was used.
    pub(super) fn heed(&mut self, lock: &LockDocument) {
        let held = lock.holders.iter().filter_map(|entry| entry.token).max();
        self.token_highest = self
            .token_highest
            .max(lock.token)
            .max(held.unwrap_or_default());
        self.exists = true;
        let declared = |entry: &Entry| entry.lease_duration.valid();
        let entries = lock.holders.iter().chain(&lock.queue);
        let longest = entries.filter_map(declared).max();
        self.lease_longest = self.lease_longest.max(longest.unwrap_or_default());
    }

    /// Whether a reply to this call can be newer than what was taken.
    pub(super) fn is_news(&self, call: CallId) -> bool {
        call.0 > self.call
    }

    /// Takes what the reply to `call` showed.
    pub(super) fn take(
        &mut self,
        call: CallId,
        lock: LockDocument,
        mine: Claim,
        now: BootTime,
    ) -> Vec<(Identity, i64)> {
        self.call = call.0;
        self.token = self.token.max(lock.token);
        let absurd = self.sightings.note(&lock, Some(mine), now);
        self.lock = Some(lock);
        absurd
    }

    /// The document lost what was acknowledged; this is what it has now.
    pub(super) fn went_back(&mut self, found: Option<Token>) {
        self.lock = None;
        self.token = found.unwrap_or(Token::ZERO);
        self.exists = found.is_some();
        self.sightings = Sightings::default();
    }

    /// How many hold, and how many wait before `claim`.
    pub(super) fn numbers_ahead(&self, claim: Claim) -> (usize, usize) {
        let other = |entry: &&Entry| entry.claim != claim;
        self.lock.as_ref().map_or((0, 0), |lock| {
            let holders = lock.holders.iter().filter(other).count();
            (holders, lock.queue.iter().take_while(other).count())
        })
    }

    /// Who holds, and who waits before `claim`; of each the first few.
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
