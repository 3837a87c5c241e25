//! Runs one seed or many. The tests of each simulation call these functions.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write as _;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::coverage::Coverage;
use super::faults::Faults;
use super::invariants::{Violation, violation};
use super::planted::Bug as _;
use super::world::Protocol;
use super::{minimal, report, with};

/// The rate of the slowest clock, in per mille of the fastest. The drawn durations permit the
/// slowest clock to run at 3/4 of the fastest clock's rate.
const SLOWEST: u64 = 760;
/// Every seed that is divisible by this number is run a second time, with the checks of
/// `run_again`.
const AGAIN_EVERY: u64 = 50;

pub(super) struct Ran<P: Protocol> {
    pub(super) violation: Option<Violation>,
    pub(super) coverage: Coverage<P::Case>,
    pub(super) decisions: (u64, u64),
    pub(super) faults: Faults<P::Fault>,
    pub(super) planned: Vec<u64>,
    /// The length of the run in true nanoseconds.
    pub(super) lasted: u64,
    pub(super) trace: Vec<(u64, String)>,
    pub(super) machines: Vec<String>,
}

#[derive(Debug, Clone)]
pub(super) struct Setup<F> {
    pub(super) seed: u64,
    pub(super) faults: Option<Faults<F>>,
    /// The times of the planned faults to keep, or `None` to keep all.
    pub(super) kept: Option<Vec<u64>>,
    pub(super) machines: u64,
    pub(super) slowest: u64,
    pub(super) traced: bool,
    /// Wall clocks and the clocks of servers never jump.
    pub(super) steady: bool,
}

impl<F> Setup<F> {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            faults: None,
            kept: None,
            machines: u64::MAX,
            slowest: SLOWEST,
            traced: false,
            steady: false,
        }
    }
}

pub(super) fn run<P: Protocol>(setup: &Setup<P::Fault>) -> Ran<P> {
    let mut world = P::world(setup);
    let planned = world.plan.iter().map(|planned| planned.at).collect();
    let machines = match setup.traced {
        true => P::machines(&world),
        false => Vec::new(),
    };
    let end = catch_unwind(AssertUnwindSafe(|| P::live(&mut world, setup)));
    if let Err(panic) = end {
        let text = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()))
            .unwrap_or_default();
        world.found(violation("assertion", text));
    }
    Ran {
        violation: world.violation,
        coverage: world.coverage,
        decisions: world.decisions,
        faults: world.faults,
        planned,
        lasted: world.now,
        trace: world.trace.unwrap_or_default(),
        machines,
    }
}

struct Walked<P: Protocol> {
    coverage: Coverage<P::Case>,
    seeds: u64,
    simulated: Duration,
    /// The CPU time of all threads, because wall-clock time depends on the load of the machine.
    cpu: Duration,
}

impl<P: Protocol> Walked<P> {
    fn new() -> Self {
        Self {
            coverage: Coverage::default(),
            seeds: 0,
            simulated: Duration::ZERO,
            cpu: Duration::ZERO,
        }
    }

    fn add(&mut self, other: &Self) {
        self.coverage.add(&other.coverage);
        self.seeds += other.seeds;
        self.simulated += other.simulated;
        self.cpu += other.cpu;
    }
}

