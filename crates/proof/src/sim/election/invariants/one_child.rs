//! No two children of different claims run at the same instant of true time, as long as clock rates
//! differ by a factor of at most 1.1.

use super::{Violation, violation, with};
use crate::election::Claim;

const RATIO: (u64, u64) = (11, 10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Child {
    pub(crate) process: usize,
    pub(crate) claim: Claim,
    /// The checks tolerate the claim in four cases: after a fork or damage to the store, if the
    /// child runs past its deadline, if the child has survived SIGKILL, or if neither guard nor
    /// daemon runs.
    pub(crate) tolerated: bool,
}

/// Checks that at most one child runs. `rates` are the rates of the slowest and the fastest clock
/// in use.
pub(crate) fn check(children: &[Child], rates: (u64, u64)) -> Option<Violation> {
    let (slowest, fastest) = rates;
    if fastest * RATIO.1 > slowest * RATIO.0 {
        return None;
    }
    let mut sure = children.iter().filter(|child| !child.tolerated);
    let first = sure.next()?;
    let other = sure.find(|c| (c.claim, c.process) != (first.claim, first.process))?;
    violation("one child", format!("{first:?} and {other:?}"))
}

fn child(process: usize, claim: u8) -> Child {
    Child {
        process,
        claim: Claim::from_bytes([claim; 16]),
        tolerated: false,
    }
}

#[test]
fn one_child_and_one_alongside_a_tolerated_one_are_in_order() {
    let tolerated = with(child(1, 2), |it| it.tolerated = true);
    assert_eq!(check(&[], (1000, 1000)), None);
    assert_eq!(check(&[child(0, 1), tolerated], (1000, 1000)), None);
}

#[test]
fn two_claims_or_two_processes_are_two_children() {
    assert!(check(&[child(0, 1), child(1, 2)], (1000, 1000)).is_some());
    assert!(check(&[child(0, 1), child(0, 2)], (1000, 1100)).is_some());
    assert!(check(&[child(0, 1), child(1, 1)], (1000, 1100)).is_some());
}

#[test]
fn beyond_the_ratio_nothing_is_promised() {
    assert_eq!(check(&[child(0, 1), child(1, 2)], (1000, 1101)), None);
}
