//! Runs of one seed and of many, and the tests.

use std::fmt;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::cluster::World;
use super::coverage::Coverage;
use super::faults::Faults;
use super::invariants::healing::{self, Longest};
use super::invariants::{Violation, streams_are_checked, wall_clocks_decide_nothing};
use super::{RUN, SECOND};
use super::{minimal, report};
use crate::election::mutation::{self, Mutation};

/// The slowest clock, in per mille of the fastest. The bound that follows from the drawn durations
/// is 3/4.
pub(super) const SLOWEST: u64 = 760;
/// Number of seeds in `make test`.
const SEEDS: u64 = 20_000;
/// Every seed divisible by this is run again with steady wall clocks.
const STEADY_EVERY: u64 = 50;
/// Time for which the same leader must continue after the bound.
const STEADY: u64 = 10 * SECOND;
/// Number of trace lines that a failing test prints.
const LINES: usize = 60;

/// The result of a run.
pub(super) struct Ran {
    pub(super) violation: Option<Violation>,
    pub(super) coverage: Coverage,
    pub(super) decisions: (u64, u64),
    pub(super) faults: Faults,
    /// The time of each planned fault.
    pub(super) planned: Vec<u64>,
    /// Length of the run, in true nanoseconds.
    pub(super) lasted: u64,
    pub(super) trace: Vec<(u64, String)>,
    /// Each candidate in one line.
    pub(super) candidates: Vec<String>,
}

/// The settings of a run.
#[derive(Debug, Clone)]
pub(super) struct Setup {
    pub(super) seed: u64,
    /// The enabled faults; `None` to draw them from the seed.
    pub(super) faults: Option<Faults>,
    /// The times of the planned faults to keep; `None` to keep all.
    pub(super) kept: Option<Vec<u64>>,
    /// Upper bound of the number of candidates.
    pub(super) candidates: u64,
    pub(super) slowest: u64,
    pub(super) traced: bool,
    /// True if wall clocks and servers' clocks are never set.
    pub(super) steady: bool,
}

impl Setup {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            faults: None,
            kept: None,
            candidates: u64::MAX,
            slowest: SLOWEST,
            traced: false,
            steady: false,
        }
    }
}

/// Runs ten minutes of faults, then a period without faults, by the end of which a candidate must
/// lead.
pub(super) fn run(setup: &Setup) -> Ran {
    let mut world = World::new(setup);
    let planned = world.plan.iter().map(|planned| planned.at).collect();
    let candidates = match setup.traced {
        true => world.machines.iter().map(report::candidate).collect(),
        false => Vec::new(),
    };
    let end = catch_unwind(AssertUnwindSafe(|| live(&mut world, setup.slowest)));
    if let Err(panic) = end {
        let text = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()))
            .unwrap_or_default();
        world.found(Some(Violation {
            invariant: "assertion",
            evidence: text,
        }));
    }
    Ran {
        violation: world.violation,
        coverage: world.coverage,
        decisions: world.decisions,
        faults: world.faults,
        planned,
        lasted: world.now,
        trace: world.trace.unwrap_or_default(),
        candidates,
    }
}

fn live(world: &mut World, slowest: u64) {
    while world.now < RUN && world.violation.is_none() {
        world.step(RUN);
    }
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
        rate: u32::try_from(slowest).expect("per mille"),
    });
    // A renewal interval, until the holder notices the last change of the document.
    let bound = bound + Duration::from_secs(5);
    let calm = world.now + u64::try_from(bound.as_nanos()).expect("short");
    while world.now < calm && world.violation.is_none() {
        world.step(calm);
    }
    let leaders = world.leaders();
    world.found(healing::check(&leaders, None, bound));
    let end = world.now + STEADY;
    while world.now < end && world.violation.is_none() {
        world.step(end);
        let (now, first) = (world.leaders(), leaders.first().copied());
        world.found(healing::check(&now, first, bound));
    }
    world.found(streams_are_checked::check_peace(world.on_a_stale_stream()));
    let without = world.leads_without_child();
    world.found(healing::check_child(without));
}

/// The result of many runs.
#[derive(Default)]
pub(super) struct Walked {
    coverage: Coverage,
    seeds: u64,
    /// True time of the simulated machines.
    simulated: Duration,
    /// CPU time of all threads, because the machine may be busy with other work.
    cpu: Duration,
}

impl Walked {
    fn add(&mut self, other: &Self) {
        let Self {
            coverage,
            seeds,
            simulated,
            cpu,
        } = other;
        self.coverage.add(coverage);
        self.seeds += seeds;
        self.simulated += *simulated;
        self.cpu += *cpu;
    }
}

impl fmt::Display for Walked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (hours, cpu) = (
            self.simulated.as_secs_f64() / 3600.0,
            self.cpu.as_secs_f64(),
        );
        write!(
            f,
            "{} seeds, {hours:.0} simulated hours in {cpu:.0} s of CPU: {:.0} hours a minute on one core",
            self.seeds,
            hours / cpu * 60.0
        )
    }
}

pub(crate) fn thread_cpu() -> Duration {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    spent.try_into().unwrap_or_default()
}

