//! A state that only a bug can cause ends the daemon. Each assertion is checked with a state that
//! no input leads to.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::harness::*;
use crate::election::*;

/// Returns the panic message of the invariant check after `change`.
fn complaint(node: &Node, change: impl FnOnce(&mut Election)) -> String {
    let mut election = node.election.clone();
    election.check_invariants();
    change(&mut election);
    let check = AssertUnwindSafe(|| election.check_invariants());
    let panic = catch_unwind(check).expect_err("an invariant is broken");
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()))
        .expect("a message")
}

fn ended(claim: Claim) -> Ended {
    Ended {
        claim,
        chain: Vec::new(),
        entry: HistoryEntry {
            token: token(1),
            identity: identity("a"),
            acquired_at: WallMillis(0),
            reason: Reason::Deadline,
        },
        reserved_for: None,
    }
}

#[test]
fn a_wakeup_that_is_due_already_would_never_end() {
    let (a, _) = leader("a", at(0));
    for due in [at(0), at(0) - millis(1)] {
        let text = complaint(&a, |e| e.wakeup = Some(due));
        assert!(text.starts_with("due at once again"), "{text}");
    }
}

#[test]
fn a_candidate_that_is_behind_the_store_reads() {
    let (_, mut stored) = leader("a", at(0));
    let b = follower("b", at(0), &mut stored);
    let changes: [fn(&mut Election); 2] = [|e| e.view.behind = true, |e| e.suspicious = true];
    for change in changes {
        let text = complaint(&b, change);
        assert!(text.starts_with("behind the store for ever"), "{text}");
    }
}

#[test]
fn i2_authority_ends_at_its_deadline_and_has_the_highest_token() {
    let (a, _) = leader("a", at(0));
    let text = complaint(&a, |e| {
        e.status.authority.as_mut().expect("it leads").valid_until = at(0);
    });
    assert!(
        text.starts_with("authority outlives its deadline"),
        "{text}"
    );
    let text = complaint(&a, |e| e.token_highest = token(0));
    assert!(text.starts_with("a leader's token"), "{text}");
    let text = complaint(&a, |e| e.status.authority = None);
    assert!(
        text.starts_with("assertion `left == right` failed: a role without"),
        "{text}"
    );
}

#[test]
fn i11_the_lists_of_claims_are_bounded() {
    let (a, _) = leader("a", at(0));
    let many = |count| vec![ended(Claim::from_bytes([200; 16])); count];
    let text = complaint(&a, |e| e.ended = many(OPEN_CLAIMS_MAX + 1));
    assert!(text.starts_with("too many ended claims"), "{text}");
    let mut full = a.election.clone();
    full.ended = many(OPEN_CLAIMS_MAX);
    full.check_invariants();
}

#[test]
fn i1_a_claim_that_ended_does_not_lead() {
    let (a, stored) = leader("a", at(0));
    let claim = stored.lease().holder.as_ref().expect("held").claim;
    let text = complaint(&a, |e| e.ended.push(ended(claim)));
    assert!(text.starts_with("a claim leads again"), "{text}");
}
