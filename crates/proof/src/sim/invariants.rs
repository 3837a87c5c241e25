//! A violated invariant. Each simulation has a directory `invariants/`. Its files check the
//! invariants with pure functions, and test these functions on inputs written by hand.

use std::fmt::Debug;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    /// The number of the invariant in `docs/protocol.md`, such as `I1`, or a name.
    pub(crate) invariant: &'static str,
    pub(crate) evidence: String,
}

pub(super) fn violation(invariant: &'static str, evidence: String) -> Option<Violation> {
    Some(Violation {
        invariant,
        evidence,
    })
}

pub(super) fn require(
    condition: bool,
    invariant: &'static str,
    facts: &impl Debug,
) -> Option<Violation> {
    explain(condition, invariant, || format!("{facts:?}"))
}

pub(super) fn explain(
    condition: bool,
    invariant: &'static str,
    evidence: impl FnOnce() -> String,
) -> Option<Violation> {
    match condition {
        true => None,
        false => violation(invariant, evidence()),
    }
}
