//! Time since each holder last renewed, on this command's own clock.
//!
//! The dates in the documents come from the clocks of other machines, so they are not used for
//! this. A revision that this command has not seen change since it started may have been written
//! long before.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_clock as clock;
use leasehold_core::election::{BootTime, Claim, Revision};
use leasehold_core::lock;
use leasehold_mongodb::store::mongo::operators::{
    CollectionEntry, Content, LeaseRecord, ViewEvent,
};

/// The documents of a collection, and when each holder's renewals were seen.
#[derive(Debug, Default)]
pub(super) struct Observed {
    leases: BTreeMap<String, ObservedDocument>,
}

/// A document, and what was seen of it.
#[derive(Debug)]
pub(super) struct ObservedDocument {
    pub(super) entry: CollectionEntry,
    pub(super) silence: Silence,
    /// The time without a renewal of each holder and waiter of a lock.
    pub(super) claims: BTreeMap<Claim, Silence>,
}

/// The time without a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Silence {
    revision: Option<Revision>,
    since: BootTime,
    /// True if the last renewal was seen, so that the time is exact and not a lower bound.
    pub(super) renewal_seen: bool,
}

/// The meaning of the time without a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Liveness {
    /// The holder renews, as far as was seen.
    Renews,
    /// It has not renewed for more than a quarter of its lease duration.
    Late,
    /// It has not renewed for its lease duration: another candidate may take over.
    Expired,
}

impl Silence {
    /// Returns the time without a renewal, at least.
    pub(super) fn lasts(self, now: BootTime) -> Duration {
        now.since(self.since)
    }

    /// Returns what the silence of a holder of this lease duration means.
    pub(super) fn liveness(self, lease_duration: Duration, now: BootTime) -> Liveness {
        match self.lasts(now) {
            silence if silence >= lease_duration => Liveness::Expired,
            silence if silence > lease_duration / 4 => Liveness::Late,
            _ => Liveness::Renews,
        }
    }
}

impl Observed {
    /// Applies an event; returns the names of the documents that changed other than by a renewal.
    pub(super) fn apply(&mut self, event: ViewEvent) -> Vec<String> {
        match event {
            ViewEvent::Listed { entries, at } => {
                let mut before = std::mem::take(&mut self.leases);
                let mut changed = Vec::new();
                for entry in entries {
                    let known = before.remove(&entry.name);
                    changed.extend(self.put(entry, known, at));
                }
                changed.extend(before.into_keys());
                changed
            }
            ViewEvent::Changed { entry, at } => {
                let known = self.leases.remove(&entry.name);
                self.put(entry, known, at).into_iter().collect()
            }
            ViewEvent::Removed { name } => {
                let removed = self.leases.remove(&name);
                removed.map(|seen| seen.entry.name).into_iter().collect()
            }
            ViewEvent::Failed(_) | ViewEvent::Polling(_) => {
                self.lose_sight(clock::boot_now());
                Vec::new()
            }
            ViewEvent::Streaming => Vec::new(),
        }
    }

    /// Records that renewals before this time may not have been seen.
    fn lose_sight(&mut self, now: BootTime) {
        for seen in self.leases.values_mut() {
            for silence in std::iter::once(&mut seen.silence).chain(seen.claims.values_mut()) {
                silence.since = now;
                silence.renewal_seen = false;
            }
        }
    }

    fn put(
        &mut self,
        entry: CollectionEntry,
        known: Option<ObservedDocument>,
        at: BootTime,
    ) -> Option<String> {
        let is_known = known.is_some();
        let after = |before: Option<Silence>, revision| match before {
            Some(silence) if silence.revision == revision => silence,
            _ => Silence {
                revision,
                since: at,
                renewal_seen: is_known,
            },
        };
        let silence = after(known.as_ref().map(|known| known.silence), revision(&entry));
        let claims = claims(&entry).map(|claim| {
            let before = known
                .as_ref()
                .and_then(|known| known.claims.get(&claim.claim));
            (claim.claim, after(before.copied(), Some(claim.revision)))
        });
        let claims = claims.collect();
        let changed = known.is_none_or(|known| !differs_by_renewal(&known.entry, &entry));
        let name = entry.name.clone();
        let changed = changed.then(|| name.clone());
        let seen = ObservedDocument {
            entry,
            silence,
            claims,
        };
        self.leases.insert(name, seen);
        changed
    }

    /// Returns the documents, sorted by name.
    pub(super) fn documents(&self) -> impl Iterator<Item = &ObservedDocument> {
        self.leases.values()
    }

    /// Returns a document.
    pub(super) fn get(&self, name: &str) -> Option<&ObservedDocument> {
        self.leases.get(name)
    }

    /// Returns true if a holder has not renewed for its lease duration, as far as was seen.
    pub(super) fn has_expired(&self, now: BootTime) -> bool {
        self.leases.values().any(|seen| {
            let duration = lease(&seen.entry).and_then(LeaseRecord::lease_duration);
            duration
                .is_some_and(|duration| seen.silence.liveness(duration, now) == Liveness::Expired)
        })
    }

    /// Returns true once a renewal of each holder has been seen.
    pub(super) fn is_complete(&self) -> bool {
        let mut held = self
            .leases
            .values()
            .filter(|seen| lease(&seen.entry).is_some_and(|lease| lease.held_by().is_some()));
        held.all(|seen| seen.silence.renewal_seen)
    }
}

/// Returns the lease in an entry.
pub(super) fn lease(entry: &CollectionEntry) -> Option<&LeaseRecord> {
    match &entry.content {
        Content::Lease(lease) => Some(lease),
        Content::Lock(_) | Content::Foreign(_) => None,
    }
}

/// Returns the holders and waiters of the lock in an entry.
fn claims(entry: &CollectionEntry) -> impl Iterator<Item = &lock::Entry> {
    let lock = match &entry.content {
        Content::Lock(lock) => Some(&lock.lock),
        Content::Lease(_) | Content::Foreign(_) => None,
    };
    lock.into_iter()
        .flat_map(|lock| lock.holders.iter().chain(&lock.queue))
}

fn revision(entry: &CollectionEntry) -> Option<Revision> {
    lease(entry).map(|lease| lease.lease.revision)
}

/// Returns true if at most revision and date of the last renewal, or a roll call, differ.
fn differs_by_renewal(before: &CollectionEntry, after: &CollectionEntry) -> bool {
    let (Some(before), Some(after)) = (lease(before), lease(after)) else {
        return before == after;
    };
    let mut renewed = before.clone();
    renewed.lease.revision = after.lease.revision;
    renewed.roll_call.clone_from(&after.roll_call);
    if let (Some(renewed), Some(after)) = (&mut renewed.holder, &after.holder) {
        renewed.renewed_at = after.renewed_at;
    }
    renewed == *after
}
