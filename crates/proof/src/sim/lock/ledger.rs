//! Records the messages that one process sent and received, for the checks. The ledger does not
//! depend on the state machine.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::entries::{self, Entries, ObservedEntry};
use super::invariants::{
    authority_from_acknowledged_writes as authority_rule, calls_are_paced, evictions_are_due,
    own_writes,
};
use crate::election::{Authority, BootTime, CallId, Claim, Revision, Token};
use crate::lock::{
    EntryState, FoundLock, Grant, Hint, LockDocument, LockInput, LockOperation, LockOutcome,
    LockStatus, Observation, Observations, Options, Standing,
};
use crate::proof::sim::invariants::Violation;

#[derive(Clone)]
pub(super) struct Sent {
    pub(super) operation: LockOperation,
    at: BootTime,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Doing {
    pub(super) holds: bool,
    pub(super) works: bool,
}

#[derive(Clone, Default)]
pub(super) struct Ledger {
    sent: BTreeMap<u64, Sent>,
    newest: u64,
    token: Token,
    shown: Entries<BootTime>,
    seen: BTreeSet<Claim>,
    /// The process's own claims that a trusted reply showed. A reply is trusted if it is newer
    /// than the recorded document, or answers a write.
    present: BTreeSet<Claim>,
    ended: BTreeSet<Claim>,
    /// The time when the authority of each claim ends according to acknowledged writes.
    backed: BTreeMap<Claim, BootTime>,
    /// The newest write, if the store rejected it. The process must receive the answer to a read
    /// before it writes again.
    must_read: Option<u64>,
    newest_write: u64,
    open_joins: BTreeMap<u64, Claim>,
    acknowledged_joins: BTreeSet<Revision>,
    left: Option<(BootTime, bool)>,
    leave_unanswered: bool,
    gave_up: bool,
    renew_deadline: Duration,
    newest_call: (u64, BootTime),
    prompted: bool,
    /// The number of consecutive calls that each immediately followed the previous answer.
    unpaced: usize,
}

/// Returns the sender's claim, and the revision that the write would leave in the sender's entry.
pub(super) fn revision_of(operation: &LockOperation) -> Option<(Claim, Revision)> {
    match operation {
        LockOperation::Join { entry, .. } => Some((entry.claim, entry.revision)),
        LockOperation::Renew {
            claim, revision, ..
        }
        | LockOperation::Keep {
            claim, revision, ..
        } => Some((*claim, *revision)),
        LockOperation::Evict { me, .. } => me.map(|me| (me.claim, me.revision)),
        _ => None,
    }
}

impl Ledger {
    /// Creates the ledger of a process. The process starts with the observations of the previous
    /// process on its machine, and with the highest token that the machine remembers.
    pub(super) fn remembering(observations: &Observations, token: Token) -> Self {
        let shown = |observation: &Observation| ObservedEntry {
            revision: observation.revision,
            holds: observation.state != EntryState::Waiting,
            confirmed: matches!(observation.state, EntryState::Held | EntryState::Kept),
            lease_duration: observation.lease_duration,
            min_hold: Duration::ZERO,
            work_done: observation.state == EntryState::Kept,
            since: observation.since,
            kept_until: observation.kept_until,
        };
        let shown = observations.iter().map(|(claim, s)| (claim, shown(s)));
        Self {
            token,
            shown: shown.collect(),
            ..Self::default()
        }
    }

    /// Records an input before the process handles it. `status` is the state before the input.
    pub(super) fn before(&mut self, now: BootTime, input: &LockInput, status: &LockStatus) {
        if let Standing::Held(authority) = &status.standing
            && authority.valid_until <= now
        {
            self.ended.insert(status.claim);
        }
        self.prompted =
            matches!(input, LockInput::Reply { call, .. } if call.0 == self.newest_call.0);
        match input {
            LockInput::Reply { call, outcome } => self.received(*call, outcome, status.claim, now),
            LockInput::Hint(Hint::Granted(grant)) => {
                self.credit_grant(status.claim, *grant);
            }
            LockInput::GiveUp => self.gave_up |= status.standing != Standing::Leaving,
            _ => {}
        }
    }

    /// Credits the provisional authority of a grant. The authority counts from the time when the
    /// granted revision was sent.
    fn credit_grant(&mut self, claim: Claim, grant: Option<Grant>) {
        let carried = |sent: &&Sent| {
            grant.is_some_and(|g| revision_of(&sent.operation) == Some((claim, g.revision)))
        };
        if let Some(sent) = self.sent.values().find(carried)
            && !self.ended.contains(&claim)
        {
            let until = sent.at + self.renew_deadline / 8;
            let backed = self.backed.entry(claim).or_insert(until);
            *backed = until.max(*backed);
        }
    }

