//! Measures the time since each holder last renewed, on this command's own clock. Also tracks the
//! dates in the documents.
//!
//! A revision that the command finds at its start may be old. Until the revision changes, the only
//! evidence is the date of the last renewal. This date is informational, because it comes from the
//! holder's wall clock.

mod evidence;
mod stall;
#[cfg(test)]
pub(super) mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold_clock as clock;
use leasehold_core::election::{BootTime, Claim, Revision, WallMillis};
use leasehold_core::lock;
use leasehold_mongodb::store::mongo::operators::{
    CollectionEntry, Content, LeaseRecord, LiveView, LockRecord, ViewEvent,
};

pub(crate) use evidence::{Evidence, Liveness, SKEW_MIN, Silence, wall};
pub(super) use stall::StallDetector;

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

    pub(super) fn apply(&mut self, event: ViewEvent) -> BTreeMap<String, bool> {
        let answered = self.view.last_answer().at();
        let answered = answered.unwrap_or_else(clock::boot_now);
        self.observed.apply(event, answered)
    }

    /// Records that this process did not run, and reads the documents again.
    pub(super) fn read_again(&mut self) {
        let answered = self.view.last_answer().at();
        self.observed
            .lose_sight(answered.unwrap_or_else(clock::boot_now));
        self.view.reopen();
    }

    /// Applies events until `other` completes.
    pub(super) async fn during<T>(&mut self, other: impl Future<Output = T>) -> T {
        let mut other = std::pin::pin!(other);
        loop {
            tokio::select! {
                done = &mut other => return done,
                Some(event) = self.view.next() => {
                    self.apply(event);
                }
            }
        }
    }

    /// Applies the next event; returns false at the deadline.
    pub(super) async fn advance(&mut self, deadline: BootTime) -> bool {
        let event = self.next(deadline).await;
        event.map(|event| self.apply(event)).is_some()
    }
}

/// The documents of a collection, and the times when renewals were observed.
#[derive(Debug, Default)]
pub(super) struct Observed {
    documents: BTreeMap<String, ObservedDocument>,
    /// MongoDB's time, and the instant when it was read; known only in lists of locks.
    store_clock: Option<(WallMillis, BootTime)>,
    /// Begin and end of the last time in which changes were not observed, although no read failed.
    unobserved: Option<(BootTime, BootTime)>,
}

#[derive(Debug)]
pub(crate) struct ObservedDocument {
    pub(super) entry: CollectionEntry,
    /// Time since the last renewal of a lease, or since the last change of a lock.
    pub(super) silence: Silence,
    /// Time since the last renewal of each holder and waiter of a lock.
    pub(super) claims: BTreeMap<Claim, Silence>,
}

impl ObservedDocument {
    /// Returns the evidence on the holder of a lease; `None` for a free lease or a lock.
    pub(crate) fn evidence(&self, now: BootTime) -> Option<Evidence> {
        self.evidence_at(now, wall())
    }

    fn evidence_at(&self, now: BootTime, wall: WallMillis) -> Option<Evidence> {
        let lease = lease(&self.entry)?;
        let (renewed_at, lasts) = (lease.holder.as_ref()?.renewed_at, lease.lease_duration()?);
        Some(Evidence::new(self.silence, renewed_at, lasts, now, wall))
    }

    /// Returns the evidence on each working holder and each waiter of a lock.
    pub(super) fn entry_evidence(&self, now: BootTime) -> impl Iterator<Item = (Claim, Evidence)> {
        self.entry_evidence_at(now, wall())
    }

    fn entry_evidence_at(
        &self,
        now: BootTime,
        wall: WallMillis,
    ) -> impl Iterator<Item = (Claim, Evidence)> {
        claims(&self.entry)
            .filter(|entry| !entry.work_done)
            .filter_map(move |entry| {
                let silence = *self.claims.get(&entry.claim)?;
                let (renewed_at, lasts) = (entry.owner.renewed_at, entry.lease_duration.duration());
                let evidence = Evidence::new(silence, renewed_at, lasts, now, wall);
                Some((entry.claim, evidence))
            })
    }

    /// Returns the evidence on the holder of a lease, or on each holder and waiter of a lock.
    pub(super) fn holders(&self, now: BootTime) -> impl Iterator<Item = Evidence> {
        let entries = self.entry_evidence(now).map(|(_, evidence)| evidence);
        entries.chain(self.evidence(now))
    }

    pub(super) fn has_expired(&self, now: BootTime) -> bool {
        let mut all = self.holders(now);
        all.any(|evidence| evidence.liveness == Liveness::Expired)
    }

    /// Records that this command may have missed changes of the document since `from`. A holder or
    /// waiter that seemed to be gone keeps this state, because no renewal was observed.
    fn lose_sight(&mut self, from: BootTime) {
        let passed = i64::try_from(clock::boot_now().since(from).as_millis()).unwrap_or(i64::MAX);
        let wall = WallMillis(wall().0.saturating_sub(passed));
        let is_gone = self
            .evidence_at(from, wall)
            .as_ref()
            .is_some_and(Evidence::is_silent);
        let gone = self.entry_evidence_at(from, wall);
        let gone = gone.filter(|(_, it)| it.is_silent());
        let gone: BTreeSet<Claim> = gone.map(|(claim, _)| claim).collect();
        self.silence.hide(from, is_gone);
        for (claim, silence) in &mut self.claims {
            silence.hide(from, gone.contains(claim));
        }
    }