impl<P: Protocol> fmt::Display for Walked<P> {
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

fn thread_cpu() -> Duration {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    spent.try_into().unwrap_or_default()
}

fn walk<P: Protocol>(seeds: Range<u64>) -> Walked<P> {
    let next = AtomicU64::new(seeds.start);
    let failed = AtomicBool::new(false);
    let one = || {
        let mut walked = Walked::new();
        let begun = thread_cpu();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end || failed.load(Ordering::Relaxed) {
                walked.cpu = thread_cpu().saturating_sub(begun);
                return Ok(walked);
            }
            let setup = Setup::new(seed);
            let ran = run::<P>(&setup);
            walked.coverage.add(&ran.coverage);
            walked.seeds += 1;
            walked.simulated += Duration::from_nanos(ran.lasted);
            let violation = match seed.is_multiple_of(AGAIN_EVERY) {
                true => checked(&setup, ran),
                false => ran.violation,
            };
            if let Some(violation) = violation {
                failed.store(true, Ordering::Relaxed);
                return Err(minimal::explain::<P>(&setup, &violation, P::LINES));
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let walkers: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        let mut all = Walked::new();
        for walker in walkers {
            match walker.join().expect("no worker thread panics") {
                Ok(walked) => all.add(&walked),
                Err(failure) => panic!("{failure}"),
            }
        }
        all
    })
}

fn checked<P: Protocol>(setup: &Setup<P::Fault>, ran: Ran<P>) -> Option<Violation> {
    match ran.violation {
        None => P::run_again(setup, &ran),
        found => found,
    }
}

/// Writes to standard error directly, because the test harness hides the output of passing tests.
fn print(text: &impl fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

fn mutation_asked_for<P: Protocol>() -> Option<P::Mutation> {
    let name = std::env::var("REPLAY_MUTATION").ok()?;
    let mut all = P::Mutation::ALL.iter().copied();
    let found = all.find(|mutation| format!("{mutation:?}") == name);
    Some(found.expect("a mutation of that name"))
}

/// Checks all invariants on the seeds of `make test`.
pub(super) fn every_seed<P: Protocol>() {
    let walked = walk::<P>(0..number("SIM_SEEDS").unwrap_or(P::SEEDS));
    print(&format!("{}: {walked}", P::NAME));
}

/// `make soak SEEDS=N` runs seeds of a separate range, and prints the cases that they reached.
pub(super) fn soak<P: Protocol>() {
    let Some(seeds) = number("SOAK_SEEDS") else {
        return;
    };
    let first = number("SOAK_FIRST").unwrap_or(1 << 32);
    let walked = walk::<P>(first..first + seeds);
    print(&format!("{}from seed {first}: {walked}", walked.coverage));
    let missing = walked.coverage.missing();
    assert_eq!(missing, Vec::<String>::new(), "never hit");
}

/// `make replay SEED=N` prints the trace of one seed. If the seed fails, its run is minimized
/// first.
pub(super) fn replay<P: Protocol>() {
    let Some(seed) = number("REPLAY_SEED") else {
        return;
    };
    let lines = number("REPLAY_LINES").map_or(usize::MAX, |n| n as usize);
    P::Mutation::with(mutation_asked_for::<P>(), || {
        let setup = Setup::new(seed);
        match checked(&setup, run::<P>(&setup)) {
            Some(violation) => panic!("{}", minimal::explain::<P>(&setup, &violation, lines)),
            None => print(&report::good::<P>(&setup, lines)),
        }
    });
}

/// `SURVEY=N` lists the invariants that the first N seeds violate, each with its first seed.
/// `REPLAY_MUTATION=NAME` plants a bug.
pub(super) fn survey<P: Protocol>() {
    let mut broken = BTreeMap::<_, (u64, u64, String)>::new();
    P::Mutation::with(mutation_asked_for::<P>(), || {
        let first = number("SURVEY_FIRST").unwrap_or(0);
        for seed in first..first + number("SURVEY").unwrap_or(0) {
            if let Some(violation) = run::<P>(&Setup::new(seed)).violation {
                print(&format!("seed {seed}: {}", violation.invariant));
                let text = violation.evidence;
                let first = broken.entry(violation.invariant);
                first.or_insert((0, seed, text)).0 += 1;
            }
        }
    });
    assert!(broken.is_empty(), "{broken:#?}");
}

pub(super) fn same_seed_same_run<P: Protocol>() {
    let traced = |seed| {
        let ran = run::<P>(&with(Setup::new(seed), |it| it.traced = true));
        (ran.decisions, ran.trace, ran.coverage)
    };
    for seed in 0..5 {
        assert_eq!(traced(seed), traced(seed));
    }
    assert_ne!(traced(1).0, traced(2).0);
}

/// Checks that some seed violates `invariant` if the clock rates differ too much. Otherwise the
/// check of this invariant would prove nothing.
pub(super) fn breaks_beyond_the_ratio<P: Protocol>(invariant: &str, seeds: u64) {
    let broken = (0..seeds).find(|seed| {
        let ran = run::<P>(&with(Setup::new(*seed), |it| it.slowest = 300));
        ran.violation.is_some_and(|v| v.invariant == invariant)
    });
    assert!(broken.is_some(), "{invariant} holds in {seeds} seeds");
}

/// Defines the tests of a simulation. The make targets select the tests by name.
macro_rules! simulation {
    ($protocol:ty) => {
        simulation! {
            $protocol:
            all_invariants_hold_whatever_happens_within_the_ratio = every_seed,
            soak = soak,
            replay = replay,
            survey = survey,
            a_run_is_decided_by_its_seed = same_seed_same_run,
        }
    };
    ($protocol:ty: $($test:ident = $run:ident,)+) => {
        $(#[test]
        fn $test() {
            run::$run::<$protocol>();
        })+
    };
}
pub(super) use simulation;
