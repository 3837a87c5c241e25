//! Checks the invariants that involve all machines of a document.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::trace::Kind;

use crate::Violation;
use crate::authority::{Claim, Exclusion};

/// Checks the claims of all documents. With `some_untraced`, a claim's successor may have no trace.
/// The proof that the claim's process exited before its deadline may then be missing.
pub(crate) fn check(claims: &[Claim], some_untraced: bool) -> Vec<Violation> {
    let mut documents: BTreeMap<_, Vec<&Claim>> = BTreeMap::new();
    for claim in claims {
        let role = &claim.role;
        // Group by clock, because times on different clocks cannot be compared.
        let key = (&role.clock, role.kind, &role.document);
        documents.entry(key).or_default().push(claim);
    }
    let mut violations = Vec::new();
    for ((_, kind, document), mut claims) in documents {
        claims.sort_by_key(|claim| (claim.from, claim.line));
        let traced: BTreeSet<_> = claims.iter().map(|claim| Some(claim.token)).collect();
        let is_known = |claim: &Claim| !some_untraced || traced.contains(&claim.token.next());
        violations.extend(overlaps(document, &claims, is_known));
        violations.extend(tokens(kind, document, &claims));
    }
    violations
}

/// I1: claims that exclude each other do not overlap in time. Skips claims whose end is unknown.
fn overlaps(
    document: &str,
    claims: &[&Claim],
    is_known: impl Fn(&Claim) -> bool,
) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (index, claim) in claims.iter().enumerate() {
        let before = &claims[..index];
        let together = before
            .iter()
            .filter(|b| b.until > claim.from && is_known(b));
        let together: Vec<_> = together.collect();
        let excluded = together.iter().find(|other| excludes(claim, other));
        if let Some(other) = excluded {
            violations.push(violation(
                claim,
                format!(
                    "I1: {document}: token {} of {} has authority from {} on, and token {} of {} \
                     until {}",
                    claim.token, claim.machine, claim.from, other.token, other.machine, other.until,
                ),
            ));
        }
        if let Exclusion::Beyond(slots) = claim.role.exclusion
            && together.len() >= usize::try_from(slots).unwrap_or(usize::MAX)
        {
            violations.push(violation(
                claim,
                format!(
                    "I1: {document}: token {} and others, {} in all, have authority at {}, for \
                    {slots} slots",
                    claim.token,
                    together.len() + 1,
                    claim.from,
                ),
            ));
        }
    }
    violations
}

fn excludes(one: &Claim, other: &Claim) -> bool {
    let all = |claim: &Claim| claim.role.exclusion == Exclusion::All;
    all(one) || all(other)
}

/// I3: no two claims have the same token, and the token grows with each acquisition. For shared
/// locks and slots, tokens need not grow, because acquisitions may be acknowledged out of order.
fn tokens(kind: Kind, document: &str, claims: &[&Claim]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut seen: BTreeMap<_, &Claim> = BTreeMap::new();
    for claim in claims {
        if let Some(other) = seen.insert(claim.token, claim) {
            violations.push(violation(
                claim,
                format!(
                    "I3: {document}: token {} of {} is also the token of {}",
                    claim.token, claim.machine, other.machine,
                ),
            ));
            continue;
        }
        let ordered = kind == Kind::Election || claim.role.exclusion == Exclusion::All;
        let highest = seen.range(claim.token..).nth(1);
        if let Some((token, other)) = highest.filter(|_| ordered) {
            violations.push(violation(
                claim,
                format!(
                    "I3: {document}: token {} of {} follows token {token} of {}",
                    claim.token, claim.machine, other.machine,
                ),
            ));
        }
    }
    violations
}

fn violation(claim: &Claim, what: String) -> Violation {
    Violation {
        line: claim.line,
        what,
    }
}
