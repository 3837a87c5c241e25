//! The network between processes and the store: drivers, calls that are slow, lost, late or
//! duplicated, change streams, and planned faults.

use super::faults::{Fault, Planned};
use super::process::Driven;
use super::store::{Committed, Landed};
use super::world::{Event, World};
use super::{MS, SECOND};
use crate::election::{CallId, Claim, WallMillis};
use crate::lock::reference::{self, By};
use crate::lock::{Found, Hint, Input, Operation, Outcome};

impl World {
    fn faulty(&self, fault: Fault) -> bool {
        !self.calm && self.faults.has(fault)
    }

    /// Passes a call of a process to its driver.
    pub(super) fn send(&mut self, process: usize, call: CallId, operation: Operation) {
        self.note(|| super::report::call(process, call, &operation));
        self.check_call(process, call, &operation);
        let p = &mut self.processes[process];
        p.driver.push(Driven {
            call,
            timed_out: false,
        });
        let (seat, timeout) = (p.seat, p.options.timings.operation_timeout());
        let timeout = self.stretched(seat, timeout);
        self.at(self.now + timeout, Event::TimeUp { process, call });
        // All random numbers are drawn, regardless of the enabled faults.
        let roll = self.net.below(240);
        let (quick, slow) = (self.net.between(1, 20) * MS, self.net.below(40_000) * MS);
        let operation = Box::new(operation);
        let answer = |outcome| Event::Answer {
            process,
            call,
            outcome,
        };
        let land = |answered| Event::Land {
            process,
            call,
            operation: operation.clone(),
            answered,
        };
        if self.faulty(Fault::Freeze)
            && matches!(*operation, Operation::Renew { .. })
            && roll.is_multiple_of(60)
        {
            self.freeze_beyond_the_deadline(process, 10 * quick);
        }
        let cut_until = self.seats[seat].cut_until;
        if cut_until > self.now {
            match roll % 4 {
                0 | 1 => {
                    self.never_sent.insert((process, call));
                    self.at(self.now + timeout * 9 / 10, answer(Outcome::Failed));
                }
                2 => self.at(self.now + quick + slow, answer(Outcome::Unknown)),
                // The connection survives, and its packets are sent again.
                _ => self.at(cut_until + quick, land(roll % 8 == 3)),
            }
            return;
        }
        let hit = |fault: Fault, from: u64| self.faulty(fault) && (from..from + 8).contains(&roll);
        if hit(Fault::Slow, 0) || hit(Fault::Slow, 8) {
            self.at(self.now + quick + slow, land(true));
        } else if hit(Fault::LostBefore, 16) {
            self.at(self.now + quick + slow, answer(Outcome::Unknown));
        } else if hit(Fault::LostAfter, 24) {
            self.at(self.now + quick, land(false));
            self.at(self.now + quick + slow, answer(Outcome::Unknown));
        } else if hit(Fault::Duplicate, 32) {
            self.at(self.now + quick, land(true));
            self.at(self.now + quick + slow, land(false));
        } else if hit(Fault::Late, 40) {
            self.at(self.now + quick, answer(Outcome::Unknown));
            self.at(self.now + quick + slow, land(false));
        } else {
            self.at(self.now + quick, land(true));
        }
    }

