//! Carries calls to the store and answers back, and commits writes. Calls and answers can be slow,
//! lost, late or duplicated.

use std::rc::Rc;

use super::MS;
use super::SECOND;
use super::faults::Kind as _;
use super::replica_set::{Committed, Landed};
use super::world::{AtPeace, Protocol, World};
use crate::election::CallId;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Slow,
    LostBefore,
    LostAfter,
    Duplicate,
    Late,
}

/// The probabilities of a call's fates. Of every `rolls` calls, on average `slow` are delayed, and
/// `other` have another fate.
pub(super) struct Odds {
    pub(super) rolls: u64,
    pub(super) slow: u64,
    pub(super) other: u64,
}

pub(super) trait Calls: Protocol {
    const ODDS: Odds;

    /// Applies further faults to a call that is sent, and returns the additional delay. `roll`
    /// decides the fate of the call.
    fn interfere(
        world: &mut World<Self>,
        process: usize,
        operation: &Self::Operation,
        roll: u64,
        quick: u64,
    ) -> u64;

    /// Returns the time when the process can reach the store again, and the process's operation
    /// timeout in true time.
    fn link(world: &World<Self>, process: usize) -> Link;

    fn reaches_deposed(world: &mut World<Self>, process: usize) -> bool;

    /// Applies a call at a member. Returns the result, and the write to replicate, if any.
    fn apply(
        world: &mut World<Self>,
        process: usize,
        call: CallId,
        operation: &Self::Operation,
        stale: bool,
    ) -> (Landed<Self::Outcome>, Option<u64>);

    fn answered(world: &mut World<Self>, process: usize, call: CallId, outcome: Self::Outcome);

    fn timed_out(world: &mut World<Self>, process: usize, call: CallId);

    /// Checks the writes that a majority has, and sends events to the streams.
    fn committed(world: &mut World<Self>, all: Vec<Committed<Self::State, Self::Write>>);
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Link {
    pub(super) cut_until: u64,
    pub(super) timeout: u64,
}

pub(super) struct Flight<O> {
    process: usize,
    call: CallId,
    operation: Rc<O>,
    answered: bool,
}

impl<P: Calls> World<P> {
    /// Sends a call of a process, and schedules the timeout of the call.
    pub(super) fn transmit(&mut self, process: usize, call: CallId, operation: P::Operation) {
        let timeout = P::link(self, process).timeout;
        self.time_out_at(self.now + timeout, process, call);
        // Draws every random number even if no fault needs it, so that disabling a fault does not
        // change the later numbers.
        let roll = self.net.below(P::ODDS.rolls);
        let (quick, slow) = (self.net.between(1, 20) * MS, self.net.below(40_000) * MS);
        let quick = quick + P::interfere(self, process, &operation, roll, quick);
        let (soon, later) = (self.now + quick, self.now + quick + slow);
        let operation = Rc::new(operation);
        let flight = |answered| Flight {
            process,
            call,
            operation: Rc::clone(&operation),
            answered,
        };
        let unknown = (process, call, P::UNKNOWN);
        let cut_until = P::link(self, process).cut_until;
        if cut_until > self.now {
            return match roll % 4 {
                0 | 1 => self.fails_unsent(process, call, timeout),
                2 => self.answer_at(later, unknown),
                // In the other cases, the connection survives the partition, and TCP retransmits
                // the packets afterwards.
                _ => self.land_at(cut_until + quick, flight(roll % 8 == 3)),
            };
        }
        match self.fate(roll) {
            None => self.land_at(soon, flight(true)),
            Some(Fate::Slow) => self.land_at(later, flight(true)),
            Some(Fate::LostBefore) => self.answer_at(later, unknown),
            Some(Fate::LostAfter) => {
                self.land_at(soon, flight(false));
                self.answer_at(later, unknown);
            }
            Some(Fate::Duplicate) => {
                self.land_at(soon, flight(true));
                self.land_at(later, flight(false));
            }
            Some(Fate::Late) => {
                self.answer_at(soon, unknown);
                self.land_at(later, flight(false));
            }
        }
    }

    fn fate(&mut self, roll: u64) -> Option<Fate> {
        use Fate::{Duplicate, Late, LostAfter, LostBefore};
        const OTHERS: [Fate; 4] = [LostBefore, LostAfter, Duplicate, Late];
        let fate = match roll.checked_sub(P::ODDS.slow) {
            None => Fate::Slow,
            Some(rest) => *OTHERS.get(usize::try_from(rest / P::ODDS.other).ok()?)?,
        };
        let hit = self.strikes(true, P::Fault::of_calls(fate));
        hit.then_some(fate)
    }

