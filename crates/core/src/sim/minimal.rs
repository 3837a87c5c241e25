//! The smallest run that still fails, for a human to read.

use super::invariants::Violation;
use super::report;
use super::run::{Setup, run};

/// Number of runs spent on minimization: a few seconds.
const RUNS_MAX: usize = 600;

/// Describes a failing seed by the smallest failing run found, line by line.
pub(super) fn explain(setup: &Setup, violation: &Violation, lines: usize) -> String {
    let smallest = shrink(setup, violation.invariant);
    report::failed(setup, &smallest, violation, lines)
}

/// Removes kinds of faults, then planned faults, then candidates, as long as the same invariant
/// breaks.
fn shrink(setup: &Setup, invariant: &str) -> Setup {
    let mut budget = RUNS_MAX;
    let mut fails = |setup: &Setup| {
        if budget == 0 {
            return false;
        }
        budget -= 1;
        let violation = run(setup).violation;
        violation.is_some_and(|v| v.invariant == invariant)
    };
    let first = run(setup);
    let mut smallest = Setup {
        faults: Some(first.faults),
        ..setup.clone()
    };
    for fault in first.faults.list() {
        let fewer = Setup {
            faults: smallest.faults.map(|faults| faults.without(fault)),
            ..smallest.clone()
        };
        if fails(&fewer) {
            smallest = fewer;
        }
    }
    let mut kept = run(&smallest).planned;
    let mut length = kept.len().div_ceil(2);
    while length > 0 {
        let mut from = 0;
        while from < kept.len() {
            let mut fewer = kept.clone();
            fewer.drain(from..kept.len().min(from + length));
            let candidate = Setup {
                kept: Some(fewer.clone()),
                ..smallest.clone()
            };
            if fails(&candidate) {
                kept = fewer;
                smallest = candidate;
            } else {
                from += length;
            }
        }
        length /= 2;
    }
    for candidates in 1..5 {
        let fewer = Setup {
            candidates,
            ..smallest.clone()
        };
        if fails(&fewer) {
            return fewer;
        }
    }
    smallest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::election::mutation::{self, Mutation};

    #[test]
    fn the_smallest_run_still_breaks_the_same_invariant_with_less() {
        mutation::with(Some(Mutation::TokenCompared), || {
            let setup = Setup::new(0);
            let before = run(&setup);
            let violation = before.violation.expect("a planted bug is seen");
            let smallest = shrink(&setup, violation.invariant);
            let after = run(&smallest);
            let again = after.violation.map(|v| v.invariant);
            assert_eq!(again, Some(violation.invariant));
            assert!(after.faults.list().len() < before.faults.list().len());
            assert!(after.planned.len() < before.planned.len());
        });
    }
}
