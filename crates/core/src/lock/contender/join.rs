//! Joining: adding the claim to the document, or ending with a reason.
//!
//! The join is repeated with the same claim until the claim is known to be in the document. Every
//! attempt has its own revision.

use super::reading::Proof;
use super::{LockContender, Notice, State};
use crate::claim::{Turn, earliest};
use crate::election::{BootTime, CallId, Declared};
use crate::lock::claim_writes::WritePurpose;
use crate::lock::document::{LockDocument, Mode, QUEUE_MAX};
use crate::lock::operation::{Joining as Entry, Operation, Outcome};
use crate::lock::status::End;

/// Maximum number of rejected joins before the next join is delayed. Two can be lost races; more
/// suggest a store that does not show its current state.
const REFUSED_MAX: u32 = 2;

#[derive(Debug, Clone, Hash)]
pub(super) struct Joining {
    next: Next,
    at: BootTime,
    creating: Option<CallId>,
    /// Latest instant to wait for the change stream before joining.
    stream_awaited: Option<BootTime>,
    /// Number of rejected joins of this claim.
    refused: u32,
    full_reported: bool,
}

/// Next step of a join.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Next {
    Join,
    Create,
    /// The lock has no room: read again, and evict expired entries.
    Look,
}

impl Joining {
    /// Creates the state of a contender that joins at `at`.
    pub(super) fn at(at: BootTime) -> Self {
        Self {
            next: Next::Join,
            at,
            creating: None,
            stream_awaited: None,
            refused: 0,
            full_reported: false,
        }
    }

    /// Returns true if the call is the create in flight.
    pub(super) fn creates(&self, call: CallId) -> bool {
        self.creating == Some(call)
    }
}

impl LockContender {
    /// Opens the stream before the join if the options ask for it.
    pub(super) fn watch_first(&mut self, now: BootTime) {
        if let (true, State::Joining(joining)) = (self.options.watch_first, &mut self.state) {
            joining.stream_awaited = Some(now + self.options.timings.operation_timeout());
            self.follow();
        }
    }

    /// Stops waiting for the stream, which is open or unavailable.
    pub(super) fn watch_settled(&mut self) {
        if let State::Joining(joining) = &mut self.state {
            joining.stream_awaited = None;
        }
    }

    pub(super) fn join(&mut self, turn: &mut Turn<'_>) -> Option<BootTime> {
        self.read_if_due(turn);
        let busy = self.writes.in_flight() > 0 || self.sweeping.is_some() || self.behind;
        let State::Joining(joining) = &self.state else {
            return None;
        };
        if busy || joining.creating.is_some() {
            return self.next_read();
        }
        let (next, stream) = (joining.next, joining.stream_awaited);
        let at = joining.at.max(self.retry_at);
        let at = at.max(stream.unwrap_or_default());
        match next {
            Next::Join | Next::Create if at > turn.now => earliest([Some(at), self.next_read()]),
            Next::Join => {
                self.send_join(turn);
                self.next_read()
            }
            Next::Create => {
                let seen = self.view.token_highest;
                let call = self.call(Operation::Create { seen });
                if let State::Joining(joining) = &mut self.state {
                    joining.creating = Some(call);
                }
                self.next_read()
            }
            Next::Look => {
                let sweep = self.sweep_if_due(0, turn);
                earliest([self.next_read(), sweep])
            }
        }
    }

    fn send_join(&mut self, turn: &mut Turn<'_>) {
        let revision = self.attempt(WritePurpose::Join, turn);
        let want = self.options.want;
        let entry = Entry {
            claim: self.writes.claim(),
            session: self.session,
            mode: want.mode(),
            revision,
            slots: want.slots(),
            lease_duration: Declared::of(self.options.timings.lease_duration()),
        };
        self.call(Operation::Join {
            entry,
            seen: self.view.token_highest,
            non_blocking: self.options.non_blocking,
        });
    }

