//! The calls of a contender, and the facts that replies have shown. This module decides nothing.

use std::collections::VecDeque;
use std::time::Duration;

use super::reads::{ClaimStream, LockReads};
use crate::claim::IN_FLIGHT_MAX;
use crate::election::{BootTime, CallId, Claim, Declared, Randomness, Revision, Session, Timings};
use crate::lock::claim_writes::{ClaimWrites, WritePurpose};
use crate::lock::observations::Patience;
use crate::lock::view::{EntryPlace, LockView};
use crate::lock::{
    End, Ending, FoundLock, LockDocument, LockNotice, LockOperation, LockOutcome, LockTurn,
    MinHold, NewEntry, Observation, Options, WorkKey, Writer,
};

/// Delay between the evictions that successive waiters send. Covers several round trips to a nearby
/// store.
const STAGGER: Duration = Duration::from_millis(200);
/// Highest position that increases the delay, so that an expired entry is evicted in bounded time.
const STAGGERED_MAX: usize = 8;
/// Maximum number of evictions with an unknown outcome that await a late reply.
const UNANSWERED_MAX: usize = 4;

#[derive(Debug, Clone)]
pub(super) struct Exchange {
    pub(super) options: Options,
    pub(super) session: Session,
    pub(super) view: LockView,
    pub(super) writes: ClaimWrites,
    evictions: Evictions,
    pub(super) reads: LockReads,
    pub(super) stream: ClaimStream,
    /// End of the minimum hold; `None` before the acquisition, and without a minimum hold.
    pub(super) keeps_until: Option<BootTime>,
    pub(super) succeeded: bool,
    pub(super) retry_at: BootTime,
}

impl Exchange {
    pub(super) fn new(options: Options, now: BootTime, random: &mut dyn Randomness) -> Self {
        Self {
            session: Session::random(random),
            view: LockView::new(&options),
            writes: ClaimWrites::new(Claim::random(random)),
            evictions: Evictions::default(),
            reads: LockReads::default(),
            stream: ClaimStream::default(),
            keeps_until: None,
            succeeded: false,
            retry_at: now,
            options,
        }
    }

    pub(super) fn claim_anew(&mut self, turn: &mut LockTurn<'_>) {
        let fresh = Claim::random(turn.random);
        self.writes = ClaimWrites::new(planted!(ClaimReused, self.writes.claim, fresh));
        // The new claim's token must exceed every token known so far.
        self.view.token_floor = self.view.marks.token_highest;
        self.evictions.abandon();
        // The stream still follows the previous claim.
        self.stop_watching(turn);
    }

    pub(super) fn follow(&mut self, turn: &mut LockTurn<'_>) {
        self.stream.follow(self.writes.claim, turn.effects);
    }

    pub(super) fn stop_watching(&mut self, turn: &mut LockTurn<'_>) {
        self.reads = LockReads::default();
        self.stream.close(turn.effects);
    }

    pub(super) fn is_busy(&self) -> bool {
        self.writes.sent.in_flight() > 0 || self.is_evicting() || self.reads.behind
    }

    pub(super) fn is_evicting(&self) -> bool {
        self.evictions.in_flight.is_some()
    }

    pub(super) fn retry(&self, turn: &mut LockTurn<'_>) -> BootTime {
        turn.now + turn.jittered(self.options.timings.retry_interval())
    }

    pub(super) fn pause_writes(&mut self, turn: &mut LockTurn<'_>) {
        self.retry_at = self.retry(turn);
    }

    /// Records a write that carries a revision of the claim. The caller must send the write next.
    fn send_revision(&mut self, purpose: WritePurpose, turn: &mut LockTurn<'_>) -> Revision {
        let call = turn.effects.next_call();
        let fresh = Revision::random(turn.random);
        self.writes.send(call, purpose, fresh, turn.now)
    }

