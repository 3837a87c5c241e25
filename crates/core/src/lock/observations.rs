//! Observations of other entries: since when each has been unchanged, and which are therefore
//! expired.
//!
//! No clock and no date in the document is read. The wait for an entry starts with the reply that
//! first showed its current revision and state.

use std::collections::BTreeMap;
use std::time::Duration;

use super::document::{Entry, LockDocument};
use super::grant::GRANT_SHARE;
use super::operation::EntryVersion;
use crate::election::{BootTime, Claim, Declared, Identity, Revision, Token};
use crate::named::named;

named! {
    /// State of an entry.
    pub enum EntryState {
        /// Waiting in the queue.
        Waiting = "waiting",
        /// Granted but not confirmed, so with provisional authority at most.
        Granted = "granted",
        /// Holding the lock.
        Held = "held",
        /// Work has ended, and the place stays taken for the rest of its minimum hold.
        Kept = "kept",
    }
}

/// An observed entry, and since when it has been unchanged.
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
    /// When a reply first showed this revision and state.
    pub since: BootTime,
    /// End of the minimum hold of a confirmed entry among the holders, counted from the reply that
    /// first showed this revision; `None` if it has none.
    pub kept_until: Option<BootTime>,
}

/// Observations of all entries of others.
///
/// At most [`HOLDERS_MAX`](super::HOLDERS_MAX) plus [`QUEUE_MAX`](super::QUEUE_MAX), because a
/// document has no more entries.
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
        self.0
            .iter()
            .map(|(claim, observation)| (*claim, observation))
    }

    /// Returns these observations together with those that other contenders of the same boot have
    /// saved since this one started with `before`.
    #[must_use]
    pub fn merged(&self, before: &Self, saved: &Self) -> Self {
        let mut merged = self.0.clone();
        for (claim, other) in &saved.0 {
            match merged.get_mut(claim) {
                Some(own) => own.merge(other),
                // This contender knew the entry, and saw that it is gone.
                None if before.0.contains_key(claim) => {}
                None => {
                    merged.insert(*claim, other.clone());
                }
            }
        }
        Self(merged)
    }

    /// Records the document of a reply, without the entry of `mine`. Returns the owners of new
    /// entries that declare a duration outside the valid range, with that duration in milliseconds.
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
                    // The clock of the store counts only for an observer without a bound of its own.
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

    /// Removes these observations because the entries had changed. The wait for them restarts.
    pub(super) fn forget(&mut self, claims: impl IntoIterator<Item = Claim>) {
        for claim in claims {
            self.0.remove(&claim);
        }
    }

    pub(super) fn expired(&self, patience: Patience, now: BootTime) -> Vec<(Claim, Observation)> {
        let expired = |observation: &Observation| observation.expires_at(patience) <= now;
        self.0
            .iter()
            .filter(|(_, observation)| expired(observation))
            .map(|(claim, observation)| (*claim, observation.clone()))
            .collect()
    }

    /// Returns when the next entry expires if it stays unchanged.
    pub(super) fn next_expiry(&self, patience: Patience) -> Option<BootTime> {
        self.0.values().map(|s| s.expires_at(patience)).min()
    }
}

/// Time that an observer waits before it considers others expired.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// Time for a grantee to confirm.
    pub(super) claim_time: Duration,
    /// Additional delay, so that observers do not all evict simultaneously.
    pub(super) stagger: Duration,
}

impl Entry {
    /// Returns true if an entry in this state keeps its place for a minimum hold. It counts once the
    /// owner has confirmed the entry, since the owner begins nothing before that.
    fn keeps(&self, state: EntryState) -> bool {
        let confirmed = matches!(state, EntryState::Held | EntryState::Kept);
        confirmed && self.min_hold > Duration::ZERO
    }
}

impl Observation {
    fn of(entry: &Entry, state: EntryState, now: BootTime) -> Self {
        Self {
            identity: entry.owner.identity.clone(),
            revision: entry.revision,
            state,
            token: entry.token,
            lease_duration: entry.lease_duration,
            since: now,
            kept_until: entry.keeps(state).then(|| now + entry.min_hold),
        }
    }

    /// Adds what another contender of the same boot has observed of the same entry: the earlier
    /// instant if both saw the same revision and state, otherwise the later observation.
    fn merge(&mut self, other: &Self) {
        if !self.continues(other) {
            if other.since > self.since {
                *self = other.clone();
            }
            return;
        }
        self.since = self.since.min(other.since);
        self.kept_until = match (self.kept_until, other.kept_until) {
            (Some(own), Some(other)) => Some(own.min(other)),
            (own, other) => own.or(other),
        };
    }

    pub(super) fn seen(&self, claim: Claim) -> EntryVersion {
        EntryVersion {
            claim,
            revision: self.revision,
        }
    }

    /// Returns true if revision, token and state are unchanged since the last observation of this
    /// claim.
    fn continues(&self, known: &Self) -> bool {
        known.revision == self.revision && known.token == self.token && known.state == self.state
    }

    /// Returns when the entry expires if it stays unchanged.
    fn expires_at(&self, patience: Patience) -> BootTime {
        let wait = match self.state {
            // The share is what a grantee counts on. The operation timeout of the observer is for
            // a grantee that polls and has to confirm first; at the defaults the two are equal.
            EntryState::Granted => patience
                .claim_time
                .max(self.lease_duration.duration() / GRANT_SHARE),
            EntryState::Waiting | EntryState::Held => self.lease_duration.duration(),
            EntryState::Kept => Duration::ZERO,
        };
        (self.since + wait).max(self.kept_until.unwrap_or_default()) + patience.stagger
    }
}
