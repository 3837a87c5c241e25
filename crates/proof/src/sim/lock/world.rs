//! The world of the contenders, with the clocks of their machines and the processes on them.

use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use super::coverage::{Hit, Path};
use super::faults::{Fault, Faults, RUN, plan_of};
use super::forks::Forked;
use super::invariants::healing;
use super::network::Write;
use super::observer::Observer;
use super::process::Process;
use super::report;
use super::seats::{Seat, timings};
use crate::election::{BootTime, Claim, Token, WallMillis};
use crate::lock::mutation::Mutation;
use crate::lock::{
    FoundLock, Hint, LockEffect, LockInput, LockOperation, LockOutcome, LockStatus, Standing,
};
use crate::proof::flawed::lock as flawed;
use crate::proof::sim::faults::Planned;
use crate::proof::sim::rng::Rng;
use crate::proof::sim::run::Setup;
use crate::proof::sim::world::Protocol;
use crate::proof::sim::{MS, SECOND, world};

/// Maximum time from the end of the faults until every process is done. This is twice the longest
/// wait for an expired entry, because the eviction of an ownerless entry may grant the lock to
/// another ownerless entry.
const PEACE: u64 = 160 * SECOND;
/// Additional time for eight entries with a minimum hold of 30 s each, by the slowest clock.
const KEPT: u64 = 8 * 30 * SECOND * 4 / 3;

pub(super) type World = world::World<Locks>;

pub(super) struct Locks {
    /// Work and waits are short compared to the lease, and jobs follow each other closely.
    pub(super) brisk: bool,
    pub(super) observer: Observer,
    pub(super) events: Vec<(Claim, Hint)>,
    /// When the store's clock is ahead, and by how much.
    ahead: (Range<u64>, u64),
    pub(super) forks: Vec<Forked>,
}

impl Protocol for Locks {
    type Fault = Fault;
    type Case = Hit;
    type Mutation = Mutation;
    type Machine = Seat;
    type Process = Process;
    type Operation = LockOperation;
    type Outcome = LockOutcome;
    type State = FoundLock;
    type Write = Write;

    const FAILED: LockOutcome = LockOutcome::Failed;
    const UNKNOWN: LockOutcome = LockOutcome::Unknown;
    const NAME: &str = "simulation of locks";
    const REPLAY: &str = "make replay-locks";
    const SEEDS: u64 = 5_000;
    const LINES: usize = 120;
    const LEGEND: &str = report::LEGEND;
    const ROUTINE: &[&str] = &[];

    fn world(setup: &Setup<Fault>) -> World {
        let mut build = Rng::new(setup.seed, 11);
        let drawn = Faults::drawn(&mut build);
        let faults = setup.faults.unwrap_or(drawn);
        let own = Self {
            brisk: Rng::new(setup.seed, 15).one_in(6),
            observer: Observer::new(setup.slowest),
            events: Vec::new(),
            ahead: ahead(&mut Rng::new(setup.seed, 16), faults),
            forks: Vec::new(),
        };
        let plan = plan_of(setup.seed, faults);
        let jumps = !own.ahead.0.is_empty();
        let mut world = World::new(setup, (13, 14), faults, plan, (FoundLock::Missing, own));
        world.coverage.hit_if(jumps, Hit::Fault(Fault::ClockAhead));
        let (mut kind, mut slots) = (build.below(3), build.between(1, 4));
        if world.own.brisk && kind == 0 {
            // With an exclusive lock, every contender would wait for a killed holder's entry, so
            // this run uses slots.
            (kind, slots) = (2, slots + 1);
        }
        let common = timings(&mut build);
        let seats = build.between(2, 9).min(setup.machines);
        for seat in 0..seats {
            let own = match faults.has(Fault::MixedTimings) {
                true => timings(&mut build),
                false => common,
            };
            world.add_seat(seat, (kind, slots), own, setup.slowest, &mut build);
        }
        world
    }

    /// Runs some minutes with faults, and then without faults until every process is done.
    fn live(world: &mut World, _: &Setup<Fault>) {
        world.run_until(RUN, |_| false);
        if world.violation.is_some() {
            return;
        }
        world.heal();
        // The minimum holds of several processes may follow each other, so the bound adds them up.
        let kept = match world.faults.has(Fault::LeastTime) {
            true => KEPT,
            false => 0,
        };
        world.run_until(world.now + PEACE + kept, |world| world.live.is_empty());
        let standing = |id: &usize| world.processes[*id].contender.status().standing;
        let left: Vec<_> = world.live.iter().map(standing).collect();
        world.found(healing::check(&left, world.set.committed()));
    }

    fn machines(world: &World) -> Vec<String> {
        world.machines.iter().map(report::seat).collect()
    }

