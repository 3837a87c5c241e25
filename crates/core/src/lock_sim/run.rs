//! Runs of one or many seeds, and the tests.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::faults::Faults;
use super::invariants::healing;
use super::report;
use super::world::World;
use super::{RUN, SECOND};
use crate::lock::mutation::{self, Mutation};
use crate::sim::invariants::Violation;
use crate::sim::run::{number, tell, thread_cpu};

/// Rate of the slowest clock, per mille of the fastest. The drawn durations permit a ratio down to
/// 3/4.
pub(super) const SLOWEST: u64 = 760;
/// Number of seeds of `make test`.
const SEEDS: u64 = 5_000;
/// Maximum time from the end of the faults until every process is done. The value is twice the
/// longest wait for an expired entry, because a ghost can be granted after another one is evicted.
const PEACE: u64 = 160 * SECOND;
/// Number of trace lines that a failing test prints.
const LINES: usize = 120;

/// Parameters of a run.
#[derive(Debug, Clone)]
pub(super) struct Setup {
    pub(super) seed: u64,
    /// `None`: drawn from the seed.
    pub(super) faults: Option<Faults>,
    pub(super) slowest: u64,
    pub(super) traced: bool,
}

impl Setup {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            faults: None,
            slowest: SLOWEST,
            traced: false,
        }
    }
}

/// Result of a run.
pub(super) struct Ran {
    pub(super) violation: Option<Violation>,
    pub(super) faults: Faults,
    pub(super) decisions: u64,
    pub(super) acquisitions: u64,
    /// Length of the run, in nanoseconds of true time.
    lasted: u64,
    pub(super) trace: Vec<(u64, String)>,
}

/// Runs some minutes with faults, then without faults until every process is done.
pub(super) fn run(setup: &Setup) -> Ran {
    let mut world = World::new(setup);
    let end = catch_unwind(AssertUnwindSafe(|| live(&mut world)));
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
        faults: world.faults,
        decisions: world.decisions,
        acquisitions: world.acquisitions,
        lasted: world.now,
        trace: world.trace.unwrap_or_default(),
    }
}

fn live(world: &mut World) {
    while world.now < RUN && world.violation.is_none() {
        world.step(RUN);
    }
    if world.violation.is_some() {
        return;
    }
    world.heal();
    let end = world.now + PEACE;
    while world.now < end && world.violation.is_none() && !world.live.is_empty() {
        world.step(end);
    }
    let left: Vec<_> = world
        .live
        .iter()
        .map(|id| world.processes[*id].contender.status().standing)
        .collect();
    let violation = healing::check(&left, &world.store.committed);
    world.found(violation);
}

/// Totals of many runs.
#[derive(Default)]
struct Walked {
    seeds: u64,
    acquisitions: u64,
    simulated: Duration,
    cpu: Duration,
}

fn explain(setup: &Setup, violation: &Violation, lines: usize) -> String {
    let traced = run(&Setup {
        traced: true,
        ..setup.clone()
    });
    report::failed(setup, violation, &traced, lines)
}

/// Runs many seeds on all cores, and stops at the first failure.
fn walk(seeds: std::ops::Range<u64>) -> Result<Walked, String> {
    let next = AtomicU64::new(seeds.start);
    let failed = AtomicBool::new(false);
    let order = Ordering::Relaxed;
    let one = || {
        let mut walked = Walked::default();
        let begun = thread_cpu();
        loop {
            let seed = next.fetch_add(1, order);
            if seed >= seeds.end || failed.load(order) {
                walked.cpu = thread_cpu().saturating_sub(begun);
                return Ok(walked);
            }
            let setup = Setup::new(seed);
            let ran = run(&setup);
            walked.seeds += 1;
            walked.acquisitions += ran.acquisitions;
            walked.simulated += Duration::from_nanos(ran.lasted);
            if let Some(violation) = ran.violation {
                failed.store(true, order);
                return Err(explain(&setup, &violation, LINES));
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let walkers: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        let mut all = Walked::default();
        for walker in walkers {
            let walked = walker.join().expect("a walker does not panic")?;
            all.seeds += walked.seeds;
            all.acquisitions += walked.acquisitions;
            all.simulated += walked.simulated;
            all.cpu += walked.cpu;
        }
        Ok(all)
    })
}

#[test]
fn all_invariants_hold_whatever_happens_within_the_ratio() {
    let first = number("LOCK_SEED_FIRST").unwrap_or(0);
    match walk(first..first + number("LOCK_SEEDS").unwrap_or(SEEDS)) {
        Ok(walked) => tell(&format!(
            "simulation of locks: {} seeds, {} acquisitions, {:.0} simulated hours in {:.0} s of CPU",
            walked.seeds,
            walked.acquisitions,
            walked.simulated.as_secs_f64() / 3600.0,
            walked.cpu.as_secs_f64(),
        )),
        Err(failure) => panic!("{failure}"),
    }
}

/// `LOCK_SURVEY=N`: reports the invariants that break in the first N seeds, with the first seed of
/// each.
#[test]
fn survey() {
    let mut broken = std::collections::BTreeMap::<_, (u64, u64, String)>::new();
    for seed in 0..number("LOCK_SURVEY").unwrap_or(0) {
        if let Some(violation) = run(&Setup::new(seed)).violation {
            let evidence = violation.evidence;
            let first = broken.entry(violation.invariant);
            first.or_insert((0, seed, evidence)).0 += 1;
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// `make replay-locks SEED=N`: prints one seed line by line.
#[test]
fn replay() {
    let Some(seed) = number("LOCK_REPLAY_SEED") else {
        return;
    };
    let lines = number("LOCK_REPLAY_LINES").map_or(usize::MAX, |n| n as usize);
    let setup = Setup {
        traced: true,
        ..Setup::new(seed)
    };
    let mutation = std::env::var("LOCK_REPLAY_MUTATION").ok().map(|name| {
        let named = |m: &&Mutation| format!("{m:?}") == name;
        *Mutation::ALL
            .iter()
            .find(named)
            .expect("a mutation of that name")
    });
    let ran = mutation::with(mutation, || run(&setup));
    match &ran.violation {
        Some(violation) => panic!("{}", report::failed(&setup, violation, &ran, lines)),
        None => {
            for (at, line) in &ran.trace {
                tell(&format!(
                    "{:>9.3} {line}",
                    (*at / super::MS) as f64 / 1000.0
                ));
            }
            tell(&format!("seed {seed} holds"));
        }
    }
}

#[test]
fn a_run_is_decided_by_its_seed() {
    let traced = |seed| {
        let ran = run(&Setup {
            traced: true,
            ..Setup::new(seed)
        });
        (ran.decisions, ran.trace)
    };
    for seed in 0..5 {
        assert_eq!(traced(seed), traced(seed));
    }
    assert_ne!(traced(1).0, traced(2).0);
}

#[test]
fn exclusion_breaks_when_clock_rates_differ_too_much_so_the_check_works() {
    let broken = (0..300).find(|seed| {
        let ran = run(&Setup {
            slowest: 300,
            ..Setup::new(*seed)
        });
        ran.violation.is_some_and(|v| v.invariant == "exclusion")
    });
    assert!(broken.is_some(), "three hundred seeds without two holders");
}
