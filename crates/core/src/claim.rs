//! Code that leases and locks share: turns, calls, sent writes, reads, and detection of rollbacks.

use std::collections::VecDeque;
use std::time::Duration;

use crate::election::{
    BootTime, CallId, Declared, Effect, Found, JITTER_PERCENT, Randomness, Revision, Token,
};

/// Requested effects that the host has not taken yet, and the number of calls requested so far.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Outbox<E> {
    effects: VecDeque<E>,
    calls: u64,
}

impl<E> Default for Outbox<E> {
    fn default() -> Self {
        Self {
            effects: VecDeque::new(),
            calls: 0,
        }
    }
}

impl<E> Outbox<E> {
    pub(crate) fn calls(&self) -> u64 {
        self.calls
    }

    pub(crate) fn next_call(&self) -> CallId {
        CallId(self.calls + 1)
    }

    pub(crate) fn call(&mut self, effect: impl FnOnce(CallId) -> E) -> CallId {
        let id = self.next_call();
        self.calls = id.0;
        self.push(effect(id));
        id
    }

    pub(crate) fn push(&mut self, effect: E) {
        self.effects.push_back(effect);
    }

    pub(crate) fn extend(&mut self, effects: impl IntoIterator<Item = E>) {
        self.effects.extend(effects);
    }

    pub(crate) fn pop(&mut self) -> Option<E> {
        self.effects.pop_front()
    }
}

/// Outcome of a store call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Outcome<F = Found> {
    /// Acknowledged by a majority. Contains the document that the call wrote or read.
    Applied(F),
    /// Applied by the primary, but perhaps by no other member, so the write may be rolled back.
    /// Only a release for a named successor has this outcome.
    PrimaryOnly,
    /// The filter did not match; for a create, the document already exists.
    Rejected,
    /// The call was provably never sent.
    Failed,
    /// Any other result, such as a timeout or a write concern error. The write may have been
    /// applied, or may be applied later, so this outcome never grants or extends authority (I7).
    Unknown,
}

pub(crate) struct Turn<'a, E = Effect> {
    pub(crate) now: BootTime,
    pub(crate) random: &'a mut dyn Randomness,
    pub(crate) effects: &'a mut Outbox<E>,
}

impl<E> Turn<'_, E> {
    /// Returns `duration` with a jitter of up to 20 % in either direction.
    pub(crate) fn jittered(&mut self, duration: Duration) -> Duration {
        self.scaled(duration, 2 * JITTER_PERCENT * 10)
    }

    /// Returns `duration` shortened by up to 20 %, for delays that must not exceed a bound.
    pub(crate) fn shortened(&mut self, duration: Duration) -> Duration {
        self.scaled(duration, JITTER_PERCENT * 10)
    }

    pub(crate) fn up_to(&mut self, most: Duration) -> Duration {
        let nanos = most.as_nanos() + 1;
        Duration::from_nanos(u64::try_from(self.random.bits() % nanos).unwrap_or(0))
    }

    fn scaled(&mut self, duration: Duration, spread: u32) -> Duration {
        let drawn = self.random.bits() % (u128::from(spread) + 1);
        let per_mille = 1000 - JITTER_PERCENT * 10 + u32::try_from(drawn).unwrap_or(0);
        duration.saturating_mul(per_mille) / 1000
    }
}

pub(crate) fn earliest<const N: usize>(instants: [Option<BootTime>; N]) -> Option<BootTime> {
    instants.into_iter().flatten().min()
}

/// Maximum number of unanswered writes of a claim. After a change of primary, a second write is
/// sent without waiting for the first reply.
pub(crate) const IN_FLIGHT_MAX: usize = 2;

/// Writes that carried a revision of one claim, oldest first. A write is kept until its revision
/// provably cannot be in the document (I7). If there are more than `MAX` writes, the oldest write
/// after the first `KEPT` is dropped.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SentWrites<P, const MAX: usize, const KEPT: usize>(Vec<SentWrite<P>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SentWrite<P> {
    pub(crate) call: CallId,
    pub(crate) purpose: P,
    pub(crate) revision: Revision,
    pub(crate) sent: BootTime,
    pub(crate) state: WriteState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum WriteState {
    Awaited,
    /// The write was applied, may have been applied, or may still be applied.
    Open,
    /// The filter did not match, but may still match if the network delivers the write again.
    Rejected,
}

