//! An observer that knows true time, every process, and every write that a majority has.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::entries::{self, Entries};
use super::invariants::{
    documents, exclusion, expired_entries_are_evicted, live_entries_stay, once_per,
    places_are_kept, releases_are_true,
};
use super::ledger::{Doing, revision_of};
use super::network::{Committed, Writer};
use super::world::World;
use crate::election::{BootTime, CallId, Claim, Revision, Token};
use crate::lock::{
    End, EntryVersion, FoundLock, LockDocument, LockNotice, LockOperation, Loss, OncePer, Standing,
    WorkKey,
};
use crate::proof::sim::MS;
use crate::proof::sim::invariants::{Violation, violation};

const LOOK: u64 = 500 * MS;

#[derive(Default)]
pub(super) struct Observer {
    slowest: u32,
    tokens: BTreeMap<Token, Claim>,
    revisions: BTreeSet<Revision>,
    /// Each acquired claim with a minimum hold, and the time when its acquiring write was
    /// majority-committed.
    places: BTreeMap<Claim, (u64, Duration)>,
    successes: BTreeMap<WorkKey, Vec<Success>>,
    /// Each process whose work succeeded, with its claim. The twins of a forked machine share a
    /// claim.
    succeeded: BTreeSet<(Claim, usize)>,
    /// The leaves that a majority has, by claim and sender. The value is true if the leave
    /// recorded a success.
    left: BTreeMap<(Claim, usize), bool>,
    /// Each entry that a majority has, and how long it has been unchanged.
    entries: Entries<u64>,
    looks_at: u64,
    healed_at: u64,
}

#[derive(Debug, Clone, Copy)]
struct Success {
    /// The date of the success by the store's clock.
    dated: Duration,
    /// The true time when the primary recorded the success.
    at: u64,
}

impl Observer {
    pub(super) fn new(slowest: u64) -> Self {
        Self {
            slowest: u32::try_from(slowest).expect("per mille"),
            ..Self::default()
        }
    }

    pub(super) fn healed(&mut self, now: u64) {
        self.healed_at = now;
    }

    pub(super) fn acquired(
        &mut self,
        (token, claim): (Token, Claim),
        of_twins: bool,
    ) -> Option<Violation> {
        match self.tokens.insert(token, claim) {
            Some(other) if other == claim && of_twins => None,
            Some(other) => violation("I3", format!("{token} was acquired by {other} and {claim}")),
            None => None,
        }
    }

    pub(super) fn forked(&mut self, claim: Claim, process: usize, copy: usize) {
        if let Some(left) = self.left.get(&(claim, process)).copied() {
            self.left.insert((claim, copy), left);
        }
        if self.succeeded.contains(&(claim, process)) {
            self.succeeded.insert((claim, copy));
        }
    }

    pub(super) fn has_left(&self, claim: Claim) -> bool {
        self.left.keys().any(|(left, _)| *left == claim)
    }

    fn fresh(&mut self, operation: &LockOperation) -> Option<Violation> {
        let (_, revision) = revision_of(operation)?;
        if self.revisions.insert(revision) {
            return None;
        }
        violation("revisions are fresh", format!("{revision} is sent again"))
    }
}

impl World {
    pub(super) fn check_exclusion(&mut self) {
        let authority = |id: &usize| {
            let p = &self.processes[*id];
            let authority = p.contender.authority_at(self.clock(*id))?;
            let held = exclusion::Held {
                mode: p.options.mode,
                slot: p.contender.status().slot.filter(|_| !self.is_older(*id)),
            };
            Some((held, self.excused_by(*id, authority)))
        };
        let held: Vec<_> = self.live.iter().filter_map(authority).collect();
        self.found(exclusion::check_twins(&held));
    }

    pub(super) fn check_call(&mut self, process: usize, call: CallId, operation: &LockOperation) {
        let now = self.clock(process);
        let p = &mut self.processes[process];
        let doing = Doing {
            holds: p.contender.authority_at(now).is_some(),
            works: p.works,
        };
        let violation = p.ledger.send(call, operation, now, doing, &p.options);
        self.found(violation);
        let stale = self.own.observer.fresh(operation);
        self.found(stale);
    }