    /// Reports that the driver gave up a call without sending it, shortly before the call would
    /// time out.
    fn fails_unsent(&mut self, process: usize, call: CallId, timeout: u64) {
        self.never_sent.insert((process, call));
        self.answer_at(self.now + timeout * 9 / 10, (process, call, P::FAILED));
    }

    fn land_at(&mut self, time: u64, flight: Flight<P::Operation>) {
        self.at_or(AtPeace::Drop, time, |world| world.land(flight));
    }

    pub(super) fn answer_at(&mut self, time: u64, answer: (usize, CallId, P::Outcome)) {
        let (process, call, outcome) = answer;
        self.at(time, move |world| world.answer(process, call, outcome));
    }

    pub(super) fn time_out_at(&mut self, time: u64, process: usize, call: CallId) {
        self.at(time, move |world| P::timed_out(world, process, call));
    }

    pub(super) fn commit_at(&mut self, time: u64, seq: u64) {
        self.at(time, move |world| world.commit(seq));
    }

    fn land(&mut self, flight: Flight<P::Operation>) {
        let (process, call, answered) = (flight.process, flight.call, flight.answered);
        if self.never_sent.contains(&(process, call)) {
            return;
        }
        let stale = self.set.is_deposed_up() && P::reaches_deposed(self, process);
        if !stale && self.set.no_primary_until > self.now {
            // The driver waits for a primary until its server selection times out.
            let wait = self.set.no_primary_until - self.now;
            let timeout = P::link(self, process).timeout;
            if wait <= timeout * 9 / 10 {
                self.land_at(self.set.no_primary_until + MS, flight);
            } else if answered {
                self.fails_unsent(process, call, timeout);
            }
            return;
        }
        let (landed, to_replicate) = P::apply(self, process, call, &flight.operation, stale);
        if let Some(seq) = to_replicate {
            let at = self.now.max(self.set.no_majority_until) + self.net.between(1, 8) * MS;
            self.commit_at(at, seq);
        }
        let back = self.now + self.net.between(1, 10) * MS;
        match landed {
            Landed::Answered(outcome) if answered => self.answer_at(back, (process, call, outcome)),
            Landed::Waits(seq, outcome) if answered => {
                self.set.wait(seq, process, call, outcome);
                self.acknowledge();
            }
            Landed::Silence if answered => {
                self.answer_at(back + 15 * SECOND, (process, call, P::UNKNOWN));
            }
            Landed::Answered(_) | Landed::Waits(..) | Landed::Silence => {}
        }
    }

    fn acknowledge(&mut self) {
        if self.set.no_majority_until > self.now {
            return;
        }
        for waiting in self.set.acknowledged() {
            let back = self.now + self.net.between(1, 10) * MS;
            self.answer_at(back, (waiting.process, waiting.call, waiting.outcome));
        }
    }

    /// Commits the writes up to `seq` on a majority, now or as soon as the set can commit.
    pub(super) fn commit(&mut self, seq: u64) {
        let possible_at = self.set.no_majority_until.max(self.set.no_primary_until);
        if possible_at > self.now {
            return self.commit_at(possible_at + MS, seq);
        }
        let all = self.set.commit(seq);
        P::committed(self, all);
        self.acknowledge();
    }

    /// Delivers an answer to the driver. If the process is cut off from the store, it gets the
    /// answer or an unknown outcome after the partition.
    fn answer(&mut self, process: usize, call: CallId, outcome: P::Outcome) {
        let cut_until = P::link(self, process).cut_until;
        if cut_until > self.now && outcome != P::FAILED {
            let survives = self.net.one_in(2);
            let outcome = if survives { outcome } else { P::UNKNOWN };
            return self.answer_at(cut_until + MS, (process, call, outcome));
        }
        P::answered(self, process, call, outcome);
    }

    /// Makes another member primary at `no_primary_until`. The new primary keeps the first `kept`
    /// uncommitted writes. The calls that wait for a majority get an unknown outcome after the
    /// delay that `late` returns.
    pub(super) fn replace_primary(
        &mut self,
        kept: usize,
        deposed_lives: bool,
        mut late: impl FnMut(&mut Self) -> u64,
    ) {
        let (waiting, to_replicate) = self.set.fail_over(kept, deposed_lives);
        if let Some(seq) = to_replicate {
            self.commit_at(self.set.no_primary_until + MS, seq);
        }
        for waiting in waiting {
            let at = self.now + late(self);
            self.answer_at(at, (waiting.process, waiting.call, P::UNKNOWN));
        }
    }
}