    /// Delivers a call to the store.
    pub(super) fn land(
        &mut self,
        process: usize,
        call: CallId,
        operation: Box<Operation>,
        answered: bool,
    ) {
        if self.never_sent.contains(&(process, call)) {
            return;
        }
        let seat = self.processes[process].seat;
        // Some connections of a stale driver already reach the new primary.
        let stale = self.seats[seat].stale && self.store.is_deposed_up() && self.net.one_in(2);
        if !stale && self.store.no_primary_until > self.now {
            // Server selection waits for a primary for a while.
            let wait = self.store.no_primary_until - self.now;
            let timeout = self.processes[process].options.timings.operation_timeout();
            let patience = self.stretched(seat, timeout) * 9 / 10;
            if wait <= patience {
                let event = Event::Land {
                    process,
                    call,
                    operation,
                    answered,
                };
                self.at(self.store.no_primary_until + MS, event);
            } else if answered {
                self.never_sent.insert((process, call));
                let outcome = Outcome::Failed;
                let event = Event::Answer {
                    process,
                    call,
                    outcome,
                };
                self.at(self.now + patience, event);
            }
            return;
        }
        let identity = self.seats[seat].identity.clone();
        let by = By {
            identity: &identity,
            at: WallMillis(0),
        };
        let (landed, seq) = self.store.land(process, by, &operation, stale);
        if let Some(seq) = seq {
            let at = self.now.max(self.store.no_majority_until) + self.net.between(1, 8) * MS;
            self.at(at, Event::Commit(seq));
        }
        let way_back = self.net.between(1, 10) * MS;
        match landed {
            Landed::Answered(outcome) if answered => {
                self.at(
                    self.now + way_back,
                    Event::Answer {
                        process,
                        call,
                        outcome,
                    },
                );
            }
            Landed::Waits(seq, outcome) if answered => {
                self.store.wait(seq, process, call, outcome);
                self.acknowledge();
            }
            Landed::Silence if answered => {
                let outcome = Outcome::Unknown;
                self.at(
                    self.now + way_back + 15 * SECOND,
                    Event::Answer {
                        process,
                        call,
                        outcome,
                    },
                );
            }
            Landed::Answered(_) | Landed::Waits(..) | Landed::Silence => {}
        }
    }

    fn acknowledge(&mut self) {
        if self.store.no_majority_until > self.now {
            return;
        }
        for waiting in self.store.acknowledged() {
            let event = Event::Answer {
                process: waiting.process,
                call: waiting.call,
                outcome: waiting.outcome,
            };
            let way_back = self.net.between(1, 10) * MS;
            self.at(self.now + way_back, event);
        }
    }

    /// Commits everything up to `seq` to a majority, or retries later if that is not possible yet.
    pub(super) fn commit(&mut self, seq: u64) {
        let possible_at = self
            .store
            .no_majority_until
            .max(self.store.no_primary_until);
        if possible_at > self.now {
            self.at(possible_at + MS, Event::Commit(seq));
            return;
        }
        for committed in self.store.commit(seq) {
            self.note(|| super::report::committed(&committed));
            self.check_commit(&committed);
            self.tell_streams(&committed);
        }
        self.acknowledge();
    }

    /// Returns an answer to the driver.
    pub(super) fn answer(&mut self, process: usize, call: CallId, outcome: Outcome) {
        let cut_until = self.seats[self.processes[process].seat].cut_until;
        if cut_until > self.now && outcome != Outcome::Failed {
            let outcome = if self.net.one_in(2) {
                outcome
            } else {
                Outcome::Unknown
            };
            let event = Event::Answer {
                process,
                call,
                outcome,
            };
            self.at(cut_until + MS, event);
            return;
        }
        if self.processes[process].returned(call).is_some() {
            self.input(process, Input::Reply { call, outcome });
        }
    }

    pub(super) fn time_up(&mut self, process: usize, call: CallId) {
        if self.processes[process].timed_out(call) {
            let outcome = Outcome::Unknown;
            self.input(process, Input::Reply { call, outcome });
        }
    }

    /// Notifies the open streams of claims that were granted or reached the head of the queue.
    fn tell_streams(&mut self, committed: &Committed) {
        let next = |found: &Found| match found {
            Found::Lock(lock) => reference::next(lock),
            Found::Missing | Found::Foreign(_) => None,
        };
        let after = next(&committed.after);
        let moved = after != next(&committed.before);
        for process in self.live.clone() {
            let stream = &self.processes[process].stream;
            let Some(claim) = stream.claim.filter(|_| stream.open) else {
                continue;
            };
            if committed.granted.contains(&claim) {
                self.tell(process, Hint::Granted);
            } else if moved && after == Some(claim) {
                self.tell(process, Hint::Next);
            }
        }
    }

    fn tell(&mut self, process: usize, hint: Hint) {
        let latency = self.net.between(1, 10) * MS;
        let stream = &mut self.processes[process].stream;
        stream.last_at = (self.now + latency).max(stream.last_at);
        let (at, opening) = (stream.last_at, stream.opening);
        self.at(
            at,
            Event::StreamSays {
                process,
                opening,
                hint,
            },
        );
    }

    pub(super) fn stream_opens(&mut self, process: usize, opening: u64) {
        let p = &self.processes[process];
        if !p.alive || p.stream.opening != opening {
            return;
        }
        let cut = self.seats[p.seat].cut_until > self.now;
        if cut || self.store.no_primary_until > self.now {
            return self.stream_ends(process);
        }
        self.processes[process].stream.open = true;
        self.tell(process, Hint::Opened);
    }

