//! Acquisitions in flight while the store is rolled back (I1, I3).

use super::harness::*;
use super::store_faults::*;
use crate::election::*;

/// The acquisition is in flight during a rollback of the store, and is applied afterwards.
#[test]
fn i3_an_acquisition_that_lands_in_a_quarantine_never_leads() {
    let (mut b, mut stored) = acquiring();
    let (call, outcome) = b.perform(&mut stored);
    b.input(at(2), Input::Watch(Watch::Unclear));
    b.answer_with(at(2), MISSING);
    assert_eq!(b.answer_with(at(2), MISSING), CONFIRMING);
    assert_eq!(b.reason(), Some(Reason::StoreRolledBack));
    b.reply(at(3), call, outcome);
    assert!(!b.leads(at(3)));
    b.serve(at(3), &mut stored);
    b.run(at(26) - millis(1), &mut stored);
    assert_eq!(b.times_leader(), 0, "another claim may still lead");
    assert_eq!(b.count("release"), 0, "others would acquire the lease");
    b.run(at(27), &mut stored);
    assert_eq!((b.leads(at(27)), b.token()), (true, token(3)));
}

/// An adoption is a renewal of an earlier acquisition.
#[test]
fn i3_an_adoption_that_lands_in_a_quarantine_never_leads() {
    let (mut b, mut stored) = acquiring();
    b.lose_reply(at(1), &mut stored);
    b.run(at(1), &mut stored);
    b.wake();
    b.serve_up_to("renew", b.now(), &mut stored);
    let (call, outcome) = b.perform(&mut stored);
    b.input(at(3), Input::Watch(Watch::Unclear));
    b.answer_with(at(3), MISSING);
    assert_eq!(b.answer_with(at(3), MISSING), CONFIRMING);
    b.reply(at(3), call, outcome);
    b.serve(at(3), &mut stored);
    assert_eq!((b.times_leader(), b.count("release")), (0, 0));
}

/// Returns an acquiring candidate, and the reply to its acquisition. A read or an event has shown
/// another claim with the token `seen`.
fn overtaken_by(seen: Token, is_reply: bool) -> (Node, Stored, CallId, Outcome) {
    let (mut b, mut stored) = acquiring();
    let (_, other) = leader("c", at(0));
    let lease = Lease {
        token: seen,
        revision: Revision::from_bytes([70; 16]),
        ..other.lease().clone()
    };
    show(&mut b, at(2), lease, is_reply);
    let (call, outcome) = b.perform(&mut stored);
    assert_eq!(stored.lease().token, token(2));
    (b, stored, call, outcome)
}

/// In one history of the document, two claims never have the same token.
#[test]
fn i3_an_acquisition_whose_token_another_claim_was_seen_with_never_leads() {
    let (mut b, mut stored, call, outcome) = overtaken_by(token(2), true);
    b.reply(at(3), call, outcome);
    assert_eq!(b.notices, [rolled_back(2, Some(2))]);
    b.run(at(26), &mut stored);
    assert_eq!(b.times_leader(), 0, "the other claim may still lead");
    b.run(at(60), &mut stored);
    assert_eq!((b.leads(at(60)), b.token()), (true, token(3)));
}

/// An event may combine the token of this acquisition with an older holder, so it does not prove a
/// rollback. Still, the other claim may lead.
#[test]
fn i1_a_candidate_waits_if_an_event_showed_its_token_with_another_claim() {
    let (mut b, mut stored, call, outcome) = overtaken_by(token(2), false);
    b.reply(at(3), call, outcome);
    b.serve(at(3), &mut stored);
    b.run(at(27) - millis(1), &mut stored);
    assert_eq!(b.times_leader(), 0, "the other claim may still lead");
    assert_eq!(b.count("release"), 0, "others would acquire the lease");
    b.run(at(28), &mut stored);
    assert_eq!((b.leads(at(28)), b.token()), (true, token(3)));
    assert_eq!(b.notices, []);
}

