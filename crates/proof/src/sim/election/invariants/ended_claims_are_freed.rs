//! A process that finds its own ended claim in the store releases the claim, or takes over from it.
//! The process repeats a release until it knows the outcome (*The holder* and *Losing leadership*
//! in `docs/protocol.md`).

use super::{Violation, explain};

/// Maximum number of consecutive inconclusive reads. An event during a read makes the read
/// inconclusive.
const IDLE_READS_MAX: u32 = 4;

/// Checks `idle_reads`, the number of consecutive reads that showed the claim without a write by
/// the process.
pub(crate) fn check(idle_reads: u32) -> Option<Violation> {
    let evidence = || format!("{idle_reads} reads");
    explain(
        idle_reads <= IDLE_READS_MAX,
        "ended claims are freed",
        evidence,
    )
}

#[test]
fn a_claim_that_is_left_in_the_store_is_found() {
    assert_eq!(check(IDLE_READS_MAX), None);
    assert!(check(IDLE_READS_MAX + 1).is_some());
}