    pub(super) fn check_commit(&mut self, committed: &Committed) {
        let empty = LockDocument::default();
        let lock = |found: &FoundLock| match found {
            FoundLock::Lock(lock) => Some(lock.clone()),
            FoundLock::Missing | FoundLock::Foreign(_) => None,
        };
        let before = lock(&committed.before).unwrap_or(empty);
        let Some(after) = lock(&committed.after) else {
            return;
        };
        let entries = &mut self.own.observer.entries;
        *entries = entries::shown(&after, self.now, entries);
        let Writer::Process(by, operation) = &committed.write.writer else {
            self.forget_removed_places(&before, &after);
            return;
        };
        self.found(documents::check(&before, &after));
        self.check_places(*by, &before, &after);
        self.check_success((*by, operation), committed.write.at, &after);
        if let LockOperation::Evict { entries, .. } = operation {
            for pair in entries {
                let there = |lock| entries::all(lock).any(|entry| entry.claim == pair.claim);
                if there(&before) && !there(&after) {
                    self.check_eviction(*pair);
                }
            }
        }
    }

    /// Records the entry of a process that has acquired the lock with a minimum hold.
    pub(super) fn note_place(&mut self, process: usize, claim: Claim) {
        let min_hold = self.processes[process].options.min_hold.get();
        let observer = &mut self.own.observer;
        let since = observer.entries.get(&claim).map(|entry| entry.since);
        if min_hold > Duration::ZERO {
            let since = since.unwrap_or(self.now);
            observer.places.insert(claim, (since, min_hold));
        }
    }

    /// Forgets the entry of a process that gives up before its work begins, because the minimum
    /// hold does not apply to this entry.
    pub(super) fn forget_place(&mut self, claim: Claim) {
        self.own.observer.places.remove(&claim);
    }

    /// Checks that acquired entries are removed only after their minimum hold. Older versions do
    /// not know the minimum hold.
    fn check_places(&mut self, by: usize, before: &LockDocument, after: &LockDocument) {
        let stays = |claim: &Claim| after.holders.iter().any(|entry| entry.claim == *claim);
        let places = &self.own.observer.places;
        let early = before.holders.iter().find_map(|entry| {
            let (since, min_hold) = *places.get(&entry.claim)?;
            let taken = Duration::from_nanos(self.now - since);
            (!stays(&entry.claim)).then(|| places_are_kept::check(taken, min_hold))?
        });
        self.forget_removed_places(before, after);
        if !self.is_older(by) {
            self.found(early);
        }
    }

    /// Forgets the entries that a write removed, because a late join can restore a removed entry
    /// without its owner's knowledge.
    fn forget_removed_places(&mut self, before: &LockDocument, after: &LockDocument) {
        let holds =
            |lock: &LockDocument, claim: Claim| lock.holders.iter().any(|e| e.claim == claim);
        let places = &mut self.own.observer.places;
        places.retain(|claim, _| !holds(before, *claim) || holds(after, *claim));
    }

    /// Checks that only successful work is recorded. `at` is the time of the write.
    fn check_success(
        &mut self,
        (by, operation): (usize, &LockOperation),
        at: u64,
        after: &LockDocument,
    ) {
        let (LockOperation::Leave { claim, success, .. }
        | LockOperation::Keep { claim, success, .. }) = operation
        else {
            return;
        };
        let recorded = self.own.observer.left.entry((*claim, by)).or_default();
        *recorded |= success.is_some();
        if let Some(key) = success {
            let observer = &mut self.own.observer;
            let recorded = after.successes.iter().find(|it| it.key == *key);
            let dated = recorded.map_or(0, |it| u64::try_from(it.at.0).expect("not negative"));
            let successes = observer.successes.entry(key.clone()).or_default();
            successes.push(Success {
                dated: Duration::from_millis(dated),
                at,
            });
            let violation = once_per::recorded(observer.succeeded.contains(&(*claim, by)));
            self.found(violation);
        }
    }

    pub(super) fn work_succeeded(&mut self, process: usize, claim: Claim) {
        self.own.observer.succeeded.insert((claim, process));
    }