/// Runs many seeds on all cores; stops at the first failure.
pub(super) fn walk(seeds: std::ops::Range<u64>, slowest: u64) -> Result<Walked, String> {
    let next = std::sync::atomic::AtomicU64::new(seeds.start);
    let failed = std::sync::atomic::AtomicBool::new(false);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let order = std::sync::atomic::Ordering::Relaxed;
    let one = || {
        let mut walked = Walked::default();
        let begun = thread_cpu();
        loop {
            let seed = next.fetch_add(1, order);
            if seed >= seeds.end || failed.load(order) {
                walked.cpu = thread_cpu().saturating_sub(begun);
                return Ok(walked);
            }
            let setup = Setup {
                slowest,
                ..Setup::new(seed)
            };
            let ran = run(&setup);
            walked.coverage.add(&ran.coverage);
            walked.seeds += 1;
            walked.simulated += Duration::from_nanos(ran.lasted);
            let mut violation = ran.violation;
            if violation.is_none() && seed.is_multiple_of(STEADY_EVERY) {
                violation = unsteady(&setup, ran.decisions);
                walked.simulated += Duration::from_nanos(ran.lasted);
            }
            if let Some(violation) = violation {
                failed.store(true, order);
                return Err(minimal::explain(&setup, &violation, LINES));
            }
        }
    };
    std::thread::scope(|scope| {
        let walkers: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        let mut all = Walked::default();
        for walker in walkers {
            all.add(&walker.join().expect("a walker does not panic")?);
        }
        Ok(all)
    })
}

/// Checks I9: runs the same seed with steady wall clocks.
pub(super) fn unsteady(setup: &Setup, decisions: (u64, u64)) -> Option<Violation> {
    let steady = run(&Setup {
        steady: true,
        ..setup.clone()
    });
    wall_clocks_decide_nothing::check(decisions, steady.decisions)
}

/// Bypasses the test harness, which shows the output of a test only if it fails.
pub(crate) fn tell(text: &impl fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

pub(crate) fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is not a number")),
    )
}

#[test]
fn all_invariants_hold_whatever_happens_within_the_ratio() {
    match walk(0..number("SIM_SEEDS").unwrap_or(SEEDS), SLOWEST) {
        Ok(walked) => tell(&format!("simulation: {walked}")),
        Err(failure) => panic!("{failure}"),
    }
}

/// `SURVEY=N`: lists the invariants that break in the first N seeds, and the first seed of each;
/// with `REPLAY_MUTATION=NAME`, with a planted bug.
#[test]
fn survey() {
    let mut broken = std::collections::BTreeMap::<_, (u64, u64, String)>::new();
    mutation::with(mutation_asked_for(), || {
        let first = number("SURVEY_FIRST").unwrap_or(0);
        for seed in first..first + number("SURVEY").unwrap_or(0) {
            if let Some(violation) = run(&Setup::new(seed)).violation {
                tell(&format!("seed {seed}: {}", violation.invariant));
                let text = violation.evidence;
                broken
                    .entry(violation.invariant)
                    .or_insert((0, seed, text))
                    .0 += 1;
            }
        }
    });
    assert!(broken.is_empty(), "{broken:#?}");
}

/// Returns the planted bug of `REPLAY_MUTATION=NAME`.
fn mutation_asked_for() -> Option<Mutation> {
    let name = std::env::var("REPLAY_MUTATION").ok()?;
    let named = |m: &&Mutation| format!("{m:?}") == name;
    let found = Mutation::ALL.iter().find(named);
    Some(*found.expect("a mutation of that name"))
}

/// `make soak SEEDS=N`: runs more seeds from a separate range, and prints what they hit.
#[test]
fn soak() {
    let Some(seeds) = number("SOAK_SEEDS") else {
        return;
    };
    let first = number("SOAK_FIRST").unwrap_or(1 << 32);
    match walk(first..first + seeds, SLOWEST) {
        Ok(walked) => {
            let missing = walked.coverage.missing();
            tell(&format!("{}from seed {first}: {walked}", walked.coverage));
            assert_eq!(missing, Vec::<String>::new(), "never hit");
        }
        Err(failure) => panic!("{failure}"),
    }
}

/// `make replay SEED=N`: prints one seed with every line; a failing one is minimized first.
#[test]
fn replay() {
    let Some(seed) = number("REPLAY_SEED") else {
        return;
    };
    let lines = number("REPLAY_LINES").map_or(usize::MAX, |n| n as usize);
    mutation::with(mutation_asked_for(), || {
        let setup = Setup::new(seed);
        let ran = run(&setup);
        let violation = ran.violation;
        let violation = violation.or_else(|| unsteady(&setup, ran.decisions));
        match violation {
            Some(violation) => panic!("{}", minimal::explain(&setup, &violation, lines)),
            None => tell(&report::good(&setup, lines)),
        }
    });
}

#[test]
fn a_run_is_decided_by_its_seed() {
    let traced = |seed| {
        let ran = run(&Setup {
            traced: true,
            ..Setup::new(seed)
        });
        (ran.decisions, ran.trace, ran.coverage)
    };
    for seed in 0..5 {
        assert_eq!(traced(seed), traced(seed));
    }
    assert_ne!(traced(1).0, traced(2).0);
}

#[test]
fn i1_breaks_when_clock_rates_differ_too_much_so_the_check_works() {
    let broken = (0..200).find_map(|seed| {
        let ran = run(&Setup {
            slowest: 300,
            ..Setup::new(seed)
        });
        ran.violation.filter(|v| v.invariant == "I1").map(|_| seed)
    });
    assert!(broken.is_some(), "two hundred seeds without two leaders");
}

/// The part with faults lasts ten minutes, as `docs/verification.md` states.
const _: () = assert!(RUN >= 600 * SECOND);
