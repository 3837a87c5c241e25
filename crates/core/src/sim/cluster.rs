//! The machines, their clocks, and the loop that delivers events in the order of true time.

use std::collections::BTreeMap;
use std::time::Duration;

use super::coverage::{Coverage, Hit};
use super::dice::Dice;
use super::faults::{Fault, Faults, Planned, plan, plan_guards, plan_others};
use super::files::Directory;
use super::guards::Guard;
use super::invariants::Violation;
use super::neighbours::Neighbour;
use super::network::Says;
use super::process::{Class, Process, tunables};
use super::replica_set::ReplicaSet;
use super::run::Setup;
use super::{MS, RUN, SECOND};
use crate::election::mutation::planted;
use crate::election::{BootTime, CallId, Claim, Identity, Input, Operation, Outcome};

/// Many times the number of steps in a run of ten minutes.
const STEPS_MAX: u64 = 1_000_000;
/// A clock rate in per mille that is within 1.1 of the fastest clock.
const ALIKE: u64 = 910;

/// An event that is scheduled.
#[derive(Debug, Clone)]
pub(super) enum Event {
    Land {
        process: usize,
        call: CallId,
        operation: Box<Operation>,
        answered: bool,
    },
    Commit(u64),
    Answer {
        process: usize,
        call: CallId,
        outcome: Outcome,
    },
    TimeUp {
        process: usize,
        call: CallId,
    },
    StreamOpens {
        process: usize,
        opening: u64,
    },
    StreamSays {
        process: usize,
        opening: u64,
        says: Box<Says>,
    },
    StreamBeats {
        process: usize,
        opening: u64,
    },
    StreamSilent {
        process: usize,
        opening: u64,
    },
    Input {
        process: usize,
        class: Class,
        input: Box<Input>,
    },
    Written {
        process: usize,
    },
    /// The workload next to a process checks if the process leads.
    Looks {
        process: usize,
    },
    Start {
        machine: usize,
        directory: usize,
    },
    Kill {
        process: usize,
    },
    Exited {
        process: usize,
    },
    PrimaryElected,
    DeposedLearns,
    Mend {
        directory: usize,
    },
    Unpause,
    Freeze {
        process: usize,
        until: u64,
    },
    /// An operator intervenes.
    Operate {
        fault: Fault,
        chance: u64,
    },
    TakeForeignAway(Box<super::replica_set::Document>),
    /// A report that a child's leader has exited, or that the whole child or its guard is gone.
    Reported {
        guard: usize,
        gone: bool,
    },
}

#[derive(Clone)]
pub(super) struct Machine {
    pub(super) identity: Identity,
    /// Local nanoseconds per thousand true ones.
    pub(super) rate: u64,
    /// The clock's value at true time zero.
    base: i64,
    pub(super) boot: u64,
    pub(super) asleep_until: u64,
    /// Total time for which the machine has been asleep.
    pub(super) slept: u64,
    pub(super) wall_skew: i64,
    pub(super) cut_until: u64,
    /// True if its driver still talks to the deposed primary.
    pub(super) stale: bool,
    pub(super) streams: bool,
    /// Upper bound of the time in which a workload here confirms; `None` if it never does.
    pub(super) confirms_within: Option<u64>,
    pub(super) tunables: crate::election::Tunables,
    /// True if candidates here run their workload themselves.
    pub(super) supervises: bool,
    /// Time that the workload gets to end when leadership is given up.
    pub(super) stop_grace: Duration,
    /// The unsupervised workload here, and its way of checking.
    pub(super) neighbour: Neighbour,
}

/// A forked machine. Both twins know these claims, and may lead through writes that were sent
/// before the fork, until these instants on their common clock.
#[derive(Debug, Clone)]
pub(super) struct Forked {
    pub(super) claims: Vec<(crate::election::Claim, BootTime)>,
}

/// A damaged document. Processes that know less than this may lead until the given time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Damage {
    pub(super) until: u64,
    /// Excuses processes that do not know the lease duration of this token.
    pub(super) token: crate::election::Token,
    /// Excuses processes that were shown nothing newer than this state, to which the document was
    /// restored.
    pub(super) order: u64,
}

/// The state that a majority had for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Was {
    Missing,
    Foreign,
    Token(crate::election::Token),
}