    pub(super) fn check_once_per(&mut self, process: usize) {
        let Some(OncePer { period, key }) = &self.processes[process].options.once_per else {
            return;
        };
        let successes = self.own.observer.successes.get(key);
        let success = successes.and_then(|it| it.last()).copied();
        let now = self.clock(process);
        let authority = self.processes[process].contender.authority_at(now);
        if let (Some(success), Some(authority)) = (success, authority) {
            // The store performed the acquiring write after the process had sent the write, at an
            // unknown time.
            let deadline = self.processes[process].options.timings.renew_deadline();
            let sent = authority.valid_until.since(BootTime::default() + deadline);
            let sent = self.true_time(process, BootTime::default() + sent);
            let readings = self.store_readings(sent.max(success.at));
            self.found(once_per::begun(success.dated, &readings, *period));
        }
    }

    /// Checks that the evicted entry was not live. On a forked machine, the owner is the twin that
    /// wrote the entry's revision.
    fn check_eviction(&mut self, evicted: EntryVersion) {
        let owner = self.live.iter().copied().find(|id| {
            let p = &self.processes[*id];
            let leaves = matches!(p.contender.status().standing, Standing::Leaving);
            let wrote = p.ledger.sent_revision(evicted.revision);
            p.contender.claim() == evicted.claim && wrote && !leaves
        });
        let Some(owner) = owner else { return };
        let p = &self.processes[owner];
        // A waiter's clock may be slow, so an eviction that is on time by this clock may be late by
        // true time.
        let lease = p.options.timings.lease_duration() * 2;
        let lease = u64::try_from(lease.as_nanos()).expect("short");
        self.found(live_entries_stay::check(live_entries_stay::Taken {
            owner_runs: p.running_since + lease <= self.now,
            reliable: self.faults.is_reliable(),
            stored: false,
            evicted: true,
        }));
    }

    /// Checks a claim that its owner reports as lost. The store must not contain the claim with a
    /// revision of the owner.
    fn check_lost(&mut self, process: usize, claim: Claim) {
        let ledger = &self.processes[process].ledger;
        let entry = self.committed_entry(claim);
        // If the store applies a join after the owner's other calls, the owner does not know of the
        // new entry. Twins share one entry, so one twin's leave may remove the entry of both. The
        // remaining twin has then lost its entry, even if a late join restores the entry and this
        // twin renews it.
        let stored = entry.is_some_and(|entry| {
            ledger.sent_revision(entry.revision) && !ledger.is_late_join(entry.revision)
        }) && !self.has_twin_that_left(process, claim);
        self.found(live_entries_stay::check(live_entries_stay::Taken {
            owner_runs: true,
            reliable: false,
            stored,
            evicted: false,
        }));
    }

    /// Returns true if the machine was forked and the other twin has left with the shared claim.
    fn has_twin_that_left(&self, process: usize, claim: Claim) -> bool {
        let mut left = self.own.observer.left.keys();
        self.is_of_twins(claim) && left.any(|(left, by)| *left == claim && *by != process)
    }

    pub(super) fn check_loss(&mut self, process: usize, loss: Loss) {
        if loss == Loss::Rejected {
            let claim = self.processes[process].contender.claim();
            self.check_lost(process, claim);
        }
    }

    pub(super) fn check_notice(&mut self, process: usize, notice: &LockNotice) {
        match notice {
            // The contender has already chosen its next claim, so the check uses the previous
            // claim.
            LockNotice::PlaceLost => {
                if let Some(claim) = self.processes[process].ledger.newest_claim() {
                    self.check_lost(process, claim);
                }
            }
            LockNotice::Duplicate { .. } if self.is_twin(process) => {}
            LockNotice::Duplicate { .. } | LockNotice::StoreRolledBack { .. } => {
                let evidence = format!("p{process} says {notice:?}");
                self.found(violation("notices are true", evidence));
            }
            LockNotice::Evicted { .. }
            | LockNotice::QueueFull
            | LockNotice::InvalidLeaseDuration { .. }
            | LockNotice::TokensExhausted => {}
        }
    }

