//! Time since each holder last renewed, on this command's own clock, because the dates in the
//! documents come from the clocks of other machines. If a revision has not changed since this
//! command started, it may have been written long before.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_clock as clock;
use leasehold_core::election::{BootTime, Claim, Revision, WallMillis};
use leasehold_core::lock;
use leasehold_mongodb::store::mongo::operators::{
    CollectionEntry, Content, LeaseRecord, LiveView, ViewEvent,
};

/// A live view, and the documents that it has shown.
pub(super) struct Followed {
    pub(super) view: LiveView,
    pub(super) observed: Observed,
}

impl Followed {
    pub(super) fn new(view: LiveView) -> Self {
        let observed = Observed::default();
        Self { view, observed }
    }

    /// Returns `None` at the deadline.
    pub(super) async fn next(&mut self, deadline: BootTime) -> Option<ViewEvent> {
        let left = deadline.since(clock::boot_now());
        let next = tokio::time::timeout(left, self.view.next()).await;
        next.ok().flatten()
    }

    /// Applies the next event; returns false at the deadline.
    pub(super) async fn advance(&mut self, deadline: BootTime) -> bool {
        let event = self.next(deadline).await;
        event.map(|event| self.observed.apply(event)).is_some()
    }
}

/// The documents of a collection, and when each holder's renewals were seen.
#[derive(Debug, Default)]
pub(super) struct Observed {
    documents: BTreeMap<String, ObservedDocument>,
}

#[derive(Debug)]
pub(super) struct ObservedDocument {
    pub(super) entry: CollectionEntry,
    /// Time since the last renewal of a lease, or the last change of a lock.
    pub(super) silence: Silence,
    /// Time since the last renewal of each holder and waiter of a lock.
    pub(super) claims: BTreeMap<Claim, Silence>,
}

/// Time since the last renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Silence {
    revision: Option<Revision>,
    since: BootTime,
    /// True if this command saw the last renewal; else the time is a lower bound.
    pub(super) renewal_seen: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Liveness {
    Renews,
    /// No renewal for more than a quarter of the lease duration.
    Late,
    /// No renewal for the lease duration, so another candidate may take over.
    Expired,
}

impl Silence {
    pub(super) fn new(revision: Option<Revision>, since: BootTime) -> Self {
        Self {
            revision,
            since,
            renewal_seen: false,
        }
    }

    /// Records the revision of a document that was read at this time.
    pub(super) fn observe(&mut self, revision: Option<Revision>, at: BootTime) {
        if self.revision != revision {
            *self = Self {
                revision,
                since: at,
                renewal_seen: true,
            };
        }
    }

    /// Records that renewals before this time may not have been seen.
    pub(super) fn lose_sight(&mut self, now: BootTime) {
        *self = Self::new(self.revision, now);
    }

    pub(super) fn lasts(self, now: BootTime) -> Duration {
        now.since(self.since)
    }

    /// Returns when a holder with this lease duration expires if it does not renew.
    pub(super) fn expires(self, lease_duration: Duration) -> BootTime {
        self.since + lease_duration
    }

    pub(super) fn liveness(self, lease_duration: Duration, now: BootTime) -> Liveness {
        match self.lasts(now) {
            silence if silence >= lease_duration => Liveness::Expired,
            silence if silence > lease_duration / 4 => Liveness::Late,
            _ => Liveness::Renews,
        }
    }
}

impl ObservedDocument {
    /// Returns true if the holder of a lease has not renewed for its lease duration.
    pub(super) fn has_expired(&self, now: BootTime) -> bool {
        let duration = lease(&self.entry).and_then(LeaseRecord::lease_duration);
        duration.is_some_and(|it| self.silence.liveness(it, now) == Liveness::Expired)
    }
}

impl Observed {
    /// Applies an event. Returns the names of the event's documents, including deleted ones. Each
    /// name comes with true if the document changed other than by a renewal.
    pub(super) fn apply(&mut self, event: ViewEvent) -> BTreeMap<String, bool> {
        match event {
            ViewEvent::Listed { entries, at } => {
                let mut before = std::mem::take(&mut self.documents);
                let mut changes = BTreeMap::new();
                for entry in entries {
                    let known = before.remove(&entry.name);
                    changes.insert(entry.name.clone(), self.put(entry, known, at));
                }
                changes.extend(before.into_keys().map(|name| (name, true)));
                changes
            }
            ViewEvent::Changed { entry, at } => {
                let (name, known) = (entry.name.clone(), self.documents.remove(&entry.name));
                BTreeMap::from([(name, self.put(entry, known, at))])
            }
            ViewEvent::Removed { name } => {
                let removed = self.documents.remove(&name).is_some();
                BTreeMap::from([(name, removed)])
            }
            ViewEvent::Failed(_) | ViewEvent::Polling(_) => {
                let now = clock::boot_now();
                for seen in self.documents.values_mut() {
                    let claims = seen.claims.values_mut();
                    claims.for_each(|silence| silence.lose_sight(now));
                    seen.silence.lose_sight(now);
                }
                BTreeMap::new()
            }
            ViewEvent::Streaming => BTreeMap::new(),
        }
    }

