//! Evictions of expired entries: the one in flight, and late replies.

use std::collections::VecDeque;
use std::time::Duration;

use crate::claim::Outbox;
use crate::election::{CallId, Claim, Timings, Token};
use crate::lock::document::FoundLock;
use crate::lock::effect::LockEffect;
use crate::lock::observations::{Observation, Patience};
use crate::lock::operation::{Ending, LockOperation, LockOutcome, Writer};
use crate::lock::view::{EntryPlace, LockView};

/// Delay of each waiter's eviction after the eviction of the waiter before it, so that not all
/// waiters evict. The value covers some round trips to a nearby store.
const STAGGER: Duration = Duration::from_millis(200);
/// Last position that increases the delay, so that the time to evict an expired entry stays
/// bounded.
const STAGGERED_MAX: usize = 8;
/// Number of evictions of unknown outcome whose late replies are awaited.
const UNANSWERED_MAX: usize = 4;

#[derive(Debug, Clone, Default)]
pub(super) struct Evictions {
    in_flight: Option<Eviction>,
    /// Evictions of unknown outcome, oldest first. A late reply may still show what they evicted.
    unanswered: VecDeque<Eviction>,
}

/// An eviction that was sent.
#[derive(Debug, Clone, Hash)]
struct Eviction {
    call: CallId,
    /// The entries to evict, as observed when the eviction was sent. A read may show that they are
    /// gone before the eviction is answered.
    entries: Vec<(Claim, Observation)>,
}

/// Meaning of a reply.
#[derive(Default)]
pub(super) struct Evicted {
    /// True if the call is the eviction in flight, so that another one may follow.
    pub(super) was_in_flight: bool,
    /// Entries that the eviction removed from the document.
    pub(super) entries: Vec<Observation>,
}

/// Returns how long a contender waits before it evicts others, given its `position` in the queue.
pub(super) fn patience(timings: &Timings, position: usize) -> Patience {
    let places = u32::try_from(position.min(STAGGERED_MAX)).unwrap_or(0);
    Patience {
        claim_time: timings.operation_timeout(),
        stagger: STAGGER * places,
    }
}

impl Evictions {
    pub(super) fn is_in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    pub(super) fn send(
        &mut self,
        entries: Vec<(Claim, Observation)>,
        me: Option<Writer>,
        seen: Token,
        outbox: &mut Outbox<LockEffect>,
    ) {
        let call = outbox.send(LockOperation::Evict {
            entries: entries.iter().map(|(claim, o)| o.seen(*claim)).collect(),
            me,
            ending: Ending::Expired,
            seen,
        });
        self.in_flight = Some(Eviction { call, entries });
    }

    /// Records the outcome of an eviction, possibly late.
    pub(super) fn reply(
        &mut self,
        call: CallId,
        outcome: &LockOutcome,
        view: &mut LockView,
    ) -> Evicted {
        let in_flight = self.in_flight.take_if(|eviction| eviction.call == call);
        let mut evicted = Evicted {
            was_in_flight: in_flight.is_some(),
            ..Evicted::default()
        };
        let late = self.unanswered.iter().position(|e| e.call == call);
        let late = late.and_then(|late| self.unanswered.remove(late));
        let Some(eviction) = in_flight.or(late) else {
            return evicted;
        };
        match outcome {
            LockOutcome::Applied(FoundLock::Lock(lock)) => {
                let gone = |claim| EntryPlace::of(claim, lock) == EntryPlace::Absent;
                let entries = eviction.entries.into_iter();
                evicted.entries = entries.filter(|e| gone(e.0)).map(|e| e.1).collect();
            }
            // None of the entries matched, so the wait for each of them restarts.
            LockOutcome::Rejected if evicted.was_in_flight => {
                view.forget(eviction.entries.iter().map(|(claim, _)| *claim));
            }
            LockOutcome::Unknown => self.await_late(eviction),
            LockOutcome::Applied(_) | LockOutcome::Rejected | LockOutcome::Failed => {}
        }
        evicted
    }

    fn await_late(&mut self, eviction: Eviction) {
        if self.unanswered.len() == UNANSWERED_MAX {
            self.unanswered.pop_front();
        }
        self.unanswered.push_back(eviction);
    }

    /// Stops waiting for the eviction in flight, because its claim is over.
    pub(super) fn abandon(&mut self) {
        if let Some(eviction) = self.in_flight.take() {
            self.await_late(eviction);
        }
    }

    #[cfg(proof)]
    pub(super) fn compare(&self, form: &mut impl super::Form) {
        // Late replies to the others are only reported.
        form.put(&self.in_flight);
    }
}