    pub(super) fn create(&self, turn: &mut LockTurn<'_>) -> CallId {
        let seen = self.view.marks.token_highest;
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
            seen: self.view.marks.token_highest,
            token_min: self.view.token(),
            non_blocking: self.options.non_blocking,
        });
    }

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

    pub(super) fn begin_work(&mut self, now: BootTime) {
        let min_hold = self.options.min_hold;
        self.keeps_until = (min_hold != MinHold::NONE).then(|| now + min_hold.get());
    }

    pub(super) fn min_hold_left(&self, now: BootTime) -> Option<Duration> {
        self.keeps_until.map(|until| until.since(now))
    }

    pub(super) fn success(&self) -> Option<WorkKey> {
        let once_per = self.options.once_per.as_ref();
        once_per.filter(|_| self.succeeded).map(|it| it.key.clone())
    }

    /// Marks the entry's work as done. The entry stays among the holders for `rest`.
    pub(super) fn keep(&mut self, rest: Duration, turn: &mut LockTurn<'_>) -> CallId {
        let mine = self.writes.mine();
        let revision = self.send_revision(WritePurpose::Keep, turn);
        let call = turn.effects.send(LockOperation::Keep {
            claim: self.writes.claim,
            revision,
            mine,
            min_hold: rest,
            success: self.success(),
        });
        // Unlike a renewal, this write does not delay later writes.
        self.writes.open(call);
        call
    }

    pub(super) fn leave(&self, turn: &mut LockTurn<'_>) -> CallId {
        turn.effects.send(LockOperation::Leave {
            claim: self.writes.claim,
            mine: self.writes.mine(),
            seen: self.view.marks.token_highest,
            success: self.success(),
            slots: self.options.mode.slots(),
        })
    }

    pub(super) fn evict(
        &mut self,
        entries: Vec<(Claim, Observation)>,
        may_be_granted: bool,
        turn: &mut LockTurn<'_>,
    ) {
        let me = may_be_granted.then(|| {
            let revision = self.send_revision(WritePurpose::Evict, turn);
            let claim = self.writes.claim;
            Writer { claim, revision }
        });
        let call = turn.effects.send(LockOperation::Evict {
            entries: entries.iter().map(|(claim, o)| o.seen(*claim)).collect(),
            me,
            ending: Ending::Expired,
            seen: self.view.marks.token_highest,
        });
        self.evictions.in_flight = Some(Eviction { call, entries });
    }

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

    /// Lets a holder evict expired entries. If acquisitions are frequent, no waiter waits long
    /// enough to see an entry expire.
    pub(super) fn evict_as_holder(&mut self, turn: &mut LockTurn<'_>) {
        let patience = patience(&self.options.timings, 0);
        let expired = self.view.observations.expired(patience, turn.now);
        if !self.is_evicting() && !expired.is_empty() {
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

    /// Records the facts that a reply proves. Returns true if `call` is the eviction in flight.
    pub(super) fn note(
        &mut self,
        call: CallId,
        outcome: &LockOutcome,
        reports: bool,
        turn: &mut LockTurn<'_>,
    ) -> bool {
        self.view.note_reply(outcome, self.writes.claim);
        let (was_in_flight, evicted) = self.evictions.reply(call, outcome, &mut self.view);
        for entry in evicted.into_iter().filter(|_| reports) {
            turn.effects.notice(LockNotice::Evicted {
                identity: entry.identity,
                token: entry.token,
                state: entry.state,
                silent: turn.now.since(entry.since),
            });
        }
        was_in_flight
    }

    pub(super) fn take(&mut self, call: CallId, lock: LockDocument, turn: &mut LockTurn<'_>) {
        let mine = Some(self.writes.claim);
        let invalid = self.view.observations.note(&lock, mine, turn.now);
        self.view.call = call.0;
        self.view.lock = Some(lock);
        for (identity, millis) in invalid {
            let notice = LockNotice::InvalidLeaseDuration { identity, millis };
            turn.effects.notice(notice);
        }
    }

    /// Records the document if it is new, without a decision about the claim.
    pub(super) fn take_news(&mut self, call: CallId, lock: LockDocument, turn: &mut LockTurn<'_>) {
        if self.view.is_news(call) && lock.token >= self.view.token() {
            self.take(call, lock, turn);
        }
    }

    pub(super) fn busy(&self) -> End {
        let (holding, waiting, ahead) = self.view.ahead(self.writes.claim);
        End::Busy {
            holding,
            waiting,
            ahead,
        }
    }

    pub(super) fn check_invariants(&self) {
        let n = self.writes.sent.in_flight();
        assert!(n <= IN_FLIGHT_MAX, "{n} writes of a claim are in flight");
        let reads = !self.reads.behind || self.reads.is_active();
        assert!(reads, "a contender is behind, but no read is due");
    }
}

#[cfg(proof)]
impl Exchange {
    /// Adds the state to `form`, except the settings and the session.
    pub(super) fn compare(&self, now: BootTime, form: &mut impl super::Form) {
        let Self {
            options: _,
            session: _,
            view,
            writes,
            evictions,
            reads,
            stream,
            keeps_until,
            succeeded,
            retry_at,
        } = self;
        form.put(&(*keeps_until, *succeeded));
        view.compare(form);
        writes.compare(form);
        evictions.compare(form);
        reads.compare(form);
        form.put(&now.max(*retry_at));
        stream.compare(form);
    }
}

#[derive(Debug, Clone, Default)]
struct Evictions {
    in_flight: Option<Eviction>,
    /// Evictions whose outcome is unknown, oldest first. A late reply may still show the evicted
    /// entries.
    unanswered: VecDeque<Eviction>,
}

#[derive(Debug, Clone, Hash)]
struct Eviction {
    call: CallId,
    entries: Vec<(Claim, Observation)>,
}

fn patience(timings: &Timings, position: usize) -> Patience {
    let places = u32::try_from(position.min(STAGGERED_MAX)).unwrap_or(0);
    Patience {
        claim_time: timings.operation_timeout(),
        stagger: STAGGER * places,
    }
}

impl Evictions {
    /// Records a reply. Returns a flag, which is true if the reply answers the eviction in flight,
    /// and the evicted entries.
    fn reply(
        &mut self,
        call: CallId,
        outcome: &LockOutcome,
        view: &mut LockView,
    ) -> (bool, Vec<Observation>) {
        let in_flight = self.in_flight.take_if(|eviction| eviction.call == call);
        let was_in_flight = in_flight.is_some();
        let late = self.unanswered.iter().position(|e| e.call == call);
        let late = late.and_then(|late| self.unanswered.remove(late));
        let Some(eviction) = in_flight.or(late) else {
            return (false, Vec::new());
        };
        let mut evicted = Vec::new();
        match outcome {
            LockOutcome::Applied(FoundLock::Lock(lock)) => {
                let gone = |claim| EntryPlace::of(claim, lock) == EntryPlace::Absent;
                let entries = eviction.entries.into_iter();
                evicted.extend(entries.filter(|e| gone(e.0)).map(|e| e.1));
            }
            // No entry matched, so the contender waits again for each entry to expire.
            LockOutcome::Rejected if was_in_flight => {
                view.observations
                    .forget(eviction.entries.iter().map(|(claim, _)| *claim));
            }
            LockOutcome::Unknown => self.await_late(eviction),
            LockOutcome::Applied(_)
            | LockOutcome::PrimaryOnly
            | LockOutcome::Rejected
            | LockOutcome::Failed => {}
        }
        (was_in_flight, evicted)
    }

    fn await_late(&mut self, eviction: Eviction) {
        if self.unanswered.len() == UNANSWERED_MAX {
            self.unanswered.pop_front();
        }
        self.unanswered.push_back(eviction);
    }

    fn abandon(&mut self) {
        if let Some(eviction) = self.in_flight.take() {
            self.await_late(eviction);
        }
    }

    #[cfg(proof)]
    fn compare(&self, form: &mut impl super::Form) {
        // Omits unanswered evictions, because late replies to them cause only notices.
        form.put(&self.in_flight);
    }
}