pub(super) struct World {
    pub(super) now: u64,
    pub(super) faults: Faults,
    pub(super) calm: bool,
    pub(super) net: Dice,
    pub(super) chance: Dice,
    pub(super) starts: Dice,
    pub(super) guard_dice: Dice,
    pub(super) stream_dice: Dice,
    events: BTreeMap<(u64, u64), Event>,
    serial: u64,
    steps: u64,
    pub(super) plan: Vec<Planned>,
    pub(super) planned: usize,
    pub(super) machines: Vec<Machine>,
    pub(super) directories: Vec<Directory>,
    pub(super) processes: Vec<Process>,
    pub(super) live: Vec<usize>,
    pub(super) guards: Vec<Guard>,
    /// The guards from which events may still come.
    pub(super) guarding: Vec<usize>,
    /// Every child that was started in the run.
    pub(super) children: Vec<super::invariants::one_child_a_token::Started>,
    /// The process and claim whose release freed the lease, while the lease is still free.
    pub(super) freed: Option<(usize, Claim)>,
    pub(super) set: ReplicaSet,
    pub(super) forks: Vec<Forked>,
    pub(super) damages: Vec<Damage>,
    pub(super) edited: bool,
    /// Lease durations that a reload replaced, with the time of the reload.
    pub(super) replaced: Vec<(u64, Duration)>,
    /// Each change of the token that a majority has, with its time.
    pub(super) was: Vec<(u64, Was)>,
    /// Calls that were reported as never sent, so they must not land.
    pub(super) never_sent: std::collections::BTreeSet<(usize, CallId)>,
    pub(super) token_highest: crate::election::Token,
    pub(super) coverage: Coverage,
    pub(super) violation: Option<Violation>,
    /// The trace lines with their true time, if requested.
    pub(super) trace: Option<Vec<(u64, String)>>,
    /// A digest of all decisions, and their number.
    pub(super) decisions: (u64, u64),
    pub(super) skewed: bool,
}

impl Machine {
    fn local(&self, now: u64) -> i64 {
        self.base + i64::try_from(now / 1000 * self.rate).expect("a run is short")
    }
}

impl World {
    /// Creates a world whose clocks run at rates from `slowest` to 1000 per mille.
    pub(super) fn new(setup: &Setup) -> Self {
        let (seed, faults, slowest) = (setup.seed, setup.faults, setup.slowest);
        let mut build = Dice::new(seed, 1);
        let mut supervision = Dice::new(seed, 10);
        let drawn = Faults::drawn(&mut build).supervised(&mut supervision);
        let mut others = Dice::new(seed, 13);
        let drawn = drawn.others(&mut others);
        let faults = faults.unwrap_or(drawn);
        let mut plan = plan(&mut Dice::new(seed, 2), faults, RUN);
        plan.extend(plan_guards(&mut Dice::new(seed, 11), faults, RUN));
        plan.extend(plan_others(&mut Dice::new(seed, 14), faults, RUN));
        plan.sort_by_key(|planned| planned.at);
        if let Some(kept) = &setup.kept {
            plan.retain(|planned| kept.contains(&planned.at));
        }
        let mut world = Self {
            now: 0,
            faults,
            calm: false,
            net: Dice::new(seed, 3),
            chance: Dice::new(seed, 4),
            starts: Dice::new(seed, 5),
            guard_dice: Dice::new(seed, 12),
            stream_dice: Dice::new(seed, 13),
            events: BTreeMap::new(),
            serial: 0,
            steps: 0,
            plan,
            planned: 0,
            machines: Vec::new(),
            directories: Vec::new(),
            processes: Vec::new(),
            live: Vec::new(),
            guards: Vec::new(),
            guarding: Vec::new(),
            children: Vec::new(),
            freed: None,
            set: ReplicaSet::new(),
            forks: Vec::new(),
            damages: Vec::new(),
            edited: false,
            replaced: Vec::new(),
            was: vec![(0, Was::Missing)],
            never_sent: std::collections::BTreeSet::new(),
            token_highest: crate::election::Token::ZERO,
            coverage: Coverage::default(),
            violation: None,
            trace: setup.traced.then(Vec::new),
            decisions: (0xcbf2_9ce4_8422_2325, 0),
            skewed: !setup.steady,
        };
        let count = build.between(2, 5).min(setup.candidates);
        // The guarantees for children hold for clocks whose rates differ less.
        let alike = !supervision.one_in(3) && faults.has(Fault::Supervised);
        let slowest = if alike { slowest.max(ALIKE) } else { slowest };
        for index in 0..count {
            world.add_machine(index, slowest, &mut build);
            world.supervise(&mut supervision);
            world.draw_neighbour(&mut others);
        }
        world
    }

    fn add_machine(&mut self, index: u64, slowest: u64, build: &mut Dice) {
        let drawn = slowest + build.below(1001 - slowest);
        let drifts = self.faults.has(Fault::Drift);
        let uptime = i64::try_from(build.between(20_000, 400_000) * SECOND).expect("small");
        let silent = build.one_in(3) && self.faults.has(Fault::WorkloadSilent);
        let confirms = build.between(1, 3_000) * MS;
        let streams = !build.one_in(3) || !self.faults.has(Fault::NoStreams);
        for (fault, drawn) in [
            (Fault::Drift, drifts),
            (Fault::WorkloadSilent, silent),
            (Fault::NoStreams, !streams),
        ] {
            if drawn {
                self.coverage.hit(Hit::Fault(fault));
            }
        }
        let name = char::from(b'a' + u8::try_from(index).expect("few machines"));
        self.machines.push(Machine {
            identity: Identity::new(name.to_string()).expect("legal"),
            rate: if drifts { drawn } else { 1000 },
            base: uptime,
            boot: index,
            asleep_until: 0,
            slept: 0,
            wall_skew: 0,
            cut_until: 0,
            stale: false,
            streams,
            confirms_within: (!silent).then_some(confirms),
            tunables: tunables(build),
            supervises: false,
            stop_grace: Duration::ZERO,
            neighbour: Neighbour::ATTENTIVE,
        });
        let machine = self.machines.len() - 1;
        let directory = self.add_directory(machine);
        let at = build.below(3_000) * MS;
        self.at(at, Event::Start { machine, directory });
    }