    /// Breaks the stream. Another one is opened after a while.
    fn stream_ends(&mut self, process: usize) {
        let p = &mut self.processes[process];
        if !p.alive || p.stream.claim.is_none() {
            return;
        }
        p.stream.opening += 1;
        p.stream.open = false;
        let opening = p.stream.opening;
        let (seat, retry) = (p.seat, p.options.timings.retry_interval());
        let at = self.now + self.stretched(seat, retry);
        self.at(at, Event::StreamOpens { process, opening });
        self.input(process, Input::Hint(Hint::Lost));
    }

    /// Applies a planned fault.
    pub(super) fn disturb(&mut self, planned: Planned) {
        let Planned { fault, chance, .. } = planned;
        let lasts = |most: u64| (chance >> 16) % most * MS;
        self.note(|| format!("trouble: {}", fault.words()));
        let seat = usize::try_from(chance % self.seats.len() as u64).expect("few");
        let process = (!self.live.is_empty()).then(|| {
            let index = usize::try_from((chance >> 8) % self.live.len() as u64).expect("few");
            self.live[index]
        });
        match (fault, process) {
            (Fault::Failover | Fault::Deposed, _) => self.fail_over(fault, chance, lasts(20_000)),
            (Fault::MajorityLost, _) => self.store.no_majority_until = self.now + lasts(30_000),
            (Fault::Partition, _) => self.seats[seat].cut_until = self.now + lasts(60_000),
            (Fault::Freeze, Some(process)) => self.freeze(process, self.now + lasts(60_000)),
            (Fault::Kill, Some(process)) => self.kill(process),
            (Fault::StreamLost, Some(process)) => self.stream_ends(process),
            (Fault::PrimaryChanged, Some(process)) => self.input(process, Input::PrimaryChanged),
            (_, None)
            | (
                Fault::Slow
                | Fault::LostBefore
                | Fault::LostAfter
                | Fault::Duplicate
                | Fault::Late
                | Fault::Drift
                | Fault::NoStreams
                | Fault::Impatience
                | Fault::MixedTimings
                | Fault::WrongSlots,
                _,
            ) => {}
        }
    }

    /// Freezes a holder while a renewal is in flight, until just after its authority ends. The
    /// acknowledgement that waited must not count.
    fn freeze_beyond_the_deadline(&mut self, process: usize, late: u64) {
        let now = self.clock(process);
        if let Some(authority) = self.processes[process].contender.authority_at(now) {
            let ends = self.true_time(process, authority.valid_until);
            self.freeze(process, ends + late);
        }
    }

    fn fail_over(&mut self, fault: Fault, chance: u64, lasts: u64) {
        let open = self.store.open_writes() as u64;
        let kept = usize::try_from((chance >> 24) % (open + 1)).expect("few");
        let deposed = fault == Fault::Deposed;
        let (waiting, to_replicate) = self.store.fail_over(kept, deposed);
        self.store.no_primary_until = self.now + lasts % (12 * SECOND);
        if let Some(seq) = to_replicate {
            self.at(self.store.no_primary_until + MS, Event::Commit(seq));
        }
        for waiting in waiting {
            let event = Event::Answer {
                process: waiting.process,
                call: waiting.call,
                outcome: Outcome::Unknown,
            };
            let late = self.net.between(1, 3_000) * MS;
            self.at(self.now + late, event);
        }
        for (index, seat) in self.seats.iter_mut().enumerate() {
            seat.stale = deposed && chance >> (32 + index) & 1 == 1;
        }
        if deposed {
            self.at(self.now + lasts + SECOND, Event::DeposedLearns);
        }
        for process in self.live.clone() {
            if self.net.one_in(2) {
                self.stream_ends(process);
            }
            if self.net.one_in(2) {
                self.input(process, Input::PrimaryChanged);
            }
        }
    }

    /// Returns the entry of a claim in the state that a majority has.
    pub(super) fn committed_entry(&self, claim: Claim) -> Option<&crate::lock::Entry> {
        match &self.store.committed {
            Found::Lock(lock) => {
                let mut all = lock.holders.iter().chain(&lock.queue);
                all.find(|entry| entry.claim == claim)
            }
            Found::Missing | Found::Foreign(_) => None,
        }
    }
}
