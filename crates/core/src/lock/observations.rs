//! Observations of other entries. An entry expires if its revision and state stay unchanged for
//! long enough. The wait starts with the reply that first showed this revision and state.

use std::collections::BTreeMap;
use std::time::Duration;

use super::grant::GRANT_SHARE;
use super::{Ending, Entry, EntryVersion, LockDocument, LockOperation};
use crate::claim::earliest;
use crate::election::{BootTime, Claim, Declared, Identity, Revision, Token};
use crate::named::named;

named! {
    /// State of an entry.
    pub enum EntryState {
        /// Waiting in the queue.
        Waiting = "waiting",
        /// Granted but not confirmed. The authority is provisional at most.
        Granted = "granted",
        /// Holding the lock.
        Held = "held",
        /// The work is done, and the entry stays for the rest of its minimum hold.
        Kept = "kept",
    }
}

/// An observed entry.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Observation {
    /// Name of the owner; informational.
    pub identity: Identity,
    /// Revision written by the owner.
    pub revision: Revision,
    /// State of the entry.
    pub state: EntryState,
    /// Token of the entry, if any.
    pub token: Option<Token>,
    /// Lease duration declared by the owner.
    pub lease_duration: Declared,
    /// Instant at which a reply first showed this revision and state.
    pub since: BootTime,
    /// End of a holder's minimum hold, counted from the first reply with the revision.
    pub kept_until: Option<BootTime>,
}

/// Observations of all entries of other contenders. The document's limits bound their number.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Observations(BTreeMap<Claim, Observation>);

impl Observations {
    /// Restores observations that were remembered in the same boot.
    pub fn remembered(observations: impl IntoIterator<Item = (Claim, Observation)>) -> Self {
        Self(observations.into_iter().collect())
    }

    /// Returns the observations to remember.
    pub fn iter(&self) -> impl Iterator<Item = (Claim, &Observation)> {
        self.0.iter().map(|(claim, seen)| (*claim, seen))
    }

    /// Adds observations that others have saved since this contender started with `before`.
    #[must_use]
    pub fn merged(&self, before: &Self, saved: &Self) -> Self {
        let mut merged = self.0.clone();
        for (claim, other) in &saved.0 {
            match merged.get_mut(claim) {
                Some(own) => own.merge(other),
                // This contender knew the entry, and has seen that it is gone.
                None if before.0.contains_key(claim) => {}
                None => {
                    merged.insert(*claim, other.clone());
                }
            }
        }
        Self(merged)
    }

    /// Records a document, except the entry `mine`. Returns the invalid durations of new entries,
    /// with their owners.
    pub(super) fn note(
        &mut self,
        lock: &LockDocument,
        mine: Option<Claim>,
        now: BootTime,
    ) -> Vec<(Identity, i64)> {
        let mut before = std::mem::take(&mut self.0);
        let mut absurd = Vec::new();
        let holders = lock.holders.iter().map(|entry| match entry.is_confirmed() {
            true if entry.work_done => (entry, EntryState::Kept),
            true => (entry, EntryState::Held),
            false => (entry, EntryState::Granted),
        });
        let queue = lock.queue.iter().map(|entry| (entry, EntryState::Waiting));
        for (entry, state) in holders.chain(queue) {
            if Some(entry.claim) == mine {
                continue;
            }
            let mut observation = Observation::of(entry, state, now);
            match before.remove(&entry.claim) {
                Some(known) if observation.continues(&known) && !planted!(SightingAnew) => {
                    observation.since = known.since;
                    // Once the work is done, a newly computed end would depend on the store's
                    // clock, so the first computed end stays.
                    observation.kept_until = known.kept_until.or(observation.kept_until);
                }
                None if entry.lease_duration.valid().is_none() => {
                    absurd.push((entry.owner.identity.clone(), entry.lease_duration.millis));
                }
                Some(_) | None => {}
            }
            self.0.insert(entry.claim, observation);
        }
        absurd
    }

    pub(super) fn forget(&mut self, claims: impl IntoIterator<Item = Claim>) {
        for claim in claims {
            self.0.remove(&claim);
        }
    }

