//! A candidate recognizes its own claims and revisions in every state. Each test detects a mutation
//! of the code that no other test detects.

use super::harness::*;
use crate::election::*;

#[test]
fn an_ended_claim_whose_release_is_unknown_is_taken_over_at_once() {
    let (mut a, mut stored) = leader("a", at(0));
    a.run_cut_off(at(19), &Outcome::Unknown);
    assert_eq!(a.role(), Role::Follower);
    assert!(
        stored.lease().holder.is_some(),
        "the store has applied no release"
    );
    a.run(at(22), &mut stored);
    // The candidate does not wait 24 s, as it would for another candidate's claim.
    assert!(a.leads(at(22)), "{:?}", a.sent);
    // A claim leads at most once.
    assert_eq!((a.count("take_over"), a.token()), (1, token(2)));
}

#[test]
fn an_event_with_the_revision_of_an_unanswered_renewal_is_not_reported() {
    let (mut a, mut stored) = leader("a", at(0));
    a.tick(at(3));
    assert_eq!(a.waiting(), ["renew"]);
    let (renewal, outcome) = a.perform(&mut stored);
    a.event(at(3), &stored);
    assert_eq!(a.waiting(), [""; 0], "a waits for the reply to its renewal");
    a.reply(at(4), renewal, outcome);
    assert_eq!(a.valid_until(), at(21));
}

#[test]
fn a_read_with_ones_own_revision_hurries_nothing() {
    let (mut a, mut stored) = leader("a", at(0));
    a.reread(at(1), &mut stored);
    assert_eq!(a.count("renew"), 0);
    // If a read shows another revision, `a` renews, because only a rejection proves the loss.
    stored.rewrite();
    a.reread(at(2), &mut stored);
    assert_eq!((a.count("renew"), a.leads(at(2))), (1, false));
}

#[test]
fn an_ended_claim_under_a_raised_token_is_not_another_leader() {
    let (mut a, mut stored) = leader("a", at(0));
    a.demote(at(1), Input::StepDown);
    a.answer_with(at(2), Outcome::Unknown);
    // An operator raises the token, as operators do after a restore.
    stored.lease_mut().token = token(9);
    a.run(at(25) - millis(1), &mut stored);
    assert_eq!((a.count("acquire"), a.count("take_over")), (1, 0));
    assert_eq!(stored.lease().holder, None, "the claim is released");
    a.run(at(25), &mut stored);
    assert_eq!(a.token(), token(10));
}

#[test]
fn a_twin_with_the_claim_of_a_step_down_is_not_another_leader() {
    let (mut a, mut stored) = leader_with("a", at(0), with_handoff(seconds(60)));
    a.demote(at(1), Input::StepDown);
    stored.rewrite();
    a.run(at(3), &mut stored);
    assert_eq!(a.reason(), Some(Reason::Duplicate));
    stored.vacate();
    a.event(at(4), &stored);
    a.run(at(26), &mut stored);
    assert_eq!(a.count("acquire"), 1, "a's cooldown continues");
    a.run(at(28), &mut stored);
    assert_eq!(a.token(), token(2));
}
