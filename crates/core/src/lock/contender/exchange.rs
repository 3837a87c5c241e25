//! The exchange of a contender with the store: its calls, and the facts that replies have shown.
//!
//! Nothing here decides about the claim. The states of a contender send calls, and read known facts,
//! through this type.

use std::time::Duration;

use super::evictions::{Evictions, patience};
use super::reads::LockReads;
use super::stream::ClaimStream;
use crate::claim::IN_FLIGHT_MAX;
use crate::election::{BootTime, CallId, Claim, Declared, Randomness, Revision, Session};
use crate::lock::claim_writes::{ClaimWrites, WritePurpose};
use crate::lock::document::LockDocument;
use crate::lock::effect::{LockNotice, LockTurn};
use crate::lock::input::Options;
use crate::lock::observations::Observation;
use crate::lock::operation::{LockOperation, LockOutcome, NewEntry};
use crate::lock::status::End;
use crate::lock::success::WorkKey;
use crate::lock::view::LockView;

#[derive(Debug, Clone)]
pub(super) struct Exchange {
    pub(super) options: Options,
    pub(super) session: Session,
    pub(super) view: LockView,
    pub(super) writes: ClaimWrites,
    pub(super) evictions: Evictions,
    pub(super) reads: LockReads,
    pub(super) stream: ClaimStream,
    /// Earliest instant of the next write. Renewals of a holder ignore it, because authority
    /// depends on them.
    pub(super) retry_at: BootTime,
}

impl Exchange {
    pub(super) fn new(options: Options, now: BootTime, random: &mut dyn Randomness) -> Self {
        let lease_duration = options.timings.lease_duration();
        let observations = options.observations.clone();
        Self {
            session: Session::random(random),
            view: LockView::new(options.token_remembered, lease_duration, observations),
            writes: ClaimWrites::new(Claim::random(random)),
            evictions: Evictions::default(),
            reads: LockReads::none(),
            stream: ClaimStream::default(),
            retry_at: now,
            options,
        }
    }

    /// Continues with a new claim, which nothing has shown yet.
    pub(super) fn claim_anew(&mut self, turn: &mut LockTurn<'_>) {
        let fresh = Claim::random(turn.random);
        let claim = if planted!(ClaimReused) {
            self.writes.claim
        } else {
            fresh
        };
        self.writes = ClaimWrites::new(claim);
        self.view.claims_anew();
        self.evictions.abandon();
        // The stream follows the previous claim.
        self.stop_watching(turn);
    }

    pub(super) fn follow(&mut self, turn: &mut LockTurn<'_>) {
        self.stream.follow(self.writes.claim, turn.effects);
    }

    pub(super) fn stop_watching(&mut self, turn: &mut LockTurn<'_>) {
        self.reads = LockReads::none();
        self.stream.close(turn.effects);
    }

    /// Returns true if no contending write may be sent before a reply.
    pub(super) fn is_busy(&self) -> bool {
        self.writes.in_flight() > 0 || self.evictions.is_in_flight() || self.reads.behind
    }

    /// Returns an instant one retry interval ahead.
    pub(super) fn retry(&self, turn: &mut LockTurn<'_>) -> BootTime {
        turn.now + turn.jittered(self.options.timings.retry_interval())
    }

    /// Delays the next write of a contender without authority.
    pub(super) fn pause_writes(&mut self, turn: &mut LockTurn<'_>) {
        self.retry_at = self.retry(turn);
    }

    pub(super) fn read_if_due(&mut self, turn: &mut LockTurn<'_>) {
        self.reads.send_if_due(&self.view, turn);
    }

    /// Records a write that carries a revision of the claim. The next call must be this write.
    fn send_revision(&mut self, purpose: WritePurpose, turn: &mut LockTurn<'_>) -> Revision {
        let call = turn.effects.next_call();
        let fresh = Revision::random(turn.random);
        self.writes.send(call, purpose, fresh, turn.now)
    }

    pub(super) fn create(&self, turn: &mut LockTurn<'_>) -> CallId {
        let seen = self.view.marks.token_highest();
        turn.effects.send(LockOperation::Create { seen })
    }

    pub(super) fn join(&mut self, turn: &mut LockTurn<'_>) {
        let mode = self.options.mode;
        let entry = NewEntry {
            claim: self.writes.claim,
            session: self.session,
            mode: mode.entry_mode(),
            revision: self.send_revision(WritePurpose::Join, turn),
            slots: mode.slots(),
            lease_duration: Declared::of(self.options.timings.lease_duration()),
        };
        turn.effects.send(LockOperation::Join {
            entry,
            seen: self.view.marks.token_highest(),
            non_blocking: self.options.non_blocking,
        });
    }

    /// Renews the entry, and declares this rest of its minimum hold, if any.
    pub(super) fn renew(&mut self, min_hold: Option<Duration>, turn: &mut LockTurn<'_>) {
        let mine = self.writes.mine();
        let revision = self.send_revision(WritePurpose::Renew, turn);
        if min_hold.is_some() {
            self.writes.declared = true;
        }
        turn.effects.send(LockOperation::Renew {
            claim: self.writes.claim,
            revision,
            mine,
            seen: self.view.token_floor,
            min_hold,
        });
    }