    pub(super) fn expired(&self, patience: Patience, now: BootTime) -> Vec<(Claim, Observation)> {
        let expired = self.iter().filter(|(_, o)| o.expires_at(patience) <= now);
        expired.map(|(claim, o)| (claim, o.clone())).collect()
    }

    pub(super) fn next_expiry(&self, patience: Patience) -> Option<BootTime> {
        self.0.values().map(|s| s.expires_at(patience)).min()
    }
}

/// Additional time that an observer grants before it considers an entry expired.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    pub(super) claim_time: Duration,
    /// Additional delay, so that observers do not all evict simultaneously.
    pub(super) stagger: Duration,
}

impl Observation {
    fn of(entry: &Entry, state: EntryState, now: BootTime) -> Self {
        // With a minimum hold, the owner begins no work before it confirms the grant.
        let confirmed = matches!(state, EntryState::Held | EntryState::Kept);
        let keeps = confirmed && entry.min_hold > Duration::ZERO;
        Self {
            identity: entry.owner.identity.clone(),
            revision: entry.revision,
            state,
            token: entry.token,
            lease_duration: entry.lease_duration,
            since: now,
            kept_until: keeps.then(|| now + entry.min_hold),
        }
    }

    /// If both observed the same version, keeps the earlier start; otherwise keeps the version that
    /// was seen later.
    fn merge(&mut self, other: &Self) {
        if !self.continues(other) {
            if other.since > self.since {
                *self = other.clone();
            }
            return;
        }
        self.since = self.since.min(other.since);
        self.kept_until = earliest([self.kept_until, other.kept_until]);
    }

    pub(super) fn seen(&self, claim: Claim) -> EntryVersion {
        EntryVersion {
            claim,
            revision: self.revision,
        }
    }

    fn continues(&self, known: &Self) -> bool {
        known.revision == self.revision && known.token == self.token && known.state == self.state
    }

    fn expires_at(&self, patience: Patience) -> BootTime {
        let wait = match self.state {
            // The share of the lease duration covers the provisional authority. A grantee that
            // polls may need `claim_time`, the operation timeout, to confirm. At the default
            // timings, the share and `claim_time` are both 3 s.
            EntryState::Granted => patience
                .claim_time
                .max(self.lease_duration.duration() / GRANT_SHARE),
            EntryState::Waiting | EntryState::Held => self.lease_duration.duration(),
            EntryState::Kept => Duration::ZERO,
        };
        (self.since + wait).max(self.kept_until.unwrap_or_default()) + patience.stagger
    }
}

/// Observes a lock's entries through repeated reads.
#[derive(Debug, Clone)]
pub struct Observer {
    observations: Observations,
    patience: Patience,
    token_highest: Token,
}

impl Observer {
    /// Creates an observer that gives a grantee `operation_timeout` to confirm.
    pub fn new(operation_timeout: Duration) -> Self {
        Self {
            observations: Observations::default(),
            patience: Patience {
                claim_time: operation_timeout,
                stagger: Duration::ZERO,
            },
            token_highest: Token::ZERO,
        }
    }

    /// Records the document of a read that was answered at `now`.
    pub fn observe(&mut self, lock: &LockDocument, now: BootTime) {
        self.token_highest = self.token_highest.max(lock.token);
        self.observations.note(lock, None, now);
    }

    /// Returns the observations and their start times.
    pub fn observations(&self) -> &Observations {
        &self.observations
    }

    /// Returns the time at which the next entry expires, possibly in the past.
    pub fn next_expiry(&self) -> Option<BootTime> {
        self.observations.next_expiry(self.patience)
    }

    /// Returns an eviction of all entries that have expired by `now`, if any.
    pub fn break_expired(&self, now: BootTime) -> Option<LockOperation> {
        let expired = self.observations.expired(self.patience, now);
        (!expired.is_empty()).then(|| LockOperation::Evict {
            entries: expired.iter().map(|(claim, o)| o.seen(*claim)).collect(),
            me: None,
            ending: Ending::Broken,
            seen: self.token_highest,
        })
    }
}