    /// Stores a document; returns true if it differs from the known one other than by a renewal.
    fn put(
        &mut self,
        entry: CollectionEntry,
        known: Option<ObservedDocument>,
        at: BootTime,
    ) -> bool {
        let after = |before: Option<Silence>, revision| {
            let mut silence = before.unwrap_or(Silence {
                revision,
                since: at,
                renewal_seen: known.is_some(),
            });
            silence.observe(revision, at);
            silence
        };
        let is_lock = matches!(entry.content, Content::Lock(_));
        let before = known
            .as_ref()
            .filter(|known| !is_lock || known.entry == entry);
        let revision = lease(&entry).map(|lease| lease.lease.revision);
        let silence = after(before.map(|known| known.silence), revision);
        let claims = claims(&entry).map(|claim| {
            let known = known.as_ref();
            let before = known.and_then(|known| known.claims.get(&claim.claim));
            (claim.claim, after(before.copied(), Some(claim.revision)))
        });
        let claims = claims.collect();
        let differs = known.is_none_or(|known| !differs_by_renewal(&known.entry, &entry));
        let name = entry.name.clone();
        let seen = ObservedDocument {
            entry,
            silence,
            claims,
        };
        self.documents.insert(name, seen);
        differs
    }

    pub(super) fn documents(&self) -> impl Iterator<Item = &ObservedDocument> {
        self.documents.values()
    }

    pub(super) fn get(&self, name: &str) -> Option<&ObservedDocument> {
        self.documents.get(name)
    }

    /// Returns the document in a view of one document.
    pub(super) fn one(&self) -> Option<&ObservedDocument> {
        self.documents().next()
    }

    /// Returns the lease in a view of one document.
    pub(super) fn lease(&self) -> Option<(&ObservedDocument, &LeaseRecord)> {
        let seen = self.one()?;
        Some((seen, lease(&seen.entry)?))
    }

    /// Returns true once a renewal of each holder has been seen.
    pub(super) fn is_complete(&self) -> bool {
        let is_held = |seen: &ObservedDocument| {
            lease(&seen.entry).is_some_and(|lease| lease.held_by().is_some())
        };
        self.documents()
            .all(|seen| seen.silence.renewal_seen || !is_held(seen))
    }
}

/// Returns the lease that an event of a view of one document shows: `None` if the event shows no
/// state, and `Some(None)` if there is no lease.
pub(super) fn shown(event: &ViewEvent) -> Option<Option<&LeaseRecord>> {
    match event {
        ViewEvent::Changed { entry, .. } => Some(lease(entry)),
        ViewEvent::Listed { entries, .. } => Some(entries.first().and_then(lease)),
        ViewEvent::Removed { .. } => Some(None),
        ViewEvent::Failed(_) | ViewEvent::Polling(_) | ViewEvent::Streaming => None,
    }
}

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

/// Returns true if the documents have equal names and differ at most by renewals or a roll call.
fn differs_by_renewal(before: &CollectionEntry, after: &CollectionEntry) -> bool {
    let without_renewals = |entry: &CollectionEntry| {
        let mut entry = entry.clone();
        match &mut entry.content {
            Content::Lease(lease) => {
                lease.lease.revision = Revision::from_bytes([0; 16]);
                lease.roll_call = None;
                let holder = lease.holder.iter_mut();
                holder.for_each(|holder| holder.renewed_at = WallMillis::default());
            }
            Content::Lock(record) => {
                let lock = &mut record.lock;
                for entry in lock.holders.iter_mut().chain(&mut lock.queue) {
                    entry.revision = Revision::from_bytes([0; 16]);
                    entry.owner.renewed_at = WallMillis::default();
                }
            }
            Content::Foreign(_) => {}
        }
        entry
    };
    without_renewals(before) == without_renewals(after)
}