    fn received(&mut self, call: CallId, outcome: &LockOutcome, claim: Claim, now: BootTime) {
        let Some(sent) = self.sent.get(&call.0) else {
            return;
        };
        let operation = sent.operation.clone();
        let sent_at = sent.at;
        if *outcome != LockOutcome::Unknown {
            self.open_joins.remove(&call.0);
        }
        match outcome {
            LockOutcome::Applied(found) => {
                if matches!(operation, LockOperation::Read { .. })
                    && self.must_read.is_some_and(|at| call.0 > at)
                {
                    self.must_read = None;
                }
                if let LockOperation::Join { entry, .. } = &operation {
                    self.acknowledged_joins.insert(entry.revision);
                }
                if let FoundLock::Lock(lock) = found {
                    self.credit(&operation, sent_at, lock);
                    self.see(call, lock, claim, now);
                }
            }
            LockOutcome::Rejected => {
                // Once a document has shown the claim, a rejection of the claim's join requires no
                // read.
                let reads = match &operation {
                    LockOperation::Join { entry, .. } => !self.present.contains(&entry.claim),
                    LockOperation::Renew { .. } | LockOperation::Evict { .. } => true,
                    _ => false,
                };
                let mine = revision_of(&operation).is_some_and(|(of, _)| of == claim);
                if reads && mine && call.0 == self.newest_write {
                    self.must_read = Some(call.0);
                }
            }
            LockOutcome::PrimaryOnly | LockOutcome::Failed | LockOutcome::Unknown => {}
        }
        if let (LockOperation::Leave { .. } | LockOperation::Keep { .. }, Some((_, resolved))) =
            (&operation, &mut self.left)
        {
            *resolved |= matches!(outcome, LockOutcome::Applied(_) | LockOutcome::Rejected);
            self.leave_unanswered |= *outcome == LockOutcome::Unknown;
        }
    }

    /// Credits the authority of an acknowledged write if the stored entry has the write's revision
    /// and a token.
    fn credit(&mut self, operation: &LockOperation, sent: BootTime, lock: &LockDocument) {
        let Some((claim, revision)) = revision_of(operation) else {
            return;
        };
        let mut holders = lock.holders.iter();
        let confirmed =
            holders.any(|e| (e.claim, e.revision) == (claim, revision) && e.token.is_some());
        if confirmed && !self.ended.contains(&claim) {
            let until = sent + self.renew_deadline;
            let backed = self.backed.entry(claim).or_insert(until);
            *backed = until.max(*backed);
        }
    }

    fn see(&mut self, call: CallId, lock: &LockDocument, claim: Claim, now: BootTime) {
        for entry in &lock.holders {
            self.credit_grant(entry.claim, entry.unconfirmed_grant());
        }
        let own: BTreeSet<Claim> = self.writes().map(|(claim, _)| claim).collect();
        let sent = self.sent.get(&call.0);
        let writes = sent.is_some_and(|s| revision_of(&s.operation).is_some());
        let newer = call.0 > self.newest && lock.token >= self.token;
        let told = newer || writes;
        for entry in entries::all(lock).filter(|entry| own.contains(&entry.claim)) {
            // An old reply may show a claim that has been removed since.
            self.seen.insert(entry.claim);
            if told {
                self.present.insert(entry.claim);
            }
        }
        let shown = entries::shown(lock, now, &self.shown);
        // A plain read looks stale if it lacks the process's own claim although the claim was
        // present, or if it shows a lower token. Stale reads and superseded linearizable reads are
        // not recorded.
        let is_read = |sent: &Sent| matches!(sent.operation, LockOperation::Read { .. });
        let newest_read = self.sent.iter().rfind(|(_, sent)| is_read(sent));
        let plain = match self.sent.get(&call.0).map(|s| &s.operation) {
            Some(LockOperation::Read { confirm }) => {
                !confirm || newest_read.is_some_and(|(newest, _)| *newest != call.0)
            }
            _ => false,
        };
        let gone = self.present.contains(&claim) && !shown.contains_key(&claim);
        let doubted = plain && (gone || lock.token < self.token);
        self.token = self.token.max(lock.token);
        if call.0 > self.newest && !doubted {
            self.newest = call.0;
            self.shown = shown;
        }
    }