    /// Adds a copy of a machine, which is independent from now on.
    pub(super) fn clone_machine(&mut self, machine: usize) -> usize {
        self.machines.push(self.machines[machine].clone());
        self.machines.len() - 1
    }

    pub(super) fn add_directory(&mut self, machine: usize) -> usize {
        let inode = self.directories.len() as u64;
        self.directories.push(Directory::new(machine, inode));
        self.directories.len() - 1
    }

    pub(super) fn at(&mut self, time: u64, event: Event) {
        self.serial += 1;
        self.events.insert((time, self.serial), event);
    }

    /// Returns the time that a process on this machine reads from its clock.
    pub(super) fn machine_clock(&self, machine: usize, leads: bool) -> BootTime {
        let m = &self.machines[machine];
        let local = m.local(self.now);
        let shown = if planted!(MonotonicClock) {
            local - i64::try_from(m.slept).expect("short")
        } else if planted!(WallClock) {
            local + m.wall_skew
        } else if planted!(ServerClock) && !leads {
            local + self.set.clock_skew
        } else {
            local
        };
        BootTime::from_nanos(u64::try_from(shown).unwrap_or(0))
    }

    pub(super) fn clock(&self, process: usize) -> BootTime {
        let p = &self.processes[process];
        self.machine_clock(p.machine, p.leads_now)
    }

    /// Returns the true time at which a machine's clock, which shows `clock` now, shows `at`.
    pub(super) fn true_time(&self, machine: usize, clock: BootTime, at: BootTime) -> u64 {
        let machine = &self.machines[machine];
        let ahead = at.since(clock).as_nanos();
        let ahead = u64::try_from(ahead).unwrap_or(u64::MAX / 2_000);
        // The clock advances in steps of 1000 true nanoseconds.
        (self.now / 1000 + ahead.div_ceil(machine.rate)) * 1000 + u64::from(ahead > 0) * 1000
    }

    /// Converts `duration` on the clock of a machine to true nanoseconds.
    pub(super) fn stretched(&self, machine: usize, duration: Duration) -> u64 {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 2_000);
        nanos / self.machines[machine].rate * 1000
    }

    pub(super) fn is_frozen(&self, process: usize) -> bool {
        self.thaws_at(process) > self.now
    }

    pub(super) fn thaws_at(&self, process: usize) -> u64 {
        let p = &self.processes[process];
        p.frozen_until.max(self.machines[p.machine].asleep_until)
    }

    pub(super) fn freeze(&mut self, process: usize, until: u64) {
        let p = &mut self.processes[process];
        p.frozen_until = p.frozen_until.max(until);
        self.note(|| format!("p{process} frozen until {} ms", until / MS));
    }

    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push((self.now, line()));
        }
    }

    /// Delivers an input to a process; if the process does not run, the input waits.
    pub(super) fn input(&mut self, process: usize, class: Class, input: Input) {
        if self.processes[process].alive {
            self.processes[process].deliver(class, input);
            self.pump(process);
        }
    }

    /// Returns the next instant at which an event is due, at most `until`.
    fn next(&self, until: u64) -> u64 {
        let event = self.events.first_key_value().map(|((time, _), _)| *time);
        let planned = self.plan.get(self.planned).map(|p| p.at);
        let wakes = self.live.iter().filter_map(|id| {
            let p = &self.processes[*id];
            let at = [p.files.next_look(), p.election.next_wakeup()];
            let at = at.into_iter().flatten().min()?;
            let due = self
                .true_time(p.machine, self.clock(*id), at)
                .max(self.thaws_at(*id));
            (!p.exiting).then_some(due.max(self.now))
        });
        wakes
            .chain(self.next_of_guards())
            .chain(event)
            .chain(planned)
            .min()
            .unwrap_or(until)
            .min(until)
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
        self.pump_guards();
        self.check();
        self.check_children();
    }

    /// Ends all pending faults: events in flight arrive soon or not at all.
    pub(super) fn forget_the_late(&mut self) {
        let foreign = |event: &Event| matches!(event, Event::TakeForeignAway(_));
        let owners: Vec<_> = self
            .events
            .extract_if(.., |_, event| foreign(event))
            .collect();
        for (_, event) in owners {
            self.happen(event);
        }
        let soon = self.now + SECOND;
        let late = |event: &Event| {
            matches!(
                event,
                Event::Land { .. } | Event::Input { .. } | Event::Kill { .. }
            )
        };
        self.events
            .retain(|(time, _), event| *time <= soon || !late(event));
        self.plan.clear();
    }
}
