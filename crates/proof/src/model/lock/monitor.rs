//! An observer's notes about one process. The invariants are checked against these notes and not
//! against the state of the contender, which may be wrong. The simulation checks the same
//! invariants.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::election::{Authority, BootTime, CallId, Claim, Declared, Revision, Token};
use crate::lock::{
    EntryState, EntryVersion, Grant, LockDocument, LockOperation, LockOutcome, LockStatus,
    Observations, Standing,
};
use crate::proof::model::lock::canonical::revision_of;
use crate::proof::model::lock::store::{Store, has_claim, lock_of};
use crate::proof::sim::lock::entries::{self, ObservedEntry};
use crate::proof::sim::lock::invariants::{
    authority_from_acknowledged_writes as authority_rule, evictions_are_due, own_writes,
};

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Monitor {
    /// The process's revisions that are stored or may be stored later, each with the time when the
    /// process sent it.
    sends: Vec<(Revision, BootTime)>,
    /// A claim, its token, and the time at which the claim's authority ends according to the
    /// received messages.
    backed: Option<(Claim, Token, BootTime)>,
    ended: Option<Claim>,
    present: Option<Claim>,
    /// The joins whose outcome is unknown and whose claims no document has shown.
    open_joins: Vec<(CallId, Claim)>,
    newest_write: Option<CallId>,
    /// The newest write, if the store rejected it. The process must receive the answer to a read
    /// before it writes again.
    must_read: Option<CallId>,
    newest: Option<CallId>,
    /// The stored entries of other processes, each with the time at which this process first saw
    /// it.
    shown: Vec<Sighting>,
    place: Place,
    gave_up: bool,
    succeeded: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Place {
    claim: Option<Claim>,
    there: bool,
    /// True if the entry was majority-committed and was removed later.
    gone: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Sighting {
    seen: EntryVersion,
    holds: bool,
    confirmed: bool,
    lease_duration: Declared,
    work_done: bool,
    since: BootTime,
    kept_until: Option<BootTime>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Reply<'a> {
    pub(crate) call: CallId,
    pub(crate) operation: &'a LockOperation,
    pub(crate) outcome: &'a LockOutcome,
    pub(crate) claim: Claim,
    pub(crate) now: BootTime,
    pub(crate) renew_deadline: Duration,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Sending<'a> {
    pub(crate) call: CallId,
    pub(crate) operation: &'a LockOperation,
    pub(crate) now: BootTime,
    pub(crate) store: &'a Store,
    pub(crate) operation_timeout: Duration,
    pub(crate) holds: bool,
    pub(crate) works: bool,
}

impl Sighting {
    fn of(claim: Claim, entry: &ObservedEntry<BootTime>) -> Self {
        Self {
            seen: EntryVersion {
                claim,
                revision: entry.revision,
            },
            holds: entry.holds,
            confirmed: entry.confirmed,
            lease_duration: entry.lease_duration,
            work_done: entry.work_done,
            since: entry.since,
            kept_until: entry.kept_until,
        }
    }

    fn entry(&self) -> ObservedEntry<BootTime> {
        ObservedEntry {
            revision: self.seen.revision,
            holds: self.holds,
            confirmed: self.confirmed,
            lease_duration: self.lease_duration,
            min_hold: Duration::ZERO,
            work_done: self.work_done,
            since: self.since,
            kept_until: self.kept_until,
        }
    }
}

impl Monitor {
    /// Returns the notes about a process that starts with the observations of its predecessor.
    pub(crate) fn remembering(observations: &Observations) -> Self {
        let shown = observations.iter().map(|(claim, observation)| Sighting {
            seen: EntryVersion {
                claim,
                revision: observation.revision,
            },
            holds: observation.state != EntryState::Waiting,
            confirmed: matches!(observation.state, EntryState::Held | EntryState::Kept),
            lease_duration: observation.lease_duration,
            work_done: observation.state == EntryState::Kept,
            since: observation.since,
            kept_until: observation.kept_until,
        });
        Self {
            shown: shown.collect(),
            ..Self::default()
        }
    }

    /// If the deadline of the held claim passed before this input, records that the claim ended.
    pub(crate) fn before(&mut self, now: BootTime, status: &LockStatus) {
        if let Standing::Held(authority) = &status.standing
            && authority.valid_until <= now
        {
            self.ended = Some(status.claim);
        }
    }

    /// Records that the user asked the process to give up while its state was `standing`.
    pub(crate) fn gives_up(&mut self, standing: &Standing) {
        self.gave_up |= *standing != Standing::Leaving;
    }

    /// If the document must record successes, records that the work succeeded.
    pub(crate) fn succeeds(&mut self, is_recorded: bool) {
        self.succeeded |= is_recorded;
    }

    /// Returns true if the process may report a release when this document is majority-committed.
    pub(crate) fn may_have_released(&self, committed: Option<&LockDocument>) -> bool {
        !self.succeeded || committed.is_some_and(|lock| !lock.successes.is_empty())
    }

    pub(crate) fn receives(&mut self, reply: Reply<'_>) {
        let Reply {
            call,
            operation,
            outcome,
            claim,
            ..
        } = reply;
        if *outcome != LockOutcome::Unknown {
            self.open_joins.retain(|(join, _)| *join != call);
        }
        match outcome {
            LockOutcome::Applied(found) => {
                let reads = matches!(operation, LockOperation::Read { .. });
                if reads && self.must_read.is_some_and(|at| call > at) {
                    self.must_read = None;
                }
                if let Some(lock) = lock_of(found) {
                    self.back(reply, lock);
                    let mut holders = lock.holders.iter();
                    let own = holders.find(|entry| entry.claim == claim);
                    let grant = own.and_then(|entry| entry.unconfirmed_grant());
                    self.granted(claim, grant, reply.renew_deadline);
                    self.see(reply, lock);
                }
            }
            LockOutcome::Rejected => {
                let reads = match operation {
                    // Once a document has shown the claim, a rejection of the claim's join requires
                    // no read.
                    LockOperation::Join { entry, .. } => self.present != Some(entry.claim),
                    LockOperation::Renew { .. } | LockOperation::Evict { .. } => true,
                    LockOperation::Create { .. }
                    | LockOperation::Keep { .. }
                    | LockOperation::Leave { .. }
                    | LockOperation::Break { .. }
                    | LockOperation::Read { .. } => false,
                };
                let mine = revision_of(operation).is_some_and(|(of, _)| of == claim);
                if reads && mine && self.newest_write == Some(call) {
                    self.must_read = Some(call);
                }
            }
            LockOutcome::PrimaryOnly | LockOutcome::Failed | LockOutcome::Unknown => {}
        }
    }

    /// Credits the authority of an acknowledged write if the stored entry has the write's revision
    /// and a token. Authority counts from the time when the write was sent.
    fn back(&mut self, reply: Reply<'_>, lock: &LockDocument) {
        // Earlier claims have ended, so their writes grant no authority.
        let wrote = revision_of(reply.operation).filter(|(claim, _)| *claim == reply.claim);
        let Some(wrote) = wrote else { return };
        let mut holders = lock.holders.iter();
        let own = holders.find(|entry| (entry.claim, entry.revision) == wrote);
        if let Some(token) = own.and_then(|entry| entry.token) {
            self.back_from(wrote, token, reply.renew_deadline);
        }
    }

    pub(crate) fn granted(&mut self, claim: Claim, grant: Option<Grant>, renew_deadline: Duration) {
        if let Some(Grant {
            token, revision, ..
        }) = grant
        {
            self.back_from((claim, revision), token, renew_deadline / 8);
        }
    }

    /// Credits a claim with authority for `lasts`, counted from the time when the process sent this
    /// revision.
    fn back_from(&mut self, (claim, revision): (Claim, Revision), token: Token, lasts: Duration) {
        let sent = self.sends.iter().find(|(sent, _)| *sent == revision);
        let Some((_, sent)) = sent.filter(|_| self.ended != Some(claim)) else {
            return;
        };
        let until = *sent + lasts;
        let before = self.backed.filter(|backed| backed.0 == claim);
        let until = match before {
            // A late answer about an earlier grant of the claim does not extend the current grant.
            Some((_, newer, _)) if newer > token => return,
            Some((_, same, before)) if same == token => before.max(until),
            Some(_) | None => until,
        };
        self.backed = Some((claim, token, until));
    }

    fn see(&mut self, reply: Reply<'_>, lock: &LockDocument) {
        let is_news = self.newest.is_none_or(|newest| reply.call > newest);
        self.newest = self.newest.max(Some(reply.call));
        for (claim, entry) in entries::shown(lock, reply.now, &BTreeMap::new()) {
            self.open_joins.retain(|(_, open)| *open != claim);
            if claim == reply.claim {
                if is_news || revision_of(reply.operation).is_some() {
                    self.present = Some(claim);
                }
                continue;
            }
            let sighting = Sighting::of(claim, &entry);
            let known = |old: &Sighting| {
                let (since, kept_until) = (sighting.since, sighting.kept_until);
                let old = Sighting {
                    since,
                    kept_until,
                    ..*old
                };
                old == sighting
            };
            if !self.shown.iter().any(known) {
                self.shown.push(sighting);
            }
        }
    }

    pub(crate) fn sends(&mut self, sending: Sending<'_>) -> Option<&'static str> {
        let violation = self.judge(sending);
        let Sending {
            call,
            operation,
            now,
            ..
        } = sending;
        if let Some((_, revision)) = revision_of(operation) {
            self.sends.push((revision, now));
        }
        match operation {
            LockOperation::Leave { claim, .. } | LockOperation::Keep { claim, .. } => {
                self.ended = Some(*claim);
            }
            LockOperation::Join { entry, .. } => self.open_joins.push((call, entry.claim)),
            LockOperation::Create { .. }
            | LockOperation::Renew { .. }
            | LockOperation::Evict { .. }
            | LockOperation::Break { .. }
            | LockOperation::Read { .. } => {}
        }
        if !matches!(operation, LockOperation::Read { .. }) {
            self.newest_write = Some(call);
        }
        violation
    }

    fn judge(&self, sending: Sending<'_>) -> Option<&'static str> {
        let operation = sending.operation;
        if let LockOperation::Evict { entries, .. } = operation {
            let early = entries.iter().find(|pair| !self.is_due(**pair, sending));
            if early.is_some() {
                return Some("evictions are due");
            }
        }
        let claim = match operation {
            LockOperation::Join { entry, .. } => Some(entry.claim),
            LockOperation::Renew { claim, .. }
            | LockOperation::Keep { claim, .. }
            | LockOperation::Leave { claim, .. } => Some(*claim),
            LockOperation::Create { .. }
            | LockOperation::Evict { .. }
            | LockOperation::Break { .. }
            | LockOperation::Read { .. } => None,
        };
        let of = |noted: Option<Claim>| claim.is_some() && noted == claim;
        let violation = own_writes::check(own_writes::Write {
            operation: operation.as_str(),
            ended: of(self.ended),
            present: of(self.present),
            other_join_open: self.open_joins.iter().any(|(_, open)| Some(*open) != claim),
            unread_rejection: self.must_read.is_some(),
            holds: sending.holds,
            works: sending.works,
            gave_up: self.gave_up,
        });
        violation.map(|violation| violation.invariant)
    }

    /// Returns true if the process may evict the entry, or if the eviction cannot match.
    fn is_due(&self, pair: EntryVersion, sending: Sending<'_>) -> bool {
        let due = |sighting: &Sighting| {
            let eviction = evictions_are_due::Eviction {
                pair,
                shown: Some(sighting.entry()),
                at: sending.now,
                operation_timeout: sending.operation_timeout,
            };
            evictions_are_due::check(eviction).is_none()
        };
        let mut known = self.shown.iter().filter(|s| s.seen == pair);
        known.any(due) || !sending.store.has(pair.claim, pair.revision)
    }

    pub(crate) fn after(
        &mut self,
        claim: Claim,
        authority: Option<Authority>,
    ) -> Option<&'static str> {
        let Some(authority) = authority else {
            self.backed = self.backed.filter(|backed| backed.0 == claim);
            return None;
        };
        let backed = self
            .backed
            .filter(|backed| (backed.0, backed.1) == (claim, authority.token));
        let violation = authority_rule::check(authority_rule::Claimed {
            valid_until: authority.valid_until,
            backed: backed.map(|(_, _, until)| until),
            ended: self.ended == Some(claim),
        });
        violation.map(|violation| violation.invariant)
    }

    pub(crate) fn is_newest(&self, call: CallId) -> bool {
        self.newest_write == Some(call)
    }

    /// Returns true if the process saw a stored entry stay unchanged until the entry expired.
    pub(crate) fn knows_expired(
        &self,
        store: &Store,
        now: BootTime,
        operation_timeout: Duration,
    ) -> bool {
        let stored = self
            .shown
            .iter()
            .filter(|s| store.has(s.seen.claim, s.seen.revision));
        let mut stored = stored.map(|sighting| evictions_are_due::Eviction {
            pair: sighting.seen,
            shown: Some(sighting.entry()),
            at: now,
            operation_timeout,
        });
        stored.any(|eviction| evictions_are_due::check(eviction).is_none())
    }

    /// Returns true if the entry of this claim was majority-committed and was removed later.
    pub(crate) fn saw_removed(&self, claim: Claim) -> bool {
        self.place.claim == Some(claim) && self.place.gone
    }

    /// Returns the notes without the parts that no longer matter in the current state of the
    /// store. `carried` returns true for the revisions of calls in flight.
    pub(crate) fn settled(
        &self,
        claim: Claim,
        store: &Store,
        carried: impl Fn(Revision) -> bool,
    ) -> Self {
        let mut next = self.clone();
        if next.place.claim != Some(claim) {
            next.place = Place {
                claim: Some(claim),
                ..Place::default()
            };
        }
        let (primary, committed) = (&store.primary, &store.committed);
        let there = (has_claim(primary, claim), has_claim(committed, claim));
        next.place.gone |= next.place.there && there != (true, true);
        next.place.there |= there.1;
        next.ended = next.ended.filter(|ended| *ended == claim);
        next.present = next.present.filter(|present| *present == claim);
        next.sends
            .retain(|(revision, _)| store.has_revision(*revision) || carried(*revision));
        // A duplicate of a join can restore the identical entry, so the notes about the entry are
        // kept while the join is in flight.
        next.shown.retain(|Sighting { seen, .. }| {
            store.has(seen.claim, seen.revision) || carried(seen.revision)
        });
        next
    }
}