    fn wakes_at(world: &World) -> Option<u64> {
        let wakes = world.live.iter().filter_map(|id| {
            let p = &world.processes[*id];
            let at = match p.inbox.is_empty() {
                true => world.true_time(*id, p.contender.next_wakeup()?),
                false => world.now,
            };
            Some(at.max(p.frozen_until).max(world.now))
        });
        wakes.min()
    }

    fn inject(world: &mut World, planned: Planned<Fault>) {
        world.inject(planned);
    }

    fn pump(world: &mut World, process: usize) {
        world.pump(process);
    }

    fn check(world: &mut World) {
        world.check_exclusion();
        world.check_evictions();
    }
}

fn ahead(rng: &mut Rng, faults: Faults) -> (Range<u64>, u64) {
    let from = rng.between(10, 60) * SECOND;
    let (until, by) = (
        from + rng.between(20, 60) * SECOND,
        rng.between(1, 600) * SECOND,
    );
    let jumps = faults.has(Fault::ClockAhead);
    (from..if jumps { until } else { from }, by)
}

impl World {
    pub(super) fn seat_clock(&self, seat: usize) -> BootTime {
        let shown = self.machines[seat].clock.at(self.now);
        BootTime::from_nanos(u64::try_from(shown).unwrap_or(0))
    }

    pub(super) fn store_now(&self) -> WallMillis {
        WallMillis(i64::try_from(self.store_clock(self.now) / MS).expect("small"))
    }

    fn store_clock(&self, at: u64) -> u64 {
        let (period, by) = &self.own.ahead;
        at + if period.contains(&at) { *by } else { 0 }
    }

    /// Returns the readings of the store's clock since `from`, as ranges in which the clock did
    /// not jump.
    pub(super) fn store_readings(&self, from: u64) -> Vec<RangeInclusive<Duration>> {
        let (period, _) = &self.own.ahead;
        let from = from.min(self.now);
        let jumps = [period.start, period.end];
        let is_inside = |at: &u64| !period.is_empty() && (from + 1..=self.now).contains(at);
        let jumps = jumps.into_iter().filter(is_inside);
        let starts = [from].into_iter().chain(jumps.clone());
        let ends = jumps.map(|at| at - 1).chain([self.now]);
        let shown = |at| Duration::from_nanos(self.store_clock(at));
        starts
            .zip(ends)
            .map(|(from, to)| shown(from)..=shown(to))
            .collect()
    }

    pub(super) fn clock(&self, process: usize) -> BootTime {
        self.seat_clock(self.processes[process].seat)
    }

    /// Returns the true time when the process's clock shows `at`.
    pub(super) fn true_time(&self, process: usize, at: BootTime) -> u64 {
        let clock = self.machines[self.processes[process].seat].clock;
        clock.true_time(self.now, self.clock(process), at)
    }

    /// Converts a duration on the clock of a seat to nanoseconds of true time.
    pub(super) fn stretched(&self, seat: usize, duration: Duration) -> u64 {
        self.machines[seat].clock.stretched(duration)
    }

    pub(super) fn freeze(&mut self, process: usize, until: u64) {
        let p = &mut self.processes[process];
        p.frozen_until = p.frozen_until.max(until);
        p.running_since = p.frozen_until;
        self.note(|| format!("p{process} frozen until {} ms", until / MS));
    }

    pub(super) fn input(&mut self, process: usize, input: LockInput) {
        if self.processes[process].alive {
            self.processes[process].inbox.push_back(input);
            self.pump(process);
        }
    }

    fn pump(&mut self, process: usize) {
        while self.processes[process].alive && self.processes[process].frozen_until <= self.now {
            let now = self.clock(process);
            let p = &mut self.processes[process];
            let due = p.contender.next_wakeup().is_some_and(|at| at <= now);
            let input = match p.inbox.pop_front() {
                Some(input) => input,
                None if due => LockInput::Tick,
                None => return,
            };
            self.turn(process, input, now);
        }
    }

    fn turn(&mut self, process: usize, input: LockInput, now: BootTime) {
        self.note(|| super::report::input(process, &input));
        let p = &mut self.processes[process];
        if matches!(input, LockInput::GiveUp) {
            // A process that gives up starts no work, even if the lock was granted while the
            // process was frozen.
            p.works = false;
        }
        p.ledger.before(now, &input, &p.contender.status());
        let random = self.machines[p.seat].random.at(now);
        flawed::handle(&mut p.contender, now, input, random);
        let status = p.contender.status();
        let authority = p.contender.authority_at(now);
        let violation = p.ledger.after(authority, &status);
        self.found(violation);
        let mode = self.processes[process].options.mode;
        while let Some(effect) = flawed::next_effect(&mut self.processes[process].contender, mode) {
            self.perform(process, effect);
        }
    }

