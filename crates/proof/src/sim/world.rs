//! A simulated world, which consists of the replica set, and of the machines and processes of one
//! protocol. The loop handles events in the order of true time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::coverage::{Case, Coverage};
use super::faults::{Faults, Kind, Planned};
use super::invariants::Violation;
use super::planted::Bug;
use super::replica_set::ReplicaSet;
use super::rng::Rng;
use super::run::{Ran, Setup};
use crate::election::CallId;

/// Maximum number of steps of a run, far above the usual number. A run that reaches this number
/// counts as endless and fails.
const STEPS_MAX: u64 = 1_000_000;

pub(super) trait Protocol: Sized + 'static {
    type Fault: Kind;
    type Case: Case + From<Self::Fault>;
    type Mutation: Bug;
    type Machine;
    type Process;
    type Operation: Clone;
    type Outcome: Clone + PartialEq;
    type State: Clone;
    /// The sender and details of a write. The checks use them once a majority has the write.
    type Write;

    const FAILED: Self::Outcome;
    const UNKNOWN: Self::Outcome;
    const NAME: &str;
    const REPLAY: &str;
    const SEEDS: u64;
    const LINES: usize;
    const LEGEND: &str;
    /// A trace line with one of these texts is routine, and the report shortens long sequences of
    /// routine lines.
    const ROUTINE: &[&str];

    fn world(setup: &Setup<Self::Fault>) -> World<Self>;

    /// Runs the world through a period with faults, and then through a period without faults.
    fn live(world: &mut World<Self>, setup: &Setup<Self::Fault>);

    fn run_again(_setup: &Setup<Self::Fault>, _ran: &Ran<Self>) -> Option<Violation> {
        None
    }

    fn machines(world: &World<Self>) -> Vec<String>;

    fn meaning(invariant: &'static str) -> &'static str {
        invariant
    }

    /// Returns the true time when some process next acts by itself.
    fn wakes_at(world: &World<Self>) -> Option<u64>;

    fn inject(world: &mut World<Self>, planned: Planned<Self::Fault>);

    fn pump(world: &mut World<Self>, process: usize);

    fn check(world: &mut World<Self>);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AtPeace {
    Keep,
    /// Drops the event unless the event is due soon.
    Drop,
    HappenNow,
}

type Happening<P> = Box<dyn FnOnce(&mut World<P>)>;

pub(super) struct World<P: Protocol> {
    pub(super) now: u64,
    pub(super) faults: Faults<P::Fault>,
    pub(super) calm: bool,
    pub(super) net: Rng,
    pub(super) chance: Rng,
    /// The scheduled events. Events at the same time happen in the order in which they were
    /// scheduled.
    events: BTreeMap<(u64, u64), (AtPeace, Happening<P>)>,
    serial: u64,
    steps: u64,
    pub(super) plan: VecDeque<Planned<P::Fault>>,
    pub(super) machines: Vec<P::Machine>,
    pub(super) processes: Vec<P::Process>,
    pub(super) live: Vec<usize>,
    pub(super) set: ReplicaSet<P>,
    /// The calls that the driver reported as never sent. The store must not apply them.
    pub(super) never_sent: BTreeSet<(usize, CallId)>,
    pub(super) coverage: Coverage<P::Case>,
    pub(super) violation: Option<Violation>,
    pub(super) trace: Option<Vec<(u64, String)>>,
    pub(super) decisions: (u64, u64),
    pub(super) own: P,
}

impl<P: Protocol> World<P> {
    /// Creates a world without machines. `net` and `chance` select the streams of its random
    /// numbers.
    pub(super) fn new(
        setup: &Setup<P::Fault>,
        (net, chance): (u64, u64),
        faults: Faults<P::Fault>,
        mut plan: Vec<Planned<P::Fault>>,
        (empty, own): (P::State, P),
    ) -> Self {
        plan.sort_by_key(|planned| planned.at);
        if let Some(kept) = &setup.kept {
            plan.retain(|planned| kept.contains(&planned.at));
        }
        Self {
            now: 0,
            faults,
            calm: false,
            net: Rng::new(setup.seed, net),
            chance: Rng::new(setup.seed, chance),
            events: BTreeMap::new(),
            serial: 0,
            steps: 0,
            plan: plan.into(),
            machines: Vec::new(),
            processes: Vec::new(),
            live: Vec::new(),
            set: ReplicaSet::new(empty),
            never_sent: BTreeSet::new(),
            coverage: Coverage::default(),
            violation: None,
            trace: setup.traced.then(Vec::new),
            decisions: (0xcbf2_9ce4_8422_2325, 0),
            own,
        }
    }

    pub(super) fn at(&mut self, time: u64, event: impl FnOnce(&mut Self) + 'static) {
        self.at_or(AtPeace::Keep, time, event);
    }

    pub(super) fn at_or(
        &mut self,
        at_peace: AtPeace,
        time: u64,
        event: impl FnOnce(&mut Self) + 'static,
    ) {
        self.serial += 1;
        let event = Box::new(event);
        self.events.insert((time, self.serial), (at_peace, event));
    }

    /// Returns true if `fault` is enabled and the faults have not ended. Used for faults that are
    /// not planned, but decided at random at each opportunity.
    pub(super) fn troubles(&self, fault: P::Fault) -> bool {
        !self.calm && self.faults.has(fault)
    }

    pub(super) fn strikes(&mut self, drawn: bool, fault: P::Fault) -> bool {
        let hit = drawn && self.troubles(fault);
        self.coverage.hit_if(hit, fault.into());
        hit
    }

    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push((self.now, line()));
        }
    }

    pub(super) fn found(&mut self, violation: Option<Violation>) {
        if let (None, Some(violation)) = (&self.violation, violation) {
            self.note(|| format!("!! {violation:?}"));
            self.violation = Some(violation);
        }
    }

    pub(super) fn decide(&mut self, process: usize, decision: u64) {
        let (digest, count) = &mut self.decisions;
        for part in [self.now, process as u64, decision] {
            *digest = (*digest ^ part).wrapping_mul(0x0000_0100_0000_01b3);
        }
        *count += 1;
    }

    /// Returns the time of the next event, but at most `until`.
    fn next(&self, until: u64) -> u64 {
        let event = self.events.first_key_value().map(|((time, _), _)| *time);
        let planned = self.plan.front().map(|planned| planned.at);
        let all = [event, planned, P::wakes_at(self)];
        all.into_iter().flatten().fold(until, u64::min)
    }

    /// Advances to the next event, but at most to `until`.
    pub(super) fn step(&mut self, until: u64) {
        self.now = self.next(until).max(self.now);
        if let Some(planned) = self.plan.front().copied()
            && planned.at <= self.now
        {
            self.plan.pop_front();
            P::inject(self, planned);
        }
        self.steps += 1;
        assert!(self.steps < STEPS_MAX, "the run takes too many steps");
        while let Some(entry) = self.events.first_entry()
            && entry.key().0 <= self.now
        {
            let (_, event) = entry.remove();
            event(self);
        }
        for index in 0..self.live.len() {
            if let Some(process) = self.live.get(index).copied() {
                P::pump(self, process);
            }
        }
        P::check(self);
    }

    /// Runs until the time `end`, until a violation, or until `over` returns true, whichever comes
    /// first.
    pub(super) fn run_until(&mut self, end: u64, over: impl Fn(&Self) -> bool) {
        while self.now < end && self.violation.is_none() && !over(self) {
            self.step(end);
        }
    }

    /// Ends all pending faults. The events in flight arrive soon, or not at all.
    pub(super) fn forget_the_late(&mut self) {
        let now = |(at_peace, _): &(AtPeace, _)| *at_peace == AtPeace::HappenNow;
        let events = self.events.extract_if(.., |_, event| now(event));
        for (_, (_, event)) in events.collect::<Vec<_>>() {
            event(self);
        }
        let soon = self.now + super::SECOND;
        self.events
            .retain(|(time, _), (at_peace, _)| *time <= soon || *at_peace == AtPeace::Keep);
        self.plan.clear();
    }
}