    pub(super) fn after(
        &mut self,
        authority: Option<Authority>,
        status: &LockStatus,
    ) -> Option<Violation> {
        if status.standing == Standing::Leaving {
            self.left.get_or_insert((status.since, false));
        }
        let authority = authority?;
        authority_rule::check(authority_rule::Claimed {
            valid_until: authority.valid_until,
            backed: self.backed.get(&status.claim).copied(),
            ended: self.ended.contains(&status.claim),
        })
    }

    pub(super) fn send(
        &mut self,
        call: CallId,
        operation: &LockOperation,
        at: BootTime,
        state: Doing,
        options: &Options,
    ) -> Option<Violation> {
        self.renew_deadline = options.timings.renew_deadline();
        // Jitter shortens a retry interval by at most a fifth.
        let pause = options.timings.retry_interval() * 4 / 5;
        let unpaced = self.prompted && at.since(self.newest_call.1) < pause;
        self.unpaced = if unpaced { self.unpaced + 1 } else { 1 };
        self.newest_call = (call.0, at);
        let violation = calls_are_paced::check(self.unpaced);
        let violation = violation.or(self.judge(operation, at, state, options));
        match operation {
            LockOperation::Leave { claim, .. } | LockOperation::Keep { claim, .. } => {
                self.ended.insert(*claim);
                self.left.get_or_insert((at, false));
            }
            LockOperation::Join { entry, .. } => {
                self.open_joins.insert(call.0, entry.claim);
                self.left = None;
            }
            _ => {}
        }
        if !matches!(operation, LockOperation::Read { .. }) {
            self.newest_write = call.0;
        }
        let operation = operation.clone();
        self.sent.insert(call.0, Sent { operation, at });
        violation
    }

    fn judge(
        &self,
        operation: &LockOperation,
        at: BootTime,
        state: Doing,
        options: &Options,
    ) -> Option<Violation> {
        if let LockOperation::Evict { entries, .. } = operation {
            let unripe = entries.iter().find_map(|pair| {
                evictions_are_due::check(evictions_are_due::Eviction {
                    pair: *pair,
                    shown: self.shown.get(&pair.claim).copied(),
                    at,
                    operation_timeout: options.timings.operation_timeout(),
                })
            });
            if unripe.is_some() {
                return unripe;
            }
        }
        let claim = match operation {
            LockOperation::Join { entry, .. } => Some(entry.claim),
            LockOperation::Renew { claim, .. }
            | LockOperation::Keep { claim, .. }
            | LockOperation::Leave { claim, .. } => Some(*claim),
            _ => None,
        };
        let open = |other: &Claim| Some(*other) != claim && !self.seen.contains(other);
        own_writes::check(own_writes::Write {
            operation: operation.as_str(),
            ended: claim.is_some_and(|claim| self.ended.contains(&claim)),
            present: claim.is_some_and(|claim| self.present.contains(&claim)),
            other_join_open: self.open_joins.values().any(open),
            unread_rejection: self.must_read.is_some(),
            holds: state.holds,
            works: state.works,
            gave_up: self.gave_up,
        })
    }

    /// Returns true if the outcome of a leave is or was unknown, or if two leaves were in flight.
    pub(super) fn has_unanswered_leave(&self) -> bool {
        let leaves = self.sent.values().filter(|sent| {
            matches!(
                sent.operation,
                LockOperation::Leave { .. } | LockOperation::Keep { .. }
            )
        });
        self.leave_unanswered || leaves.count() > 1
    }

    /// Returns true if an entry of this claim may stay in the document if the process ends now.
    pub(super) fn leaves_behind(
        &self,
        claim: Claim,
        now: BootTime,
        lease_duration: Duration,
    ) -> bool {
        let open = self.open_joins.values().any(|other| *other == claim);
        let stored = open || self.present.contains(&claim);
        let done =
            |(first, resolved): (BootTime, bool)| resolved || now.since(first) >= lease_duration;
        stored && !self.left.is_some_and(done)
    }

    fn writes(&self) -> impl DoubleEndedIterator<Item = (Claim, Revision)> {
        let sent = self.sent.values();
        sent.filter_map(|sent| revision_of(&sent.operation))
    }

    pub(super) fn newest_claim(&self) -> Option<Claim> {
        self.writes().next_back().map(|(claim, _)| claim)
    }

    /// Returns true if this revision belongs to a join that was not acknowledged.
    pub(super) fn is_late_join(&self, revision: Revision) -> bool {
        let joined = self.sent.values().any(
            |s| matches!(&s.operation, LockOperation::Join { entry, .. } if entry.revision == revision),
        );
        joined && !self.acknowledged_joins.contains(&revision)
    }

    pub(super) fn sent_revision(&self, revision: Revision) -> bool {
        self.writes().any(|(_, sent)| sent == revision)
    }
}