    pub(super) fn check_exit(&mut self, process: usize, end: &End) {
        let now = self.clock(process);
        let p = &self.processes[process];
        if let (End::Skipped { ago }, Some(once)) = (end, &p.options.once_per) {
            let successes = self.own.observer.successes.get(&once.key);
            let successes = successes.map_or(&[][..], Vec::as_slice);
            let violation = once_per::skipped(!successes.is_empty(), *ago, once.period);
            let is_due = |success: &Success| {
                let readings = self.store_readings(success.at.max(p.started_at));
                once_per::skips(success.dated, &readings, once.period)
            };
            let due = successes.iter().any(is_due);
            let violation = violation.or_else(|| once_per::ends(due, once.period));
            self.found(violation);
        }
        if let End::Released = end {
            let p = &self.processes[process];
            let claim = p.contender.claim();
            let observer = &self.own.observer;
            let left = observer.left.get(&(claim, process)).copied();
            let released = releases_are_true::Released {
                left: left.is_some(),
                unanswered: p.ledger.has_unanswered_leave(),
                succeeded: p.options.once_per.is_some()
                    && observer.succeeded.contains(&(claim, process)),
                recorded: left == Some(true),
            };
            self.found(releases_are_true::check(released));
        }
        let p = &self.processes[process];
        let gone = matches!(end, End::Lost(Loss::Rejected | Loss::StoreRolledBack));
        let lease = p.options.timings.lease_duration();
        let behind = p.ledger.leaves_behind(p.contender.claim(), now, lease);
        if behind && !gone {
            let evidence = format!("p{process} ends without a leave: {end:?}");
            self.found(violation("leaves are repeated", evidence));
        }
    }

    pub(super) fn check_evictions(&mut self) {
        if self.now < self.own.observer.looks_at || !(self.calm || self.faults.is_reliable()) {
            return;
        }
        self.own.observer.looks_at = self.now + LOOK;
        for waiter in self.live.clone() {
            let p = &self.processes[waiter];
            let status = p.contender.status();
            if !matches!(status.standing, Standing::Waiting { .. }) {
                continue;
            }
            let waited = self.clock(waiter).since(status.since);
            let waited = self.stretched(p.seat, waited);
            let mut from = self.now.saturating_sub(waited).max(p.running_since);
            if !self.faults.is_reliable() {
                from = from.max(self.own.observer.healed_at);
            }
            let timings = p.options.timings;
            let own = p.contender.claim();
            let others = self.own.observer.entries.iter().filter(|(c, _)| **c != own);
            let violation = others.clone().find_map(|(_, entry)| {
                let unchanged = self.now.saturating_sub(entry.since.max(from));
                expired_entries_are_evicted::check(
                    Duration::from_nanos(unchanged),
                    expired_entries_are_evicted::Patience {
                        declared: entry.declared(),
                        longest: timings.lease_duration(),
                        operation_timeout: timings.operation_timeout(),
                        slowest: self.own.observer.slowest,
                    },
                )
            });
            self.found(violation);
        }
        if self.own.brisk && !self.calm {
            self.check_brisk_traffic();
        }
    }

    /// Checks evictions under brisk traffic, in which no contender waits for a whole lease
    /// duration. Once a job of a machine has observed an entry and the entry has expired, a later
    /// job of this machine must evict the entry.
    fn check_brisk_traffic(&mut self) {
        let violation = self.machines.iter().find_map(|seat| {
            let now = self.now;
            let answered = seat.timings.operation_timeout();
            let answered = u64::try_from(answered.as_nanos()).expect("short");
            self.own.observer.entries.values().find_map(|entry| {
                let wait = entry.declared() * 1000 / self.own.observer.slowest;
                let wait = u64::try_from(wait.as_nanos()).expect("short");
                // A call can last until its timeout, so the state in a reply can be that old.
                let known = entry.since + answered;
                let shown = seat.done.iter().find(|job| job.from >= known)?;
                let due = shown.from + wait;
                let mut after = seat.done.iter().filter(|job| job.from >= due.max(shown.to));
                // The first of these jobs may have received the entry in a reply that was
                // concurrent with an eviction of the entry. Therefore, the check requires the
                // eviction only from the second job.
                let evicts = after.nth(1)?;
                expired_entries_are_evicted::under_brisk_traffic(
                    Duration::from_nanos(now.saturating_sub(evicts.from)),
                    Duration::from_nanos(answered),
                )
            })
        });
        self.found(violation);
    }
}
