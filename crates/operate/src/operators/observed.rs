//! Time since each holder last renewed, on this command's own clock, and the evidence of the dates
//! in the documents.
//!
//! If a revision has not changed since this command started, it may have been written long before.
//! The date of the last write is then the only evidence at the first look. It comes from the
//! holder's wall clock, so it is shown and never decides anything.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use leasehold_clock as clock;
use leasehold_core::election::{BootTime, Claim, Revision, WallMillis};
use leasehold_core::lock;
use leasehold_mongodb::store::mongo::operators::{
    CollectionEntry, Content, LeaseRecord, LiveView, LockRecord, ViewEvent,
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
    /// The time by the clock of the store, and when it was read. Only lists of locks have it.
    store_clock: Option<(WallMillis, BootTime)>,
}

#[derive(Debug)]
pub(crate) struct ObservedDocument {
    pub(super) entry: CollectionEntry,
    /// Time since the last renewal of a lease, or the last change of a lock.
    pub(super) silence: Silence,
    /// Time since the last renewal of each holder and waiter of a lock.
    pub(super) claims: BTreeMap<Claim, Silence>,
}

/// Time since the last renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Silence {
    revision: Option<Revision>,
    since: BootTime,
    /// True if this command saw the last renewal; else the time is a lower bound.
    pub(super) renewal_seen: bool,
    /// Start of the time in which the document may have changed unseen, if it lasts.
    blind_since: Option<BootTime>,
}

/// A renewal within a shorter blind time counts as seen.
const BLIND_TOLERATED: Duration = Duration::from_secs(3);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Liveness {
    Renews,
    /// No renewal for more than a quarter of the lease duration on this command's clock, or for more
    /// than half of it by the wall clocks.
    Late,
    /// No renewal seen, and the last write is older than the lease duration by the wall clocks of
    /// the holder and of this machine.
    Silent,
    /// No renewal for the lease duration, so another candidate may take over.
    Expired,
}

/// Returns this machine's wall clock.
pub(super) fn wall() -> WallMillis {
    let now = clock::wall_now().duration_since(UNIX_EPOCH).ok();
    WallMillis(
        now.and_then(|now| i64::try_from(now.as_millis()).ok())
            .unwrap_or(0),
    )
}

/// Evidence of whether a holder is alive, for display. It decides nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Evidence {
    pub(crate) liveness: Liveness,
    /// Age of the last write in milliseconds, by the wall clocks of the holder and of this machine.
    /// It is negative for a date in the future, and `None` if the document has no date or cannot be
    /// read.
    pub(crate) last_write_ago: Option<i64>,
    /// Time until the lease has expired for a candidate that has watched for as long as this
    /// command.
    pub(crate) expires_in: Duration,
    /// Time since the last renewal on this command's clock.
    pub(crate) silence: Silence,
}

impl Evidence {
    /// Returns the evidence at this time. `renewed_at` is the date of the holder's last write.
    pub(crate) fn new(
        silence: Silence,
        renewed_at: WallMillis,
        lease_duration: Duration,
        now: BootTime,
        wall: WallMillis,
    ) -> Self {
        let is_dated = silence.blind_since.is_none() && renewed_at.0 > 0;
        let last_write_ago = is_dated.then(|| wall.0.saturating_sub(renewed_at.0));
        let age = last_write_ago.and_then(|millis| u64::try_from(millis).ok());
        let age = age
            .map(Duration::from_millis)
            .filter(|_| !silence.renewal_seen);
        let liveness = match (silence.liveness(lease_duration, now), age) {
            (Liveness::Expired, _) => Liveness::Expired,
            (_, Some(age)) if age >= lease_duration => Liveness::Silent,
            // No valid interval of renewals is longer.
            (_, Some(age)) if age > lease_duration / 2 => Liveness::Late,
            (liveness, _) => liveness,
        };
        Self {
            liveness,
            last_write_ago,
            expires_in: silence.expires(lease_duration).since(now),
            silence,
        }
    }