    pub(super) fn is_hidden(&self) -> bool {
        self.entry.is_hidden()
    }
}

impl Observed {
    /// Applies an event. Returns the names of the event's documents, including deleted documents.
    /// The value is false if the document was only renewed. `answered` is the time of MongoDB's
    /// last answer.
    pub(super) fn apply(&mut self, event: ViewEvent, answered: BootTime) -> BTreeMap<String, bool> {
        match event {
            ViewEvent::Listed { entries, at } => {
                let mut locks = entries.iter().filter_map(lock_of);
                let read = locks.find_map(|lock| (lock.lock.store_now.0 > 0).then_some(&lock.lock));
                if let Some(lock) = read {
                    self.store_clock = Some((lock.store_now, at));
                }
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
                // If only the change stream failed, MongoDB may still answer reads, so the outage
                // begins now.
                let from = match event {
                    ViewEvent::Failed(_) => answered,
                    _ => clock::boot_now(),
                };
                self.hide_all(from);
                BTreeMap::new()
            }
            ViewEvent::Streaming => BTreeMap::new(),
        }
    }

    /// Records that changes since `from` were not observed, for example because this process was
    /// stopped. Events that were received before are still in the queue and prove nothing about now.
    pub(super) fn lose_sight(&mut self, from: BootTime) {
        self.unobserved = Some((from, clock::boot_now()));
        self.hide_all(from);
    }

    fn hide_all(&mut self, from: BootTime) {
        let documents = self.documents.values_mut();
        documents.for_each(|it| it.lose_sight(from));
    }

    /// Stores a document. Returns false if the document was only renewed since the known version.
    fn put(
        &mut self,
        entry: CollectionEntry,
        known: Option<ObservedDocument>,
        at: BootTime,
    ) -> bool {
        let after = |before: Option<Silence>, revision| {
            let mut silence = before.unwrap_or(Silence {
                renewal_seen: known.is_some(),
                ..Silence::new(revision, at)
            });
            silence.observe(revision, at);
            silence
        };
        let is_lock = matches!(entry.content, Content::Lock(_));
        let before = known.as_ref().filter(|known| {
            !is_lock || without_reply(known.entry.clone()) == without_reply(entry.clone())
        });
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
        let mut seen = ObservedDocument {
            entry,
            silence,
            claims,
        };
        if let Some((from, _)) = self.unobserved.filter(|(_, until)| at < *until) {
            seen.lose_sight(from);
        }
        self.documents.insert(name, seen);
        differs
    }

    pub(super) fn store_now(&self, now: BootTime) -> Option<WallMillis> {
        let (read, at) = self.store_clock?;
        let passed = i64::try_from(now.since(at).as_millis()).unwrap_or(i64::MAX);
        Some(WallMillis(read.0.saturating_add(passed)))
    }

    pub(super) fn documents(&self) -> impl Iterator<Item = &ObservedDocument> {
        self.documents.values()
    }

    /// Returns the leases whose holder may be gone or seems to be gone, and the free leases.
    /// Excludes free leases that are paused or retired, and leases whose state is unknown because
    /// of an outage.
    pub(super) fn unled_leases(&self, now: BootTime) -> impl Iterator<Item = &ObservedDocument> {
        let is_unled = move |seen: &&ObservedDocument| match seen.evidence(now) {
            Some(evidence) => evidence.is_doubtful(),
            None => lease(&seen.entry).is_some_and(|lease| !lease.lease.paused),
        };
        let shown = self.documents().filter(|seen| !seen.is_hidden());
        let known = shown.filter(move |seen| !seen.silence.is_blind(now));
        known.filter(is_unled)
    }

    pub(super) fn get(&self, name: &str) -> Option<&ObservedDocument> {
        self.documents.get(name)
    }

    pub(super) fn one(&self) -> Option<&ObservedDocument> {
        self.documents().next()
    }

    pub(super) fn lease(&self) -> Option<(&ObservedDocument, &LeaseRecord)> {
        let seen = self.one()?;
        Some((seen, lease(&seen.entry)?))
    }
}

/// Returns the lease in an event of a single-document view. Returns `None` if the event contains no
/// state, and `Some(None)` if the lease does not exist.
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

fn claims(entry: &CollectionEntry) -> impl Iterator<Item = &lock::Entry> {
    let lock = lock_of(entry).map(|record| &record.lock);
    lock.into_iter()
        .flat_map(|lock| lock.holders.iter().chain(&lock.queue))
}

pub(super) fn lock_of(entry: &CollectionEntry) -> Option<&LockRecord> {
    match &entry.content {
        Content::Lock(lock) => Some(lock),
        Content::Lease(_) | Content::Foreign(_) => None,
    }
}

/// Removes the fields that change with each reply: MongoDB's time, and the remaining minimum hold.
fn without_reply(mut entry: CollectionEntry) -> CollectionEntry {
    if let Content::Lock(record) = &mut entry.content {
        record.lock.store_now = WallMillis::default();
        let ended = record.lock.holders.iter_mut().filter(|it| it.work_done);
        ended.for_each(|entry| entry.min_hold = Duration::ZERO);
    }
    entry
}

/// Returns true if the documents have equal names and differ at most in renewals or a roll call.
fn differs_by_renewal(before: &CollectionEntry, after: &CollectionEntry) -> bool {
    let without_renewals = |entry: &CollectionEntry| {
        let mut entry = without_reply(entry.clone());
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