impl<P: Copy, const MAX: usize, const KEPT: usize> SentWrites<P, MAX, KEPT> {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Records a write that the caller sends now. Returns true if an older write was dropped.
    pub(crate) fn send(
        &mut self,
        call: CallId,
        purpose: P,
        revision: Revision,
        now: BootTime,
    ) -> bool {
        let is_full = self.0.len() == MAX;
        if is_full {
            self.0.remove(KEPT);
        }
        self.0.push(SentWrite {
            call,
            purpose,
            revision,
            sent: now,
            state: WriteState::Awaited,
        });
        is_full
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &SentWrite<P>> {
        self.0.iter()
    }

    pub(crate) fn revisions(&self) -> impl Iterator<Item = Revision> {
        self.0.iter().map(|write| write.revision)
    }

    pub(crate) fn carried(&self, revision: Revision) -> bool {
        self.revisions().any(|carried| carried == revision)
    }

    pub(crate) fn get(&self, call: CallId) -> Option<SentWrite<P>> {
        self.0.iter().find(|write| write.call == call).copied()
    }

    pub(crate) fn in_flight(&self) -> usize {
        let awaited = |write: &&SentWrite<P>| write.state == WriteState::Awaited;
        self.0.iter().filter(awaited).count()
    }

    pub(crate) fn is_newest(&self, call: CallId) -> bool {
        self.0.last().is_some_and(|write| write.call == call)
    }

    pub(crate) fn get_mut(&mut self, call: CallId) -> Option<&mut SentWrite<P>> {
        self.0.iter_mut().find(|write| write.call == call)
    }

    pub(crate) fn settle(&mut self, call: CallId, state: WriteState) {
        if let Some(write) = self.get_mut(call) {
            write.state = state;
        }
    }

    pub(crate) fn remove(&mut self, call: CallId) {
        self.0.retain(|write| write.call != call);
    }

    pub(crate) fn remove_until(&mut self, call: CallId) -> Option<SentWrite<P>> {
        let index = self.0.iter().position(|write| write.call == call)?;
        self.0.drain(..=index).next_back()
    }
}

/// The read in flight with its caller's note, and the instant of the next read.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct ReadSchedule<C> {
    pub(crate) in_flight: Option<ReadInFlight<C>>,
    pub(crate) due: Option<BootTime>,
    /// True if a read must precede the next write, because the known state may be outdated.
    pub(crate) behind: bool,
    /// True if the next read must be linearizable, because it must confirm a reply.
    pub(crate) suspicious: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ReadInFlight<C> {
    pub(crate) call: CallId,
    pub(crate) confirm: bool,
    pub(crate) token_known: Option<Token>,
    pub(crate) note: C,
}

impl<C> ReadSchedule<C> {
    /// Returns the instant of the next read; `None` if no read is scheduled, or while a read is in
    /// flight.
    pub(crate) fn next(&self) -> Option<BootTime> {
        self.due.filter(|_| self.in_flight.is_none())
    }

    pub(crate) fn is_active(&self) -> bool {
        self.in_flight.is_some() || self.due.is_some()
    }

    pub(crate) fn read_at(&mut self, at: BootTime) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// Sends the read through `send`, whose argument is true for a linearizable read.
    pub(crate) fn send(&mut self, marks: &Watermarks, note: C, send: impl FnOnce(bool) -> CallId) {
        let confirm = self.suspicious;
        self.in_flight = Some(ReadInFlight {
            call: send(confirm),
            confirm,
            token_known: marks.document_token,
            note,
        });
        self.due = None;
    }
}

/// The last or highest values that this process or an earlier process has seen in the document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Watermarks {
    /// Token of the document when last seen; `None` if no document is known.
    pub(crate) document_token: Option<Token>,
    pub(crate) token_highest: Token,
    /// The longest valid lease duration seen or used. No known holder has authority for longer.
    pub(crate) lease_longest: Duration,
}

/// The loss of acknowledged writes: the document is missing, or its token is lower than before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rollback {
    pub(crate) seen: Token,
    pub(crate) found: Option<Token>,
}

impl Watermarks {
    pub(crate) fn new(remembered: Token, lease_longest: Duration) -> Self {
        Self {
            document_token: (remembered > Token::ZERO).then_some(remembered),
            token_highest: remembered,
            lease_longest,
        }
    }

    /// Records that a document with this token existed. Untrusted replies count too, so that a
    /// deletion is detected.
    pub(crate) fn note_document(&mut self, token: Token) {
        self.note_used(token);
        self.document_token = self.document_token.max(Some(token));
    }

    pub(crate) fn note_existence(&mut self) {
        self.document_token.get_or_insert(Token::ZERO);
    }

    pub(crate) fn note_used(&mut self, token: Token) {
        self.token_highest = self.token_highest.max(token);
    }

    pub(crate) fn note_declared(&mut self, durations: impl Iterator<Item = Declared>) {
        let longest = durations.filter_map(Declared::valid).max();
        self.lease_longest = self.lease_longest.max(longest.unwrap_or_default());
    }

    pub(crate) fn rollback(&self, found: Option<Token>) -> Option<Rollback> {
        let seen = self.document_token?;
        let lower = found.is_none_or(|token| token < seen);
        lower.then_some(Rollback { seen, found })
    }
}