    /// Marks the entry as one whose work has ended, while its place stays taken for `rest`.
    pub(super) fn keep(
        &mut self,
        rest: Duration,
        success: Option<WorkKey>,
        turn: &mut LockTurn<'_>,
    ) -> CallId {
        let mine = self.writes.mine();
        let revision = self.send_revision(WritePurpose::Keep, turn);
        let call = turn.effects.send(LockOperation::Keep {
            claim: self.writes.claim,
            revision,
            mine,
            min_hold: rest,
            success,
        });
        // Unlike a renewal, it is not awaited.
        self.writes.open(call);
        call
    }

    pub(super) fn leave(&self, success: Option<WorkKey>, turn: &mut LockTurn<'_>) -> CallId {
        turn.effects.send(LockOperation::Leave {
            claim: self.writes.claim,
            mine: self.writes.mine(),
            seen: self.view.marks.token_highest(),
            success,
            slots: self.options.mode.slots(),
        })
    }

    /// Evicts these entries. Without entries it only grants.
    pub(super) fn evict(
        &mut self,
        entries: Vec<(Claim, Observation)>,
        may_be_granted: bool,
        turn: &mut LockTurn<'_>,
    ) {
        let me = may_be_granted.then(|| {
            let revision = self.send_revision(WritePurpose::Evict, turn);
            self.writes.writer(revision)
        });
        let seen = self.view.marks.token_highest();
        self.evictions.send(entries, me, seen, turn.effects);
    }

    /// Evicts all entries that have expired for a waiter at `position`, or returns when the next
    /// one expires.
    pub(super) fn evict_if_due(
        &mut self,
        position: usize,
        turn: &mut LockTurn<'_>,
    ) -> Option<BootTime> {
        let patience = patience(&self.options.timings, position);
        let expired = self.view.observations.expired(patience, turn.now);
        if expired.is_empty() {
            return self.view.observations.next_expiry(patience);
        }
        self.evict(expired, self.writes.is_present(), turn);
        None
    }

    /// Evicts, as a holder, entries that the current reply shows to be unchanged for too long.
    ///
    /// Triggered by a reply instead of a timer: among many holders, the first one to receive a
    /// reply in time evicts, and the replies to the others show that it is done. Under brisk
    /// traffic no contender waits long enough to do it.
    pub(super) fn evict_as_holder(&mut self, turn: &mut LockTurn<'_>) {
        let patience = patience(&self.options.timings, 0);
        let expired = self.view.observations.expired(patience, turn.now);
        if !self.evictions.is_in_flight() && !expired.is_empty() {
            // A holder needs no grant, so this write carries no revision of its claim.
            self.evict(expired, false, turn);
        }
    }

    pub(super) fn next_expiry(&self, position: usize) -> Option<BootTime> {
        let patience = patience(&self.options.timings, position);
        self.view.observations.next_expiry(patience)
    }

    pub(super) fn any_expired(&self, now: BootTime) -> bool {
        self.next_expiry(0).is_some_and(|at| at <= now)
    }

    /// Records what any reply proves, even if the call is no longer awaited: the tokens in it were
    /// used, and entries were evicted. Returns true for the eviction in flight. A contender that
    /// has ended reports nothing.
    pub(super) fn note(
        &mut self,
        call: CallId,
        outcome: &LockOutcome,
        reports: bool,
        turn: &mut LockTurn<'_>,
    ) -> bool {
        self.view.note_reply(outcome, self.writes.claim);
        let evicted = self.evictions.reply(call, outcome, &mut self.view);
        for entry in evicted.entries.into_iter().filter(|_| reports) {
            turn.effects.notice(LockNotice::Evicted {
                identity: entry.identity,
                token: entry.token,
                state: entry.state,
                silent: turn.now.since(entry.since),
            });
        }
        evicted.was_in_flight
    }

    pub(super) fn take(&mut self, call: CallId, lock: LockDocument, turn: &mut LockTurn<'_>) {
        let invalid = self.view.take(call, lock, self.writes.claim, turn.now);
        for (identity, millis) in invalid {
            let notice = LockNotice::InvalidLeaseDuration { identity, millis };
            turn.effects.notice(notice);
        }
    }

    /// Records a document that decides nothing about the claim, if it is new.
    pub(super) fn take_news(&mut self, call: CallId, lock: LockDocument, turn: &mut LockTurn<'_>) {
        if self.view.is_news(call) && lock.token >= self.view.token() {
            self.take(call, lock, turn);
        }
    }

    /// Returns the end of a contender that would have to wait.
    pub(super) fn busy(&self) -> End {
        let (holding, waiting) = self.view.numbers_ahead(self.writes.claim);
        End::Busy {
            holding,
            waiting,
            ahead: self.view.ahead(self.writes.claim),
        }
    }

    pub(super) fn check_invariants(&self) {
        let in_flight = self.writes.in_flight();
        assert!(
            in_flight <= IN_FLIGHT_MAX,
            "{in_flight} writes of a claim are in flight"
        );
        assert!(
            !self.reads.behind || self.reads.is_active(),
            "a contender is behind and does not read"
        );
    }
}