    /// Handles a rejected join. A read finds out the reason.
    pub(super) fn join_refused(&mut self, now: BootTime) {
        if let State::Joining(joining) = &mut self.state {
            joining.refused += 1;
            self.fall_behind(now);
        }
    }

    /// Handles a join of unknown outcome. The join is repeated only after a read did not show the
    /// claim, so that an unresponsive store leaves few joins unresolved.
    pub(super) fn join_unanswered(&mut self) {
        if matches!(self.state, State::Joining(_)) {
            self.fall_behind(self.retry_at);
        }
    }

    /// Schedules a create, because a read found no document.
    pub(super) fn create_next(&mut self, now: BootTime) {
        self.next(Next::Create, now);
    }

    fn next(&mut self, next: Next, at: BootTime) {
        if let State::Joining(joining) = &mut self.state {
            (joining.next, joining.at) = (next, at);
        }
    }

    /// Handles the reply to the create.
    pub(super) fn created(&mut self, outcome: &Outcome, turn: &mut Turn<'_>) {
        let State::Joining(joining) = &mut self.state else {
            return;
        };
        joining.creating = None;
        match outcome {
            Outcome::Applied(_) | Outcome::Rejected => {
                self.view.exists = true;
                self.next(Next::Join, turn.now);
            }
            Outcome::Failed | Outcome::Unknown => self.look_later(turn),
        }
    }

    pub(super) fn look_later(&mut self, turn: &mut Turn<'_>) {
        let retry = turn.now + turn.jittered(self.options.timings.retry_interval());
        self.fall_behind(retry);
    }

    /// Decides the next step after a reply showed the document without this claim.
    pub(super) fn decide_join(&mut self, proof: Proof, turn: &mut Turn<'_>) {
        let Some(lock) = &self.view.lock else { return };
        let want = self.options.want;
        let fits = lock.slots == want.slots() || is_empty(lock);
        let (has, full) = (lock.slots, lock.queue.len() >= QUEUE_MAX);
        let free = place_free(lock, want.mode(), want.slots());
        if !fits && self.any_expired(turn.now) {
            // Apart from the evicted entries, the lock may be unused.
            self.next(Next::Look, turn.now);
        } else if !fits {
            self.doubt_or(proof == Proof::Newest, turn, |contender, turn| {
                contender.finish(End::WrongSlots { has }, turn.now);
            });
        } else if self.options.non_blocking && !free {
            if self.any_expired(turn.now) {
                return self.next(Next::Look, turn.now);
            }
            self.finish(self.busy(), turn.now);
        } else if full {
            self.queue_full(turn);
        } else {
            self.join_again(turn);
        }
    }

    /// Returns the end of a contender that would have to wait.
    pub(super) fn busy(&self) -> End {
        let (holding, waiting) = self.view.numbers_ahead(self.writes.claim());
        End::Busy {
            holding,
            waiting,
            ahead: self.view.ahead(self.writes.claim()),
        }
    }

    fn queue_full(&mut self, turn: &mut Turn<'_>) {
        let poll = turn.now + turn.jittered(self.options.timings.retry_interval());
        self.next(Next::Look, turn.now);
        self.read_soon(poll);
        if let State::Joining(joining) = &mut self.state
            && !std::mem::replace(&mut joining.full_reported, true)
        {
            self.notice(Notice::QueueFull);
        }
    }

    /// Schedules the next join, because the lock has room for it.
    fn join_again(&mut self, turn: &mut Turn<'_>) {
        let retry = turn.now + turn.jittered(self.options.timings.retry_interval());
        if let State::Joining(joining) = &mut self.state {
            let patient = joining.refused > REFUSED_MAX;
            (joining.next, joining.at) = (Next::Join, if patient { retry } else { turn.now });
        }
    }
}

fn is_empty(lock: &LockDocument) -> bool {
    lock.holders.is_empty() && lock.queue.is_empty()
}

/// Returns true if a join would be granted immediately.
fn place_free(lock: &LockDocument, mode: Mode, slots: u32) -> bool {
    lock.queue.is_empty() && lock.has_room(mode, slots)
}
