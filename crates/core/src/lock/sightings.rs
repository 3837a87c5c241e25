//! Since when each entry of others has been seen unchanged, and which are
//! therefore dead.
//!
//! It reads no clock, and no date of the document: an entry's silence begins
//! with the reply that first showed it as it is.

use std::collections::BTreeMap;
use std::time::Duration;

use super::document::{Entry, LockDocument};
use super::operation::Seen;
use crate::election::{BootTime, Claim, Declared, Identity, LEASE_DURATION_MAX, Revision, Token};

/// A grantee has this part of the lease duration that it declares, or the
/// operation time-out of whoever watches it if that is longer; at the defaults
/// they are the same. A contender that polls at its own pace would else be swept
/// by one of shorter durations before it can know that it was granted.
const GRANT_SHARE: u32 = 8;

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EntryState {
    /// It waits in the queue.
    Waiting,
    /// It was granted and has not confirmed that: no authority.
    Granted,
    /// It holds.
    Held,
}

impl EntryState {
    /// The word in logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Granted => "granted",
            Self::Held => "held",
        }
    }
}

/// An entry as it was seen, and since when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sighting {
    /// Whose it is, for people.
    pub identity: Identity,
    /// Its owner's revision.
    pub revision: Revision,
    /// What it is.
    pub state: EntryState,
    /// Its token.
    pub token: Option<Token>,
    /// How long its owner asks others to wait.
    pub lease_duration: Declared,
    /// When a reply first showed it so.
    pub since: BootTime,
}

/// All entries of others, each since it was first seen as it is.
///
/// At most [`HOLDERS_MAX`](super::HOLDERS_MAX) and
/// [`QUEUE_MAX`](super::QUEUE_MAX): no more are in a document.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sightings(BTreeMap<Claim, Sighting>);

impl Sightings {
    /// From what was remembered, in the same boot.
    pub fn remembered(sightings: impl IntoIterator<Item = (Claim, Sighting)>) -> Self {
        Self(sightings.into_iter().collect())
    }

    /// What to remember.
    pub fn iter(&self) -> impl Iterator<Item = (Claim, &Sighting)> {
        self.0.iter().map(|(claim, sighting)| (*claim, sighting))
    }

    /// A reply showed this document; `mine` is not observed. Returns those
    /// that are new and declare a duration that no valid contender declares.
    pub(super) fn note(
        &mut self,
        lock: &LockDocument,
        mine: Option<Claim>,
        now: BootTime,
    ) -> Vec<(Identity, i64)> {
        let mut before = std::mem::take(&mut self.0);
        let mut absurd = Vec::new();
        let holders = lock.holders.iter().map(|entry| match entry.token {
            Some(_) => (entry, EntryState::Held),
            None => (entry, EntryState::Granted),
        });
        let queue = lock.queue.iter().map(|entry| (entry, EntryState::Waiting));
        for (entry, state) in holders.chain(queue) {
            if Some(entry.claim) == mine {
                continue;
            }
            let mut sighting = Sighting::of(entry, state, now);
            match before.remove(&entry.claim) {
                Some(known) if sighting.continues(&known) => {
                    sighting.since = known.since;
                }
                None if entry.lease_duration.valid().is_none() => {
                    absurd.push((entry.identity.clone(), entry.lease_duration.millis));
                }
                Some(_) | None => {}
            }
            self.0.insert(entry.claim, sighting);
        }
        absurd
    }

    /// These were not as they were thought to be: their wait begins anew.
    pub(super) fn forget(&mut self, pairs: &[Seen]) {
        for pair in pairs {
            self.0.remove(&pair.claim);
        }
    }

    /// The entries that are dead for who gives a grantee `claim_time`.
    pub(super) fn dead(&self, patience: Patience, now: BootTime) -> Vec<Seen> {
        let dead = |sighting: &Sighting| sighting.dead_at(patience) <= now;
        self.0
            .iter()
            .filter(|(_, sighting)| dead(sighting))
            .map(|(claim, sighting)| Seen {
                claim: *claim,
                revision: sighting.revision,
            })
            .collect()
    }

    /// When the next entry will be dead, if it stays as it is.
    pub(super) fn next_death(&self, patience: Patience) -> Option<BootTime> {
        self.0.values().map(|s| s.dead_at(patience)).min()
    }

    pub(super) fn get(&self, claim: Claim) -> Option<&Sighting> {
        self.0.get(&claim)
    }
}

/// How long an observer waits for others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// For a grantee to confirm.
    pub(super) claim_time: Duration,
    /// Longer than others do, so that not all sweep at once.
    pub(super) stagger: Duration,
}

impl Sighting {
    fn of(entry: &Entry, state: EntryState, now: BootTime) -> Self {
        Self {
            identity: entry.identity.clone(),
            revision: entry.revision,
            state,
            token: entry.token,
            lease_duration: entry.lease_duration,
            since: now,
        }
    }

    /// Whether it is as it was.
    fn continues(&self, known: &Self) -> bool {
        let revision = known.revision == self.revision || planted!(SightingKept);
        let state = known.state == self.state || planted!(GrantKeepsSighting);
        revision && state
    }

    /// When it is dead, if it stays as it is.
    fn dead_at(&self, patience: Patience) -> BootTime {
        let wait = match self.state {
            EntryState::Granted if planted!(GrantSweptAtOnce) => Duration::ZERO,
            EntryState::Granted if planted!(GrantNeverSwept) => LEASE_DURATION_MAX,
            EntryState::Waiting if planted!(WaitersNotSwept) => LEASE_DURATION_MAX,
            EntryState::Held if planted!(DeclaredIgnored) => patience.claim_time,
            EntryState::Granted => patience
                .claim_time
                .max(self.lease_duration.duration() / GRANT_SHARE),
            EntryState::Waiting | EntryState::Held => self.lease_duration.duration(),
        };
        self.since + wait + patience.stagger
    }
}