    /// Returns true if the holder seems to be gone.
    pub(crate) fn is_silent(&self) -> bool {
        matches!(self.liveness, Liveness::Silent | Liveness::Expired)
    }
}

impl Silence {
    pub(super) fn new(revision: Option<Revision>, since: BootTime) -> Self {
        Self {
            revision,
            since,
            renewal_seen: false,
            blind_since: None,
        }
    }

    /// Records the revision of a document that was read at this time.
    pub(super) fn observe(&mut self, revision: Option<Revision>, at: BootTime) {
        let blind = self.blind_since.take().map(|since| at.since(since));
        if self.revision != revision {
            *self = Self {
                // A renewal during an outage may be old, and the holder may have stopped since.
                renewal_seen: blind.is_none_or(|blind| blind <= BLIND_TOLERATED),
                ..Self::new(revision, at)
            };
        }
    }

    /// Records that renewals before this time may not have been seen.
    pub(super) fn lose_sight(&mut self, now: BootTime) {
        *self = Self {
            blind_since: self.blind_since.or(Some(now)),
            ..Self::new(self.revision, now)
        };
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
    /// Returns the evidence about the holder of a lease; `None` for a free lease or a lock.
    pub(crate) fn evidence(&self, now: BootTime) -> Option<Evidence> {
        let lease = lease(&self.entry)?;
        let (renewed_at, lasts) = (lease.holder.as_ref()?.renewed_at, lease.lease_duration()?);
        Some(Evidence::new(self.silence, renewed_at, lasts, now, wall()))
    }

    /// Returns the evidence about each holder of a lock whose work goes on, and each waiter.
    pub(super) fn entry_evidence(&self, now: BootTime) -> impl Iterator<Item = (Claim, Evidence)> {
        let wall = wall();
        claims(&self.entry)
            .filter(|entry| !entry.work_done)
            .filter_map(move |entry| {
                let silence = *self.claims.get(&entry.claim)?;
                let (renewed_at, lasts) = (entry.owner.renewed_at, entry.lease_duration.duration());
                let evidence = Evidence::new(silence, renewed_at, lasts, now, wall);
                Some((entry.claim, evidence))
            })
    }

    /// Returns true if the holder of a lease, or a holder or waiter of a lock, has not renewed for its
    /// lease duration.
    pub(super) fn has_expired(&self, now: BootTime) -> bool {
        let entries = self.entry_evidence(now).map(|(_, evidence)| evidence);
        let mut all = entries.chain(self.evidence(now));
        all.any(|evidence| evidence.liveness == Liveness::Expired)
    }

    /// Returns true for a lease that an operator has retired.
    pub(super) fn is_retired(&self) -> bool {
        lease(&self.entry).is_some_and(LeaseRecord::is_retired)
    }
}

impl Observed {
    /// Applies an event. Returns the names of the event's documents, including deleted ones. Each
    /// name comes with true if the document changed other than by a renewal.
    pub(super) fn apply(&mut self, event: ViewEvent) -> BTreeMap<String, bool> {
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
        let seen = ObservedDocument {
            entry,
            silence,
            claims,
        };
        self.documents.insert(name, seen);
        differs
    }

