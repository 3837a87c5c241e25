//! The machines of the candidates and their clocks, and the loop over their processes.

use std::collections::BTreeMap;
use std::time::Duration;

use super::containers::Container;
use super::coverage::Hit;
use super::document::{Archive, Stored, Writer};
use super::faults::{Fault, Faults, RUN, plan_of};
use super::files::Directory;
use super::guards::Guard;
use super::hints::Hints;
use super::invariants::healing::{self, Longest};
use super::invariants::{Violation, streams_are_checked, wall_clocks_decide_nothing};
use super::neighbours::Neighbour;
use super::process::{Class, Process, tunables};
use super::report;
use super::streams::Change;
use crate::election::mutation::{Mutation, planted};
use crate::election::{BootTime, Claim, Identity, Input, Operation, Outcome};
use crate::proof::sim::clock::Clock;
use crate::proof::sim::faults::Planned;
use crate::proof::sim::rng::Rng;
use crate::proof::sim::run::{Ran, Setup, run};
use crate::proof::sim::world::Protocol;
use crate::proof::sim::{MS, SECOND, with, world};

/// The rate of the slowest clock, in per mille of the fastest, if rates differ by a factor of at
/// most 1.1.
const ALIKE: u64 = 910;
/// The leader must continue to lead for this time after the bound of I10 has passed.
const STEADY: u64 = 10 * SECOND;

pub(super) type World = world::World<Leases>;

#[derive(Clone)]
pub(super) struct Machine {
    pub(super) identity: Identity,
    pub(super) clock: Clock,
    pub(super) boot: u64,
    pub(super) asleep_until: u64,
    pub(super) slept: u64,
    pub(super) wall_skew: i64,
    pub(super) cut_until: u64,
    pub(super) stale: bool,
    pub(super) streams: bool,
    /// The candidates of this machine write hints, and follow hints if they can.
    pub(super) hints: bool,
    /// False if the candidates run a version without standbys. That version does not register, and
    /// its acquisitions leave the field `standby` unchanged.
    pub(super) stands_by: bool,
    pub(super) priority: u32,
    /// A restarted candidate releases the claim of its predecessor instead of leading again.
    pub(super) releases_predecessor: bool,
    /// The workload of a new candidate is not ready at first.
    pub(super) ready_late: bool,
    /// The time within which a workload confirms its end; `None` if it never does.
    pub(super) confirms_within: Option<u64>,
    pub(super) tunables: crate::election::Tunables,
    pub(super) supervises: bool,
    /// The guard and the daemon run in different containers.
    pub(super) contained: bool,
    /// The time allowed for a workload to end when leadership is given up.
    pub(super) stop_grace: Duration,
    pub(super) neighbour: Neighbour,
}

/// A forked machine. Both twins own the writes that were sent before the fork, so both may lead
/// under the claims of these writes. `claims` lists each claim with the instant when its authority
/// ends, on the clock that both twins share.
#[derive(Debug, Clone)]
pub(super) struct Forked {
    pub(super) claims: Vec<(Claim, BootTime)>,
}

impl Forked {
    pub(super) fn has(&self, claim: Claim) -> bool {
        self.claims.iter().any(|(of_both, _)| *of_both == claim)
    }

    /// Returns true if a write before the fork grants authority until this instant.
    pub(super) fn tolerates(&self, claim: Claim, until: BootTime) -> bool {
        let tolerated =
            |(of_both, sent_before): &(Claim, BootTime)| *of_both == claim && until <= *sent_before;
        self.claims.iter().any(tolerated)
    }
}

/// Damage to the document. Until the time `until`, processes that do not know of the damage may
/// lead.
#[derive(Debug, Clone, Copy)]
pub(super) struct Damage {
    pub(super) until: u64,
    /// The checks excuse a process that does not know the lease duration declared with this token.
    pub(super) token: crate::election::Token,
    /// An operator restored this state. The checks excuse a process that has seen no newer state.
    pub(super) order: u64,
}

/// A handover to a preferred standby. `token` is the token of the leadership that the handover
/// ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct GaveWay {
    pub(super) at: u64,
    pub(super) token: crate::election::Token,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Was {
    Missing,
    Foreign,
    Token(crate::election::Token),
}

