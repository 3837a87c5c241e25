//! The simulated world: seats with clocks, the processes on them, the store, and the event queue.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::faults::{Fault, Faults, Planned, plan};
use super::onlooker::Onlooker;
use super::process::Process;
use super::run::Setup;
use super::seats::{Seat, timings};
use super::store::Store;
use super::{MS, RUN, SECOND};
use crate::election::{BootTime, CallId, Claim, Token};
use crate::lock::{Effect, Hint, Input, Operation, Outcome};
use crate::sim::dice::Dice;
use crate::sim::invariants::Violation;

/// Maximum number of steps of a run, many times what the busiest seed takes.
const STEPS_MAX: u64 = 400_000;

pub(super) enum Event {
    Start {
        seat: usize,
    },
    Land {
        process: usize,
        call: CallId,
        operation: Box<Operation>,
        answered: bool,
    },
    Answer {
        process: usize,
        call: CallId,
        outcome: Outcome,
    },
    TimeUp {
        process: usize,
        call: CallId,
    },
    Commit(u64),
    StreamOpens {
        process: usize,
        opening: u64,
    },
    StreamSays {
        process: usize,
        opening: u64,
        hint: Hint,
    },
    /// The work is over or was ended. `claim` is the claim under which it ran.
    WorkEnds {
        process: usize,
        claim: Claim,
    },
    GiveUp {
        process: usize,
    },
    DeposedLearns,
}

pub(super) struct World {
    pub(super) now: u64,
    pub(super) faults: Faults,
    pub(super) calm: bool,
    /// True if work and waits are short compared to the lease, and one job follows another.
    pub(super) brisk: bool,
    pub(super) net: Dice,
    pub(super) chance: Dice,
    events: BTreeMap<(u64, u64), Event>,
    serial: u64,
    steps: u64,
    plan: Vec<Planned>,
    planned: usize,
    pub(super) seats: Vec<Seat>,
    pub(super) processes: Vec<Process>,
    pub(super) live: Vec<usize>,
    pub(super) store: Store,
    /// Calls that were reported as never sent, so they must not land.
    pub(super) never_sent: BTreeSet<(usize, CallId)>,
    pub(super) onlooker: Onlooker,
    pub(super) violation: Option<Violation>,
    pub(super) trace: Option<Vec<(u64, String)>>,
    /// Hash of everything that was decided.
    pub(super) decisions: u64,
    pub(super) acquisitions: u64,
}

impl World {
    pub(super) fn new(setup: &Setup) -> Self {
        let mut build = Dice::new(setup.seed, 11);
        let drawn = Faults::drawn(&mut build);
        let faults = setup.faults.unwrap_or(drawn);
        let mut world = Self {
            now: 0,
            faults,
            calm: false,
            brisk: Dice::new(setup.seed, 15).one_in(6),
            net: Dice::new(setup.seed, 13),
            chance: Dice::new(setup.seed, 14),
            events: BTreeMap::new(),
            serial: 0,
            steps: 0,
            plan: plan(&mut Dice::new(setup.seed, 12), faults, RUN),
            planned: 0,
            seats: Vec::new(),
            processes: Vec::new(),
            live: Vec::new(),
            store: Store::new(),
            never_sent: BTreeSet::new(),
            onlooker: Onlooker::new(setup.slowest),
            violation: None,
            trace: setup.traced.then(Vec::new),
            decisions: 0xcbf2_9ce4_8422_2325,
            acquisitions: 0,
        };
        let (mut kind, mut slots) = (build.below(3), build.between(1, 4));
        if world.brisk && kind == 0 {
            // With an exclusive lock, every contender waits while the entry of a killed holder
            // stays, so use slots.
            (kind, slots) = (2, slots + 1);
        }
        let common = timings(&mut build);
        let seats = build.between(2, 9);
        for seat in 0..seats {
            let own = if world.faults.has(Fault::MixedTimings) {
                timings(&mut build)
            } else {
                common
            };
            world.add_seat(seat, (kind, slots), own, setup.slowest, &mut build);
        }
        world
    }

    pub(super) fn at(&mut self, time: u64, event: Event) {
        self.serial += 1;
        self.events.insert((time, self.serial), event);
    }

    /// Returns the clock reading of a seat.
    pub(super) fn seat_clock(&self, seat: usize) -> BootTime {
        let seat = &self.seats[seat];
        BootTime::from_nanos(seat.base + self.now / 1000 * seat.rate)
    }

