//! A state that only a bug can cause ends the daemon. Each test builds a state that no input
//! reaches, and checks that an assertion fails.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::harness::*;
use crate::election::claims::{EndedClaim, OPEN_CLAIMS_MAX};
use crate::election::*;

/// Asserts that the invariant check panics with this message after `change`, but not before.
#[track_caller]
fn assert_complains(node: &Node, message: &str, change: impl FnOnce(&mut Election)) {
    let mut election = node.election.clone();
    election.check_invariants();
    change(&mut election);
    let check = AssertUnwindSafe(|| election.check_invariants());
    let panic = catch_unwind(check).expect_err("an invariant is broken");
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
    let text = text.expect("a message");
    assert!(text.starts_with(message), "{text}");
}

fn ended(claim: Claim) -> EndedClaim {
    EndedClaim {
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
        assert_complains(&a, "the next wakeup is not", |e| e.wakeup = Some(due));
    }
}

#[test]
fn a_candidate_that_is_behind_the_store_reads() {
    let (_, mut stored) = leader("a", at(0));
    let b = follower("b", at(0), &mut stored);
    for suspicious in [false, true] {
        assert_complains(&b, "behind the store, and no read is due", |e| {
            e.contender.never_read(suspicious, e.now)
        });
    }
}

#[test]
fn i2_authority_ends_at_its_deadline_and_has_the_highest_token() {
    let (a, _) = leader("a", at(0));
    assert_complains(&a, "authority outlives its deadline", |e| {
        e.publication
            .status
            .authority
            .as_mut()
            .expect("a leads")
            .valid_until = at(0);
    });
    assert_complains(&a, "a leader's token", |e| {
        e.contender.view_mut().marks.token_highest = token(0)
    });
    let role = "assertion `left == right` failed: a role without";
    assert_complains(&a, role, |e| e.publication.status.authority = None);
}

#[test]
fn i11_the_lists_of_claims_are_bounded() {
    let (a, _) = leader("a", at(0));
    let many = |count| vec![ended(Claim::from_bytes([200; 16])); count];
    assert_complains(&a, "too many ended claims", |e| {
        e.contender.claims().ended = many(OPEN_CLAIMS_MAX + 1)
    });
    let mut full = a.election.clone();
    full.contender.claims().ended = many(OPEN_CLAIMS_MAX);
    full.check_invariants();
}

#[test]
fn i1_a_claim_that_ended_does_not_lead() {
    let (a, stored) = leader("a", at(0));
    let claim = stored.claim();
    assert_complains(&a, "a claim leads again", |e| {
        e.contender.claims().add_ended(ended(claim))
    });
}
