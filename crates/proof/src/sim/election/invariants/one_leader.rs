//! I1: at most one claim has authority at any instant, on any surface.

use super::{Violation, violation};
use crate::election::{Claim, Token};

#[allow(
    dead_code,
    reason = "the report of a violation shows the fields that are not compared"
)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Leading {
    pub(crate) process: usize,
    pub(crate) surface: &'static str,
    pub(crate) claim: Claim,
    pub(crate) token: Token,
    /// The checks tolerate the claim at this instant, after a fork or damage to the store.
    pub(crate) tolerated: bool,
}

/// Checks that there is at most one leader. Two processes with one claim, as on a forked machine,
/// count as two leaders.
pub(crate) fn check(leading: &[Leading]) -> Option<Violation> {
    let mut sure = leading.iter().filter(|l| !l.tolerated);
    let first = sure.next()?;
    let other = sure.find(|l| (l.claim, l.process) != (first.claim, first.process))?;
    violation("I1", format!("{first:?} and {other:?}"))
}

fn leading(process: usize, claim: u8, tolerated: bool) -> Leading {
    Leading {
        process,
        surface: "http",
        claim: Claim::from_bytes([claim; 16]),
        token: Token::ZERO,
        tolerated,
    }
}

#[test]
fn one_claim_on_many_surfaces_is_one_leader() {
    assert_eq!(check(&[]), None);
    assert_eq!(check(&[leading(0, 1, false), leading(0, 1, false)]), None);
}

#[test]
fn two_claims_or_two_processes_are_two_leaders() {
    assert!(check(&[leading(0, 1, false), leading(1, 2, false)]).is_some());
    assert!(check(&[leading(0, 1, false), leading(1, 1, false)]).is_some());
    assert_eq!(check(&[leading(0, 1, false), leading(1, 1, true)]), None);
}

#[test]
fn a_tolerated_leader_does_not_hide_two_others() {
    let three = [
        leading(0, 1, true),
        leading(1, 2, false),
        leading(2, 3, false),
    ];
    assert!(check(&three).is_some());
}