    pub(super) fn clock(&self, process: usize) -> BootTime {
        self.seat_clock(self.processes[process].seat)
    }

    /// Returns the true time at which the process's clock shows `at`.
    pub(super) fn true_time(&self, process: usize, at: BootTime) -> u64 {
        let rate = self.seats[self.processes[process].seat].rate;
        let ahead = at.since(self.clock(process)).as_nanos();
        let ahead = u64::try_from(ahead).unwrap_or(u64::MAX / 2_000);
        (self.now / 1000 + ahead.div_ceil(rate)) * 1000 + u64::from(ahead > 0) * 1000
    }

    /// Converts `duration` on the clock of a seat to nanoseconds of true time.
    pub(super) fn stretched(&self, seat: usize, duration: Duration) -> u64 {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 2_000);
        nanos / self.seats[seat].rate * 1000
    }

    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push((self.now, line()));
        }
    }

    pub(super) fn found(&mut self, violation: Option<Violation>) {
        if self.violation.is_none() {
            self.violation = violation;
        }
    }

    pub(super) fn freeze(&mut self, process: usize, until: u64) {
        let p = &mut self.processes[process];
        p.frozen_until = p.frozen_until.max(until);
        p.running_since = p.frozen_until;
        self.note(|| format!("p{process} frozen until {} ms", until / MS));
    }

    /// Passes an input to a process. The input is queued while the process is frozen.
    pub(super) fn input(&mut self, process: usize, input: Input) {
        if self.processes[process].alive {
            self.processes[process].inbox.push_back(input);
            self.pump(process);
        }
    }

    /// Runs a process until it has nothing left to do.
    fn pump(&mut self, process: usize) {
        while self.processes[process].alive && self.processes[process].frozen_until <= self.now {
            let now = self.clock(process);
            let p = &mut self.processes[process];
            let due = p.contender.next_wakeup().is_some_and(|at| at <= now);
            let input = match p.inbox.pop_front() {
                Some(input) => input,
                None if due => Input::Tick,
                None => return,
            };
            self.turn(process, input, now);
        }
    }

    fn turn(&mut self, process: usize, input: Input, now: BootTime) {
        self.note(|| super::report::input(process, &input));
        let p = &mut self.processes[process];
        if matches!(input, Input::GiveUp) {
            // No work runs under a lock that was granted while the process was frozen.
            p.works = false;
        }
        p.ledger.before(now, &input, &p.contender.status());
        p.contender.handle(now, input, &mut p.random);
        let status = p.contender.status();
        let authority = p.contender.authority_at(now);
        let violation = p.ledger.after(authority, &status);
        self.found(violation);
        while let Some(effect) = self.processes[process].contender.next_effect() {
            self.perform(process, effect);
        }
    }

    fn perform(&mut self, process: usize, effect: Effect) {
        self.decide(process, &effect);
        match effect {
            Effect::Call { id, operation } => self.send(process, id, operation),
            Effect::Watch(claim) => self.watch(process, claim),
            Effect::Acquired { token, .. } => self.acquired(process, token),
            Effect::Lost(loss) => {
                self.note(|| format!("p{process} LOST {loss:?}"));
                self.check_loss(process, loss);
                let claim = self.processes[process].contender.status().claim;
                let ends = self.now + self.chance.between(1, 3_000) * MS;
                self.at(ends, Event::WorkEnds { process, claim });
            }
            Effect::Notice(notice) => {
                self.note(|| format!("p{process} says {notice:?}"));
                self.check_notice(process, &notice);
            }
            Effect::Exit(end) => {
                self.note(|| format!("p{process} ends: {end:?}"));
                self.check_exit(process, &end);
                self.exit(process);
            }
        }
    }

    fn acquired(&mut self, process: usize, token: Token) {
        let p = &mut self.processes[process];
        p.works = true;
        p.acquired_at = Some(self.now);
        let claim = p.contender.status().claim;
        self.acquisitions += 1;
        self.note(|| format!("p{process} HOLDS by {token}"));
        let reused = self.onlooker.acquired(token, claim);
        self.found(reused);
        let most = if self.calm || self.brisk { 500 } else { 12_000 };
        let ends = self.now + self.chance.between(1, most) * MS;
        self.at(ends, Event::WorkEnds { process, claim });
        self.check_exclusion();
    }

    /// Adds a decision to the hash by which runs are compared.
    fn decide(&mut self, process: usize, effect: &Effect) {
        let words = match effect {
            Effect::Call { id, operation } => id.0 ^ operation.as_str().len() as u64,
            Effect::Watch(_) => 1_001,
            Effect::Acquired { token, .. } => 1_002 ^ token.get().unsigned_abs(),
            Effect::Lost(_) => 1_003,
            Effect::Notice(_) => 1_004,
            Effect::Exit(_) => 1_005,
        };
        for word in [self.now, process as u64, words] {
            self.decisions = (self.decisions ^ word).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn watch(&mut self, process: usize, claim: Option<Claim>) {
        let stream = &mut self.processes[process].stream;
        stream.claim = claim;
        stream.open = false;
        stream.opening += 1;
        let opening = stream.opening;
        if claim.is_none() {
            return;
        }
        let seat = self.processes[process].seat;
        if self.seats[seat].streams {
            let at = self.now + self.net.between(1, 40) * MS;
            self.at(at, Event::StreamOpens { process, opening });
        } else {
            self.processes[process]
                .inbox
                .push_back(Input::Hint(Hint::Lost));
        }
    }

    /// Returns the next instant at which something happens, at most `until`.
    fn next(&self, until: u64) -> u64 {
        let event = self.events.first_key_value().map(|((time, _), _)| *time);
        let planned = self.plan.get(self.planned).map(|p| p.at);
        let wakes = self.live.iter().filter_map(|id| {
            let p = &self.processes[*id];
            let at = match p.inbox.is_empty() {
                true => self.true_time(*id, p.contender.next_wakeup()?),
                false => self.now,
            };
            Some(at.max(p.frozen_until).max(self.now))
        });
        let soonest = wakes.chain(event).chain(planned).min();
        soonest.unwrap_or(until).min(until)
    }

    pub(super) fn step(&mut self, until: u64) {
        self.now = self.next(until).max(self.now);
        if let Some(planned) = self.plan.get(self.planned).copied()
            && planned.at <= self.now
        {
            self.planned += 1;
            self.disturb(planned);
        }
        self.steps += 1;
        assert!(self.steps < STEPS_MAX, "a run does not come to its end");
        while let Some(entry) = self.events.first_entry()
            && entry.key().0 <= self.now
        {
            let event = entry.remove();
            self.happen(event);
        }
        for index in 0..self.live.len() {
            if let Some(process) = self.live.get(index).copied() {
                self.pump(process);
            }
        }
        self.check_exclusion();
        self.check_the_dead();
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Start { seat } => self.start(seat),
            Event::Land {
                process,
                call,
                operation,
                answered,
            } => self.land(process, call, operation, answered),
            Event::Answer {
                process,
                call,
                outcome,
            } => self.answer(process, call, outcome),
            Event::TimeUp { process, call } => self.time_up(process, call),
            Event::Commit(seq) => self.commit(seq),
            Event::StreamOpens { process, opening } => self.stream_opens(process, opening),
            Event::StreamSays {
                process,
                opening,
                hint,
            } => {
                if self.processes[process].stream.opening == opening {
                    self.input(process, Input::Hint(hint));
                }
            }
            Event::WorkEnds { process, claim } => {
                let p = &mut self.processes[process];
                if p.alive && p.works && p.contender.status().claim == claim {
                    p.works = false;
                    self.input(process, Input::Release);
                }
            }
            Event::GiveUp { process } => {
                let p = &mut self.processes[process];
                if p.alive {
                    p.works = false;
                    self.input(process, Input::GiveUp);
                }
            }
            Event::DeposedLearns => {
                self.store.deposed_learns();
                for seat in &mut self.seats {
                    seat.stale = false;
                }
            }
        }
    }

    /// Ends all faults. Calls in flight arrive soon or not at all.
    pub(super) fn heal(&mut self) {
        self.calm = true;
        self.plan.clear();
        self.store.no_primary_until = 0;
        self.store.no_majority_until = 0;
        self.happen(Event::DeposedLearns);
        for seat in &mut self.seats {
            seat.cut_until = 0;
        }
        for process in self.live.clone() {
            let p = &mut self.processes[process];
            p.frozen_until = p.frozen_until.min(self.now);
            p.running_since = p.running_since.min(self.now);
        }
        self.commit(self.store.newest());
        let soon = self.now + SECOND;
        self.events.retain(|(time, _), event| {
            *time <= soon || !matches!(event, Event::Land { .. } | Event::GiveUp { .. })
        });
        self.onlooker.healed(self.now);
    }
}