#[derive(Default)]
pub(super) struct Leases {
    pub(super) starts: Rng,
    pub(super) guard_dice: Rng,
    pub(super) stream_dice: Rng,
    /// The newest change that a majority has, and the time of its commit.
    pub(super) last_change: Option<(u64, Change)>,
    pub(super) hints: Hints,
    pub(super) router_dice: Rng,
    pub(super) label_dice: Rng,
    pub(super) container_dice: Rng,
    pub(super) containers: Vec<Container>,
    /// The number of connections between guards and daemons so far.
    pub(super) connections: u64,
    pub(super) directories: Vec<Directory>,
    pub(super) guards: Vec<Guard>,
    /// The guards that may still cause events.
    pub(super) guarding: Vec<usize>,
    pub(super) children: Vec<super::invariants::one_child_a_token::Started>,
    pub(super) gave_way: Option<GaveWay>,
    /// The true time when a majority received the last registration of each candidate.
    pub(super) registered: BTreeMap<Identity, u64>,
    /// The process and the claim whose release freed the lease, or `None` while the lease is held.
    pub(super) freed: Option<(usize, Claim)>,
    pub(super) archive: Archive,
    pub(super) forks: Vec<Forked>,
    pub(super) damages: Vec<Damage>,
    pub(super) edited: bool,
    pub(super) replaced: Vec<(u64, Duration)>,
    pub(super) was: Vec<(u64, Was)>,
    pub(super) token_highest: crate::election::Token,
    /// Set if tokens restarted after a loss of data. Every token up to this token may be used
    /// twice.
    pub(super) tokens_reused_to: Option<crate::election::Token>,
    pub(super) clock_skew: i64,
    pub(super) skewed: bool,
}

impl Protocol for Leases {
    type Fault = Fault;
    type Case = Hit;
    type Mutation = Mutation;
    type Machine = Machine;
    type Process = Process;
    type Operation = Operation;
    type Outcome = Outcome;
    type State = Stored;
    type Write = Writer;

    const FAILED: Outcome = Outcome::Failed;
    const UNKNOWN: Outcome = Outcome::Unknown;
    const NAME: &str = "simulation";
    const REPLAY: &str = "make replay";
    const SEEDS: u64 = 6_000;
    const LINES: usize = 60;
    const LEGEND: &str = report::LEGEND;
    const ROUTINE: &[&str] = report::ROUTINE;

    /// Builds a world whose clocks run at rates from `setup.slowest` to 1000 per mille.
    fn world(setup: &Setup<Fault>) -> World {
        let seed = setup.seed;
        let mut build = Rng::new(seed, 1);
        let mut supervision = Rng::new(seed, 10);
        let drawn = Faults::drawn(&mut build).supervised(&mut supervision);
        let mut others = Rng::new(seed, 13);
        let mut priorities = Rng::new(seed, 14);
        let drawn = drawn.others(&mut others).hinted(seed).routed(seed);
        let drawn = drawn.restored_under(seed).contained(seed);
        let faults = setup.faults.unwrap_or(drawn);
        let own = Self {
            starts: Rng::new(seed, 5),
            guard_dice: Rng::new(seed, 12),
            stream_dice: Rng::new(seed, 13),
            hints: Hints::new(seed),
            router_dice: Rng::new(seed, 19),
            label_dice: Rng::new(seed, 21),
            container_dice: Rng::new(seed, 26),
            was: vec![(0, Was::Missing)],
            skewed: !setup.steady,
            ..Self::default()
        };
        let plan = plan_of(seed, faults);
        let mut world = World::new(setup, (3, 4), faults, plan, (Stored::EMPTY, own));
        let count = build.between(2, 5).min(setup.machines);
        // The guarantees for children hold only if clock rates differ by a factor of at most 1.1.
        let alike = !supervision.one_in(3) && faults.has(Fault::Supervised);
        let least = if alike { ALIKE } else { 0 };
        for index in 0..count {
            world.add_machine(index, setup.slowest.max(least), &mut build);
            world.supervise(&mut supervision);
            world.draw_neighbour(&mut others);
            world.prioritize(&mut priorities);
            world.draw_successors(seed);
            world.draw_hints();
        }
        world.notice_hints();
        world
    }

    /// Runs ten minutes with faults, and then a period without faults. Some candidate must lead at
    /// the end of that period.
    fn live(world: &mut World, setup: &Setup<Fault>) {
        world.run_until(RUN, |_| false);
        if world.violation.is_some() {
            return;
        }
        world.heal();
        let bound = healing::bound(Longest {
            lease_duration: world.longest_wait(),
            reservation: Duration::from_secs(5),
            operation_timeout: Duration::from_secs(3),
            retry_interval: Duration::from_secs(1),
            workload_end: world.longest_end(),
            rate: u32::try_from(setup.slowest).expect("per mille"),
        });
        // The holder needs one renewal interval to notice the last change of the document. A
        // follower on a stale stream may first try to create the lease, and needs two intervals to
        // notice that another candidate holds the lease.
        let bound = bound + Duration::from_secs(13);
        let calm = world.now + u64::try_from(bound.as_nanos()).expect("short");
        world.run_until(calm, |_| false);
        let leaders = world.leaders();
        world.found(healing::check(&leaders, None, bound));
        let end = world.now + STEADY;
        while world.now < end && world.violation.is_none() {
            world.step(end);
            let (now, first) = (world.leaders(), leaders.first().copied());
            world.found(healing::check(&now, first, bound));
        }
        world.found(streams_are_checked::check_peace(world.on_a_stale_stream()));
        world.found(healing::check_child(world.leads_without_child()));
        world.found(healing::check_waiting(world.waits_for_guard()));
        world.end_leadership_in_peace();
    }