    /// Returns the time by the clock of the store, if it is known.
    pub(super) fn store_now(&self, now: BootTime) -> Option<WallMillis> {
        let (read, at) = self.store_clock?;
        let passed = i64::try_from(now.since(at).as_millis()).unwrap_or(i64::MAX);
        Some(WallMillis(read.0.saturating_add(passed)))
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

    /// Returns the lease of this name.
    pub(super) fn lease_of(&self, name: &str) -> Option<&LeaseRecord> {
        lease(&self.get(name)?.entry)
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
        let now = clock::boot_now();
        self.documents().all(|seen| {
            let mut entries = seen.entry_evidence(now);
            (seen.silence.renewal_seen || !is_held(seen))
                && entries.all(|(_, evidence)| evidence.silence.renewal_seen)
        })
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

/// Returns the document without the fields that differ in each reply: the time of the store, and the
/// rest of a minimum hold by it.
fn without_reply(mut entry: CollectionEntry) -> CollectionEntry {
    if let Content::Lock(record) = &mut entry.content {
        record.lock.store_now = WallMillis::default();
        let ended = record.lock.holders.iter_mut().filter(|it| it.work_done);
        ended.for_each(|entry| entry.min_hold = Duration::ZERO);
    }
    entry
}

/// Returns true if the documents have equal names and differ at most by renewals or a roll call.
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

#[cfg(test)]
mod tests {
    use super::*;

    const LASTS: Duration = Duration::from_secs(24);
    const WALL: WallMillis = WallMillis(1_000_000_000);

    fn at(seconds: u64) -> BootTime {
        BootTime::from_nanos((100 + seconds) * 1_000_000_000)
    }

    fn seen(silence: Silence, ago: i64, now: BootTime) -> Evidence {
        Evidence::new(silence, WallMillis(WALL.0 - ago), LASTS, now, WALL)
    }

    #[test]
    fn a_last_write_before_the_lease_duration_is_evidence_at_the_first_look() {
        let first = Silence::new(None, at(0));
        for (ago, liveness) in [
            (372_000, Liveness::Silent),
            (24_000, Liveness::Silent),
            (23_999, Liveness::Late),
            (12_000, Liveness::Renews),
            (-60_000, Liveness::Renews),
        ] {
            let evidence = seen(first, ago, at(1));
            assert_eq!(evidence.liveness, liveness, "{ago}");
            assert_eq!(evidence.last_write_ago, Some(ago));
            assert_eq!(evidence.expires_in, Duration::from_secs(23));
        }
        assert_eq!(seen(first, 0, at(7)).liveness, Liveness::Late);
        let expired = seen(first, 0, at(24));
        assert_eq!(expired.liveness, Liveness::Expired);
        assert_eq!(expired.expires_in, Duration::ZERO);
        let undated = Evidence::new(first, WallMillis(0), LASTS, at(1), WALL);
        assert_eq!(undated.last_write_ago, None);
        assert_eq!(undated.liveness, Liveness::Renews);
    }

    #[test]
    fn a_renewal_counts_more_than_the_date_of_a_wrong_clock() {
        let mut silence = Silence::new(None, at(0));
        silence.observe(Some(Revision::from_bytes([1; 16])), at(2));
        assert_eq!(seen(silence, 372_000, at(3)).liveness, Liveness::Renews);
        assert_eq!(seen(silence, 0, at(26)).liveness, Liveness::Expired);
    }

    #[test]
    fn a_document_that_cannot_be_read_is_not_judged_by_its_date() {
        let mut silence = Silence::new(None, at(0));
        silence.lose_sight(at(5));
        let blind = seen(silence, 372_000, at(6));
        assert_eq!(blind.liveness, Liveness::Renews);
        assert_eq!(blind.last_write_ago, None);
        silence.observe(None, at(7));
        assert_eq!(seen(silence, 372_000, at(8)).liveness, Liveness::Silent);
    }

    #[test]
    fn a_renewal_during_an_outage_is_not_a_renewal_that_was_seen() {
        let renewed = Some(Revision::from_bytes([1; 16]));
        let mut silence = Silence::new(None, at(0));
        silence.lose_sight(at(1));
        silence.observe(renewed, at(3));
        assert!(silence.renewal_seen, "a blind time of 2 s");
        silence.lose_sight(at(5));
        silence.lose_sight(at(300));
        silence.observe(Some(Revision::from_bytes([2; 16])), at(301));
        assert!(!silence.renewal_seen);
        assert_eq!(seen(silence, 60_000, at(302)).liveness, Liveness::Silent);
        assert_eq!(seen(silence, 2_000, at(302)).liveness, Liveness::Renews);
        silence.observe(renewed, at(303));
        assert!(silence.renewal_seen);
    }
}
