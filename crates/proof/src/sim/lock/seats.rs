//! The machines of a run. Processes contend on a machine one after another, and each passes its
//! memory to the next process.

use std::time::Duration;

use super::faults::Fault;
use super::process::Process;
use super::world::World;
use crate::election::{Identity, Timings, Token};
use crate::lock::{
    LockInput, LockMode, MinHold, Observations, OncePer, Options, Slots, WorkKey, scaled,
};
use crate::proof::sim::clock::Clock;
use crate::proof::sim::ids::Ids;
use crate::proof::sim::rng::Rng;
use crate::proof::sim::world::AtPeace;
use crate::proof::sim::{MS, SECOND};

#[derive(Clone)]
pub(super) struct Seat {
    pub(super) random: Ids,
    pub(super) identity: Identity,
    pub(super) clock: Clock,
    pub(super) cut_until: u64,
    pub(super) stale: bool,
    pub(super) streams: bool,
    /// The processes run an older version, whose grants carry no tokens.
    pub(super) older: bool,
    pub(super) watch_first: bool,
    pub(super) timings: Timings,
    pub(super) mode: LockMode,
    pub(super) impatient: bool,
    pub(super) min_hold: MinHold,
    pub(super) once_per: Option<OncePer>,
    pub(super) token_remembered: Token,
    /// The observations of the machine's processes. Each process starts with the observations of
    /// its predecessor.
    pub(super) observations: Observations,
    pub(super) done: Vec<Done>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Done {
    pub(super) from: u64,
    pub(super) to: u64,
}

impl World {
    pub(super) fn add_seat(
        &mut self,
        seat: u64,
        (kind, slots): (u64, u64),
        timings: Timings,
        slowest: u64,
        build: &mut Rng,
    ) {
        let rate = slowest + build.below(1001 - slowest);
        let without_streams = self.strikes(build.one_in(3), Fault::NoStreams);
        let watch_first = build.one_in(2);
        let impatient = self.strikes(build.one_in(2), Fault::Impatience);
        let wrong = self.strikes(build.one_in(6), Fault::WrongSlots);
        let drifts = self.strikes(true, Fault::Drift);
        self.strikes(true, Fault::MixedTimings);
        let older = self.strikes(build.one_in(3), Fault::OlderVersion);
        let (reads, number) = (build.one_in(2), build.between(1, 4));
        let keeps = self.strikes(build.one_in(3), Fault::LeastTime);
        // If holds were longer, short jobs would wait for each other all the time.
        let longest = if self.own.brisk { 1_000 } else { 30_000 };
        let min_hold = Duration::from_millis(build.between(100, longest));
        let once = self.strikes(build.one_in(2), Fault::OncePer);
        let once_per = once.then(|| OncePer {
            period: Duration::from_millis(build.between(1_000, 60_000)),
            key: WorkKey::new(["x", "y"][usize::from(build.one_in(3))]).expect("legal"),
        });
        let slot = |number: u64| {
            let number = u32::try_from(number).expect("few");
            LockMode::Slot(Slots::new(number).expect("one at least"))
        };
        let mode = match kind {
            _ if wrong => slot(number),
            0 => LockMode::Exclusive,
            1 if reads => LockMode::Shared,
            1 => LockMode::Exclusive,
            _ => slot(slots),
        };
        let name = char::from(b'a' + u8::try_from(seat).expect("few seats"));
        self.machines.push(Seat {
            random: Ids::new(Rng::new(build.next_u64(), seat)),
            identity: Identity::new(name.to_string()).expect("legal"),
            clock: Clock {
                rate: if drifts { rate } else { 1000 },
                base: i64::try_from(build.between(20_000, 400_000) * SECOND).expect("small"),
            },
            cut_until: 0,
            stale: false,
            streams: !without_streams,
            older,
            watch_first,
            timings,
            mode,
            impatient,
            min_hold: match keeps && !older {
                true => MinHold::new(min_hold).expect("short"),
                false => MinHold::NONE,
            },
            once_per: once_per.filter(|_| mode == LockMode::Exclusive && !older),
            token_remembered: Token::ZERO,
            observations: Observations::default(),
            done: Vec::new(),
        });
        let at = build.below(3_000) * MS;
        let seat = self.machines.len() - 1;
        self.at(at, move |world| world.start(seat));
    }

    pub(super) fn start(&mut self, seat: usize) {
        if self.calm {
            return;
        }
        let roll = self.chance.below(8);
        let longest = if self.own.brisk { 2_000 } else { 60_000 };
        let patience = self.chance.between(100, longest) * MS;
        let s = &self.machines[seat];
        let options = Options {
            identity: s.identity.clone(),
            mode: s.mode,
            min_hold: s.min_hold,
            once_per: s.once_per.clone(),
            timings: s.timings,
            non_blocking: s.impatient && roll == 0,
            watch_first: s.watch_first,
            token_remembered: s.token_remembered,
            went_back: None,
            observations: s.observations.clone(),
        };
        let process = self.processes.len();
        let gives_up = (s.impatient && roll < 4) || self.own.brisk;
        let clock = self.seat_clock(seat);
        let random = &mut self.machines[seat].random;
        let started = Process::start(seat, options, self.now, clock, random);
        self.processes.push(started);
        self.live.push(process);
        self.note(|| format!("p{process} starts on seat {seat}"));
        if gives_up {
            self.at_or(AtPeace::Drop, self.now + patience, move |world| {
                world.gives_up(process)
            });
        }
        self.input(process, LockInput::Tick);
    }

    pub(super) fn kill(&mut self, process: usize) {
        self.ends(process, false);
    }

    pub(super) fn exit(&mut self, process: usize) {
        let p = &self.processes[process];
        let seat = &mut self.machines[p.seat];
        seat.observations = p.contender.observations().clone();
        if let Some(from) = p.acquired_at {
            seat.done.push(Done { from, to: self.now });
        }
        self.ends(process, true);
    }

    fn ends(&mut self, process: usize, in_order: bool) {
        let p = &mut self.processes[process];
        if std::mem::replace(&mut p.alive, false) {
            p.works = false;
            let (seat, token) = (p.seat, p.contender.token_highest());
            self.live.retain(|id| *id != process);
            let pause = match self.own.brisk && in_order {
                true => 500,
                false => 40_000,
            };
            let again = self.now + self.chance.between(10, pause) * MS;
            if self.chance.one_in(2) {
                self.machines[seat].token_remembered = token;
            }
            self.at(again, move |world| world.start(seat));
            self.note(|| format!("p{process} is gone"));
        }
    }
}

pub(super) fn timings(build: &mut Rng) -> Timings {
    let lease = Duration::from_millis(build.between(4_000, 24_001));
    scaled(&Timings::default(), lease).expect("the defaults scale")
}