    /// Checks I9 by running the seed again with wall clocks that never jump.
    fn run_again(setup: &Setup<Fault>, ran: &Ran<Self>) -> Option<Violation> {
        let steady = run::<Self>(&with(setup.clone(), |it| it.steady = true));
        wall_clocks_decide_nothing::check(ran.decisions, steady.decisions)
    }

    fn machines(world: &World) -> Vec<String> {
        world.machines.iter().map(report::candidate).collect()
    }

    fn meaning(invariant: &'static str) -> &'static str {
        report::meaning(invariant)
    }

    fn wakes_at(world: &World) -> Option<u64> {
        let wakes = world.live.iter().filter_map(|id| {
            let p = &world.processes[*id];
            let at = [p.files.next_look(), p.election.next_wakeup()];
            let at = at.into_iter().flatten().min()?;
            let due = world.true_time(p.machine, world.clock(*id), at);
            (!p.exiting).then_some(due.max(world.thaws_at(*id)).max(world.now))
        });
        wakes.chain(world.next_of_guards()).min()
    }

    fn inject(world: &mut World, planned: Planned<Fault>) {
        world.inject(planned);
    }

    fn pump(world: &mut World, process: usize) {
        world.pump(process);
    }

    fn check(world: &mut World) {
        world.pump_guards();
        world.check();
        world.check_children();
    }
}

impl World {
    fn add_machine(&mut self, index: u64, slowest: u64, build: &mut Rng) {
        let drawn = slowest + build.below(1001 - slowest);
        let drifts = self.strikes(true, Fault::Drift);
        let uptime = i64::try_from(build.between(20_000, 400_000) * SECOND).expect("small");
        let silent = self.strikes(build.one_in(3), Fault::WorkloadSilent);
        let confirms = build.between(1, 3_000) * MS;
        let streams = !self.strikes(build.one_in(3), Fault::NoStreams);
        let name = char::from(b'a' + u8::try_from(index).expect("few machines"));
        self.machines.push(Machine {
            identity: Identity::new(name.to_string()).expect("legal"),
            clock: Clock {
                rate: if drifts { drawn } else { 1000 },
                base: uptime,
            },
            boot: index,
            asleep_until: 0,
            slept: 0,
            wall_skew: 0,
            cut_until: 0,
            stale: false,
            streams,
            hints: false,
            stands_by: !build.one_in(4),
            priority: 0,
            releases_predecessor: false,
            ready_late: false,
            confirms_within: (!silent).then_some(confirms),
            tunables: tunables(build),
            supervises: false,
            contained: false,
            stop_grace: Duration::ZERO,
            neighbour: Neighbour::default(),
        });
        let machine = self.machines.len() - 1;
        let directory = self.add_directory(machine);
        let at = build.below(3_000) * MS;
        self.start_at(at, machine, directory);
    }

    /// Draws the priority of the candidates on the newest machine, and whether these candidates
    /// hand over to standbys of higher priority. Candidates of earlier versions keep the default.
    fn prioritize(&mut self, rng: &mut Rng) {
        let priority = [0, 0, 1, 2, 7][rng.index(5)];
        let interval = [None, None, Some(30), Some(90)][rng.index(4)];
        let machine = self.machines.last_mut().expect("one was added");
        if machine.stands_by {
            machine.priority = priority;
            machine.tunables.prefer_interval = interval.map(Duration::from_secs);
        }
    }

    pub(super) fn clone_machine(&mut self, machine: usize) -> usize {
        self.machines.push(self.machines[machine].clone());
        self.machines.len() - 1
    }

    pub(super) fn add_directory(&mut self, machine: usize) -> usize {
        let inode = self.own.directories.len() as u64;
        self.own.directories.push(Directory::new(machine, inode));
        let directory = self.own.directories.len() - 1;
        self.furnish(directory);
        directory
    }

    pub(super) fn machine_clock(&self, machine: usize, leads: bool) -> BootTime {
        let m = &self.machines[machine];
        let local = m.clock.at(self.now);
        let shown = if planted!(MonotonicClock) {
            local - i64::try_from(m.slept).expect("short")
        } else if planted!(WallClock) {
            local + m.wall_skew
        } else if planted!(ServerClock) && !leads {
            local + self.own.clock_skew
        } else {
            local
        };
        BootTime::from_nanos(u64::try_from(shown).unwrap_or(0))
    }

    pub(super) fn clock(&self, process: usize) -> BootTime {
        let p = &self.processes[process];
        self.machine_clock(p.machine, p.leads_now)
    }

    pub(super) fn true_time(&self, machine: usize, shown: BootTime, at: BootTime) -> u64 {
        self.machines[machine].clock.true_time(self.now, shown, at)
    }

    pub(super) fn stretched(&self, machine: usize, duration: Duration) -> u64 {
        self.machines[machine].clock.stretched(duration)
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

    pub(super) fn input(&mut self, process: usize, class: Class, input: Input) {
        if self.processes[process].alive {
            self.processes[process].deliver(class, input);
            self.pump(process);
        }
    }
}
