//! Finds the smallest run that still fails.

use super::invariants::Violation;
use super::planted::Bug as _;
use super::report;
use super::run::{Setup, run};
use super::with;
use super::world::Protocol;

const RUNS_MAX: usize = 600;

/// Describes the smallest failing run that was found for a failing seed, line by line.
pub(super) fn explain<P: Protocol>(
    setup: &Setup<P::Fault>,
    violation: &Violation,
    lines: usize,
) -> String {
    let smallest = shrink::<P>(setup, violation.invariant);
    report::failed::<P>(setup, &smallest, violation, lines)
}

/// Removes kinds of faults, then planned faults, and then machines, as long as the run still
/// violates the invariant.
fn shrink<P: Protocol>(setup: &Setup<P::Fault>, invariant: &str) -> Setup<P::Fault> {
    let mut budget = RUNS_MAX;
    let mut fails = |setup: &Setup<P::Fault>| {
        if budget == 0 {
            return false;
        }
        budget -= 1;
        let violation = run::<P>(setup).violation;
        violation.is_some_and(|v| v.invariant == invariant)
    };
    let first = run::<P>(setup);
    let mut smallest = with(setup.clone(), |it| it.faults = Some(first.faults));
    for fault in first.faults.list() {
        let fewer = with(smallest.clone(), |it| {
            it.faults = it.faults.map(|faults| faults.without(fault));
        });
        if fails(&fewer) {
            smallest = fewer;
        }
    }
    let mut kept = run::<P>(&smallest).planned;
    let mut length = kept.len().div_ceil(2);
    while length > 0 {
        let mut from = 0;
        while from < kept.len() {
            let mut fewer = kept.clone();
            fewer.drain(from..kept.len().min(from + length));
            let candidate = with(smallest.clone(), |it| it.kept = Some(fewer.clone()));
            if fails(&candidate) {
                kept = fewer;
                smallest = candidate;
            } else {
                from += length;
            }
        }
        length /= 2;
    }
    for machines in 1..5 {
        let fewer = with(smallest.clone(), |it| it.machines = machines);
        if fails(&fewer) {
            return fewer;
        }
    }
    smallest
}

pub(super) fn still_breaks<P: Protocol>(mutation: P::Mutation) {
    P::Mutation::with(Some(mutation), || {
        let setup = Setup::new(0);
        let before = run::<P>(&setup);
        let violation = before.violation.expect("the run detects the planted bug");
        let after = run::<P>(&shrink::<P>(&setup, violation.invariant));
        let again = after.violation.map(|v| v.invariant);
        assert_eq!(again, Some(violation.invariant));
        assert!(after.faults.list().len() < before.faults.list().len());
        assert!(after.planned.len() < before.planned.len());
    });
}