    fn perform(&mut self, process: usize, effect: LockEffect) {
        self.decides(process, &effect);
        match effect {
            LockEffect::Call { id, operation } => self.send(process, id, operation),
            LockEffect::Watch(claim) => self.watch(process, claim),
            LockEffect::Acquired { token, .. } => {
                self.check_once_per(process);
                self.acquired(process, token);
            }
            LockEffect::Lost(loss) => {
                self.note(|| format!("p{process} LOST {loss:?}"));
                self.check_loss(process, loss);
                let claim = self.processes[process].contender.status().claim;
                let ends = self.now + self.chance.between(1, 3_000) * MS;
                // A program may notice the loss before it begins its work.
                match self.chance.one_in(4) {
                    true => self.at(ends, move |world| world.gives_up(process)),
                    false => self.at(ends, move |world| world.work_ends(process, claim)),
                }
            }
            LockEffect::Notice(notice) => {
                self.note(|| format!("p{process} says {notice:?}"));
                self.check_notice(process, &notice);
            }
            LockEffect::Exit(end) => {
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
        let LockStatus {
            claim, provisional, ..
        } = p.contender.status();
        self.coverage.hit_if(provisional, Hit::Path(Path::Granted));
        self.note(|| format!("p{process} HOLDS by {token}"));
        self.note_place(process, claim);
        let of_twins = self.is_of_twins(claim);
        let reused = self.own.observer.acquired((token, claim), of_twins);
        self.found(reused);
        let most = match self.calm || self.own.brisk {
            true => 500,
            false => 12_000,
        };
        let ends = self.now + self.chance.between(1, most) * MS;
        self.at(ends, move |world| world.work_ends(process, claim));
        self.check_exclusion();
    }

    fn decides(&mut self, process: usize, effect: &LockEffect) {
        let words = match effect {
            LockEffect::Call { id, operation } => id.0 ^ operation.as_str().len() as u64,
            LockEffect::Watch(_) => 1_001,
            LockEffect::Acquired { token, .. } => 1_002 ^ token.get().unsigned_abs(),
            LockEffect::Lost(_) => 1_003,
            LockEffect::Notice(_) => 1_004,
            LockEffect::Exit(_) => 1_005,
        };
        self.decide(process, words);
        if let Some(path) = Path::behind(effect) {
            self.coverage.hit(Hit::Path(path));
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
        if self.machines[seat].streams {
            let at = self.now + self.net.between(1, 40) * MS;
            self.at(at, move |world| world.stream_opens(process, opening));
        } else {
            let inbox = &mut self.processes[process].inbox;
            inbox.push_back(LockInput::Hint(Hint::Lost));
        }
    }

    pub(super) fn work_ends(&mut self, process: usize, claim: Claim) {
        let p = &mut self.processes[process];
        if p.alive && p.works && p.contender.status().claim == claim {
            p.works = false;
            let unconfirmed = p.contender.status().provisional;
            self.coverage
                .hit_if(unconfirmed, Hit::Path(Path::Unconfirmed));
            let failed =
                self.processes[process].options.once_per.is_some() && self.chance.one_in(4);
            let end = match failed {
                true => LockInput::Release,
                false => {
                    self.work_succeeded(process, claim);
                    LockInput::Succeeded
                }
            };
            self.input(process, end);
        }
    }

    pub(super) fn gives_up(&mut self, process: usize) {
        let p = &mut self.processes[process];
        if p.alive {
            p.works = false;
            let (claim, standing) = (p.contender.claim(), p.contender.status().standing);
            if let Standing::Held(_) | Standing::Lost(_) = standing {
                self.forget_place(claim);
            }
            self.input(process, LockInput::GiveUp);
        }
    }

    pub(super) fn deposed_learns(&mut self) {
        self.set.deposed_learns();
        for seat in &mut self.machines {
            seat.stale = false;
        }
    }

    /// Ends all faults. Calls in flight arrive soon or not at all.
    pub(super) fn heal(&mut self) {
        if self.faults.has(Fault::Edited) && self.chance.one_in(2) {
            // An edit that removes the holders grants nothing, so the waiters must notice by
            // themselves that the lock is free.
            self.remove_holders();
        }
        self.calm = true;
        self.set.no_primary_until = 0;
        self.set.no_majority_until = 0;
        self.deposed_learns();
        for seat in &mut self.machines {
            seat.cut_until = 0;
        }
        for process in self.live.clone() {
            let p = &mut self.processes[process];
            p.frozen_until = p.frozen_until.min(self.now);
            p.running_since = p.running_since.min(self.now);
        }
        self.commit(self.set.newest());
        self.forget_the_late();
        self.own.observer.healed(self.now);
    }
}