/// The candidate knew a higher token, so its own token exceeds the token of the other claim.
#[test]
fn i1_a_claim_between_the_replaced_one_and_an_acquisition_overtakes_it() {
    for is_reply in [true, false] {
        let (mut b, mut stored) = acquiring_above(token(6));
        let lease = Lease {
            token: token(3),
            revision: Revision::from_bytes([70; 16]),
            ..leader("c", at(0)).1.lease().clone()
        };
        let (call, outcome) = b.perform(&mut stored);
        let now = b.now();
        show(&mut b, now, lease, is_reply);
        b.reply(now, call, outcome);
        b.serve(now, &mut stored);
        b.run(now + seconds(24) - millis(1), &mut stored);
        assert_eq!(b.times_leader(), 0, "the other claim may still lead");
        b.run(now + seconds(60), &mut stored);
        assert!(b.leads(b.now()) && b.token() > token(7));
    }
}

/// An operator who raises the token keeps the revision, so the acquisition still matches.
#[test]
fn a_token_raised_by_hand_does_not_overtake_an_acquisition() {
    let (mut b, mut stored) = acquiring_above(token(6));
    stored.lease_mut().token = token(3);
    let now = b.now();
    b.event(now, &stored);
    b.serve(now, &mut stored);
    assert_eq!((b.leads(now), b.token()), (true, token(7)));
}

/// Returns a candidate that acquires a free lease with the token after `known`.
fn acquiring_above(known: Token) -> (Node, Stored) {
    let (_, mut stored) = leader("a", at(0));
    stored.vacate();
    let mut b = start_with_token("b", at(0), known);
    while b.waiting() != ["acquire"] {
        match b.calls.is_empty() {
            true => drop(b.wake()),
            false => drop(b.answer(b.now(), &mut stored)),
        }
    }
    (b, stored)
}

fn show(node: &mut Node, now: BootTime, lease: Lease, is_reply: bool) {
    if is_reply {
        node.input(now, Input::Watch(Watch::Unclear));
        let (read, _) = node.calls.pop_back().expect("a read");
        node.reply(now, read, Outcome::Applied(Found::Lease(lease)));
    } else {
        node.input(now, Input::Watch(Watch::Changed(lease)));
    }
}

#[test]
fn i3_an_acquisition_after_which_a_higher_token_was_seen_never_leads() {
    for is_reply in [true, false] {
        let (mut b, mut stored, call, outcome) = overtaken_by(token(3), is_reply);
        b.reply(at(3), call, outcome);
        assert!(!b.leads(at(3)));
        let reads = b.waiting().iter().all(|operation| *operation == "read");
        assert!(reads, "{:?}", b.waiting());
        b.serve(at(3), &mut stored);
        assert_eq!(b.notices, [rolled_back(3, Some(2))]);
        b.run(at(26), &mut stored);
        assert_eq!(b.times_leader(), 0, "the other claim may still lead");
    }
}

/// The candidate sends no release. Otherwise, another candidate that has not noticed the rollback
/// would acquire the lease.
#[test]
fn i1_a_shutdown_leaves_a_claim_that_landed_in_a_quarantine_to_expire() {
    let (mut b, mut stored, call, outcome) = overtaken_by(token(2), false);
    b.reply(at(3), call, outcome);
    b.input(at(3), Input::Shutdown);
    b.run(at(30), &mut stored);
    assert!(b.exited && stored.lease().holder.is_some());
}

/// A late reply shows a claim, and the store is then restored to an older document. Only a read
/// shows this rollback to the candidate.
#[test]
fn i1_a_late_reply_that_shows_a_later_document_precedes_a_read() {
    let (_, mut b, stored) = leader_and_follower();
    let lease = Lease {
        token: token(2),
        revision: Revision::from_bytes([70; 16]),
        ..stored.lease().clone()
    };
    b.reply(at(1), CallId(999), Outcome::Applied(Found::Lease(lease)));
    assert_eq!(b.waiting(), ["read"]);
    b.tick(at(60));
    assert_eq!(b.count("take_over"), 0, "the read has not been answered");
}
