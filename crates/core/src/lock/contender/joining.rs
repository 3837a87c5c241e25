//! Joining: the contender repeats the join, with new revisions, until a reply shows the claim.

use super::Exchange;
use super::reads::Proof;
use crate::claim::earliest;
use crate::election::{BootTime, CallId};
use crate::lock::{End, LockNotice, LockOutcome, LockTurn, QUEUE_MAX};

/// Number of rejected joins, usually lost races, before further joins are delayed.
const REFUSED_MAX: u32 = 2;

#[derive(Debug, Clone, Hash)]
pub(super) struct Joining {
    next: Next,
    at: BootTime,
    pub(super) creating: Option<CallId>,
    pub(super) stream_awaited: Option<BootTime>,
    pub(super) refused: u32,
    full_reported: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Next {
    Join,
    Create,
    /// The queue is full, or expired entries block this contender. Evict expired entries, or read
    /// again.
    Look,
}

impl Joining {
    pub(super) fn at(at: BootTime, exchange: &mut Exchange, turn: &mut LockTurn<'_>) -> Self {
        let options = &exchange.options;
        let stream_awaited =
            (options.watch_first).then(|| turn.now + options.timings.operation_timeout());
        if stream_awaited.is_some() {
            exchange.follow(turn);
        }
        Self {
            next: Next::Join,
            at,
            creating: None,
            stream_awaited,
            refused: 0,
            full_reported: false,
        }
    }

    pub(super) fn advance(
        &mut self,
        exchange: &mut Exchange,
        turn: &mut LockTurn<'_>,
    ) -> Option<BootTime> {
        exchange.reads.send_if_due(&exchange.view, turn);
        let next_read = exchange.reads.next();
        if exchange.is_busy() || self.creating.is_some() {
            return next_read;
        }
        let at = self.at.max(exchange.retry_at);
        let at = at.max(self.stream_awaited.unwrap_or_default());
        let next_step = match self.next {
            Next::Join | Next::Create if at > turn.now => Some(at),
            Next::Join => {
                exchange.join(turn);
                None
            }
            Next::Create => {
                self.creating = Some(exchange.create(turn));
                None
            }
            Next::Look => exchange.evict_if_due(0, turn),
        };
        earliest([next_step, next_read])
    }

    pub(super) fn created(
        &mut self,
        outcome: &LockOutcome,
        exchange: &mut Exchange,
        turn: &mut LockTurn<'_>,
    ) {
        self.creating = None;
        match outcome {
            LockOutcome::Applied(_) | LockOutcome::Rejected => {
                exchange.view.marks.note_existence();
                self.next(Next::Join, turn.now);
            }
            LockOutcome::PrimaryOnly | LockOutcome::Failed | LockOutcome::Unknown => {
                exchange.reads.fall_behind(exchange.retry(turn));
            }
        }
    }

    pub(super) fn absent(
        &mut self,
        proof: Proof,
        exchange: &mut Exchange,
        turn: &mut LockTurn<'_>,
    ) -> Option<End> {
        let lock = exchange.view.lock.as_ref()?;
        let mode = exchange.options.mode;
        let (mode, slots) = (mode.entry_mode(), mode.slots());
        let is_unused = lock.holders.is_empty() && lock.queue.is_empty();
        let fits = lock.slots == slots || is_unused;
        let is_free = lock.queue.is_empty() && lock.has_room(mode, slots);
        let must_wait = exchange.options.non_blocking && !is_free;
        if (!fits || must_wait) && exchange.any_expired(turn.now) {
            // Once the expired entries are evicted, the lock may be unused or free.
            self.next(Next::Look, turn.now);
        } else if !fits && proof == Proof::Newest {
            return Some(End::WrongSlots { has: lock.slots });
        } else if !fits {
            exchange.reads.doubt(turn.now);
        } else if must_wait {
            return Some(exchange.busy());
        } else if lock.queue.len() >= QUEUE_MAX {
            exchange.reads.read_at(exchange.retry(turn));
            self.next(Next::Look, turn.now);
            if !std::mem::replace(&mut self.full_reported, true) {
                turn.effects.notice(LockNotice::QueueFull);
            }
        } else {
            let retry = exchange.retry(turn);
            let is_patient = self.refused > REFUSED_MAX;
            self.next(Next::Join, if is_patient { retry } else { turn.now });
        }
        None
    }

    pub(super) fn next(&mut self, next: Next, at: BootTime) {
        (self.next, self.at) = (next, at);
    }
}
