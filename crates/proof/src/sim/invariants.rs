//! A violated invariant. Each simulation has a directory `invariants/`. Each of its files checks
//! one invariant with a pure function, and tests the function on inputs written by hand.

use std::fmt::Debug;

/// A violated invariant and the evidence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    /// A number such as `I1` in `docs/protocol.md`, or a name.
    pub(crate) invariant: &'static str,
    pub(crate) evidence: String,
}

pub(super) fn violation(invariant: &'static str, evidence: String) -> Option<Violation> {
    Some(Violation {
        invariant,
        evidence,
    })
}

/// Returns a violation with these facts as its evidence, unless the condition holds.
pub(super) fn require(
    condition: bool,
    invariant: &'static str,
    facts: &impl Debug,
) -> Option<Violation> {
    explain(condition, invariant, || format!("{facts:?}"))
}

/// Returns a violation with this evidence, unless the condition holds.
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
