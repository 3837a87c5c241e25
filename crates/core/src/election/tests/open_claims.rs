//! Claims that may be stored: unanswered acquisitions, and ended claims (I1, I7).

use super::harness::*;
use crate::election::claims::OPEN_CLAIMS_MAX;
use crate::election::*;

/// Returns a follower, its unanswered acquisition, and the store before the acquisition.
fn unanswered() -> (Node, Operation, Stored) {
    let (mut b, stored) = acquiring();
    let operation = b.answer_with(at(1), Outcome::Unknown);
    (b, operation, stored)
}

fn recorded(node: &Node) -> Option<Claim> {
    node.remembered.last().and_then(|(claim, _, _)| *claim)
}

#[test]
fn an_open_acquisition_is_a_strangers_once_another_claim_has_its_token() {
    let (mut b, operation, before) = unanswered();
    assert!(recorded(&b).is_some());
    let mut stored = before.clone();
    let c = Node::served("c", at(1), &mut stored);
    assert_eq!(c.token(), token(2));
    b.event(at(1), &stored);
    b.run(at(3), &mut stored);
    assert_eq!(
        recorded(&b),
        None,
        "the predecessor's exit is no longer proven"
    );
    // A restored document contains the applied acquisition, and c may still lead.
    let mut restored = before;
    restored.apply(&b.identity, &operation);
    b.event(at(4), &restored);
    b.run(at(4) + seconds(23), &mut restored);
    assert_eq!((b.count("renew"), b.count("take_over")), (0, 0));
    b.run(at(4) + seconds(24), &mut restored);
    assert_eq!(b.token(), token(3), "b waits as for any other claim");
}

#[test]
fn an_open_acquisition_is_a_strangers_once_the_store_went_back() {
    let (mut b, operation, before) = unanswered();
    let mut gone = Stored::default();
    b.reread(at(1), &mut gone);
    assert_eq!(b.reason(), Some(Reason::StoreRolledBack));
    // An old document is restored, and the acquisition is applied to it.
    let mut restored = before;
    restored.apply(&b.identity, &operation);
    b.event(at(2), &restored);
    b.run(at(26) - millis(1), &mut restored);
    assert_eq!((b.count("renew"), b.count("release")), (0, 0));
    b.run(at(27), &mut restored);
    assert_eq!(b.token(), token(3), "b waits as for any other claim");
}

#[test]
fn an_adopted_acquisition_stays_on_record() {
    let (mut b, mut stored) = unacknowledged();
    b.run(at(3), &mut stored);
    assert!(b.leads(at(3)));
    let claim = Some(stored.claim());
    assert_eq!(recorded(&b), claim);
}

#[test]
fn an_ended_claim_is_off_the_record_once_another_took_over() {
    let (mut a, mut stored) = leader("a", at(0));
    let before = stored.clone();
    let mut b = follower("b", at(0), &mut stored);
    a.run_cut_off(at(20), &Outcome::Unknown);
    assert!(recorded(&a).is_some());
    b.run(at(24), &mut stored);
    assert_eq!(b.token(), token(2));
    a.event(at(24), &stored);
    assert_eq!(recorded(&a), None);
    // The document shows the claim of `a` again, with the token of `b`, and `b` may still lead.
    let mut edited = before;
    edited.lease_mut().token = token(2);
    a.event(at(25), &edited);
    a.run(at(25) + seconds(23), &mut edited);
    assert_eq!((a.count("take_over"), a.role()), (0, Role::Follower));
}

/// Like [`unanswered`], but the acquisition was applied.
fn unacknowledged() -> (Node, Stored) {
    let (mut b, mut stored) = acquiring();
    b.lose_reply(at(1), &mut stored);
    (b, stored)
}

/// Like [`unacknowledged`], but a renewal that adopts the acquisition is in flight.
fn adopting() -> (Node, Stored) {
    let (mut b, mut stored) = unacknowledged();
    look(&mut b, &mut stored);
    assert_eq!(b.waiting(), ["renew"]);
    (b, stored)
}

/// Performs the next read when it is due.
fn look(node: &mut Node, stored: &mut Stored) {
    let due = node.wake();
    node.serve_reads(due, stored);
}

#[test]
fn i1_a_claim_that_never_led_is_not_adopted_after_its_release_was_sent() {
    let (mut b, mut stored) = unacknowledged();
    stored.lease_mut().paused = true;
    look(&mut b, &mut stored);
    assert_eq!(b.waiting(), ["release"]);
    b.answer_with(b.now(), Outcome::Unknown);
    stored.lease_mut().paused = false;
    b.run(at(4), &mut stored);
    assert_eq!((b.count("renew"), b.count("take_over")), (0, 1));
    // The claim is new, because the old claim's release may be applied late.
    assert_eq!(b.token(), token(3));
}

#[test]
fn a_release_that_is_repeated_is_one_ended_claim_until_it_is_answered() {
    let (mut a, mut stored) = leader("a", at(0));
    a.demote(at(1), Input::StepDown);
    for _ in 0..3 {
        assert_eq!(a.answer_with(a.now(), Outcome::Unknown).as_str(), "release");
        look(&mut a, &mut stored);
    }
    assert_eq!(a.election.contender.claims().ended.len(), 1);
    a.serve(a.now(), &mut stored);
    assert_eq!(stored.lease().holder, None);
    assert_eq!(a.election.contender.claims().ended.len(), 0);
}

#[test]
fn the_late_rejection_of_an_acquisition_settles_it() {
    let (mut b, _, _) = unanswered();
    let call = b.election.contender.claims().pending[0].call;
    b.reply(at(2), CallId(999), Outcome::Rejected);
    assert_eq!(
        b.election.contender.claims().pending.len(),
        1,
        "another's answer"
    );
    b.reply(at(2), call, Outcome::Rejected);
    assert_eq!(b.election.contender.claims().pending, []);
}

#[test]
fn i7_the_late_acknowledgement_of_an_acquisition_is_a_hint_to_read() {
    let (mut b, operation, mut stored) = unanswered();
    let call = b.election.contender.claims().pending[0].call;
    let late = stored.apply(&b.identity, &operation);
    b.reply(at(1) + millis(1), call, late);
    assert_eq!((b.leads(at(1)), b.waiting()), (false, vec!["read"]));
}

#[test]
fn i7_an_acknowledgement_that_shows_another_holder_grants_nothing() {
    // A store that applies its filters never sends this reply.
    let (_, stored) = leader("c", at(0));
    let strange = Outcome::Applied(Found::Lease(stored.lease().clone()));

    let (mut b, _) = taking_over();
    b.answer_with(at(24), strange.clone());
    assert!(!b.leads(at(24)));

    let (mut b, _) = adopting();
    b.answer_with(b.now(), strange.clone());
    assert!(!b.leads(b.now()));

    let (mut a, _) = leader("a", at(0));
    a.tick(at(3));
    a.answer_with(at(3), strange);
    assert_eq!(a.valid_until(), at(18), "not extended");
}

#[test]
fn an_adoption_that_is_rejected_is_given_up() {
    let (mut b, mut stored) = adopting();
    b.answer_with(b.now(), Outcome::Rejected);
    assert_eq!(b.election.contender.claims().pending, []);
    stored.rewrite();
    b.run(at(20), &mut stored);
    assert_eq!((b.role(), b.count("renew")), (Role::Follower, 1));
}

#[test]
fn an_adoption_that_landed_unheard_is_known_again() {
    let (mut b, mut stored) = adopting();
    let (renew, outcome) = b.perform(&mut stored);
    assert!(matches!(outcome, Outcome::Applied(_)));
    b.reply(b.now(), renew, Outcome::Unknown);
    b.run(at(5), &mut stored);
    assert_eq!((b.leads(at(5)), b.count("renew") > 1), (true, true));
    assert_eq!(
        b.token(),
        token(2),
        "b adopts the acquisition and does not wait for its expiry"
    );
}

#[test]
fn i11_the_revisions_of_an_adoption_are_bounded() {
    let (mut b, mut stored) = adopting();
    for _ in 0..2 * OPEN_CLAIMS_MAX {
        b.answer_with(b.now(), Outcome::Unknown);
        look(&mut b, &mut stored);
    }
    assert_eq!(
        b.election.contender.claims().pending[0].chain.len(),
        OPEN_CLAIMS_MAX
    );
}

#[test]
fn an_open_acquisition_is_looked_for_before_the_exit() {
    let (mut b, mut stored) = unacknowledged();
    b.input(at(1), Input::Shutdown);
    assert!(!b.exited);
    b.run(at(4), &mut stored);
    assert_eq!((b.exited, stored.lease().holder.clone()), (true, None));
}

#[test]
fn a_candidate_with_nothing_open_exits_at_once() {
    let mut a = Node::start("a", at(0));
    a.input(at(0), Input::Shutdown);
    assert!(a.exited, "a does not wait for its first read");
}

/// Checks a candidate that got a signal during its acquisition. It must have released the claim
/// without leading, and must not lead before the cooldown that began at `since` has ended.
fn was_cancelled(b: &mut Node, since: BootTime, stored: &mut Stored) {
    assert_eq!(stored.lease().holder, None, "released");
    assert_eq!(stored.history[0].reason, Reason::Requested);
    b.run(since + seconds(24) - millis(1), stored);
    assert_eq!(b.times_leader(), 0);
    b.run(since + seconds(26), stored);
    assert_eq!((b.leads(b.now()), b.token()), (true, token(3)));
}

#[test]
fn an_acquisition_never_leads_if_a_step_down_was_requested_meanwhile() {
    let (mut b, mut stored) = acquiring();
    b.input(at(1), Input::StepDown);
    b.serve(at(1), &mut stored);
    was_cancelled(&mut b, at(1), &mut stored);
}

#[test]
fn an_adoption_never_leads_if_a_step_down_was_requested_meanwhile() {
    let (mut b, mut stored) = adopting();
    let since = b.now();
    b.input(since, Input::StepDown);
    b.serve(since, &mut stored);
    was_cancelled(&mut b, since, &mut stored);
}

#[test]
fn an_acquisition_of_unknown_outcome_is_released_after_a_step_down() {
    let (mut b, mut stored) = unacknowledged();
    b.input(b.now(), Input::StepDown);
    look(&mut b, &mut stored);
    assert_eq!(b.waiting(), ["release"]);
    b.serve(b.now(), &mut stored);
    was_cancelled(&mut b, at(1), &mut stored);
}

#[test]
fn an_adoption_that_was_cancelled_and_got_no_answer_is_released() {
    let (mut b, mut stored) = adopting();
    let since = b.now();
    b.input(since, Input::StepDown);
    b.lose_reply(since, &mut stored);
    look(&mut b, &mut stored);
    assert_eq!(b.waiting(), ["release"]);
}

#[test]
fn a_cancelled_acquisition_is_released_even_after_the_cooldown() {
    let (mut b, mut stored) = acquiring();
    b.input(at(1), Input::StepDown);
    b.lose_reply(at(1), &mut stored);
    b.run_cut_off(at(60), &Outcome::Failed);
    look(&mut b, &mut stored);
    assert_eq!((b.waiting(), b.times_leader()), (vec!["release"], 0));
}

#[test]
fn a_cancelled_candidate_contends_again_once_another_led() {
    let (mut b, mut stored) = acquiring();
    b.input(at(1), Input::StepDown);
    let mut c = Node::served("c", at(1), &mut stored);
    b.serve(at(1), &mut stored);
    assert_eq!((c.token(), b.role()), (token(2), Role::Follower));
    c.release(at(2), Input::Shutdown, &mut stored);
    b.observe(at(2), &mut stored);
    // b lost a race before, so it waits for a random delay.
    b.run(at(3), &mut stored);
    assert!(b.leads(at(3)));
}

#[test]
fn a_step_down_without_an_open_acquisition_has_no_effect() {
    let (mut a, mut b, mut stored) = leader_and_follower();
    b.input(at(1), Input::StepDown);
    a.release(at(2), Input::Shutdown, &mut stored);
    b.observe(at(2), &mut stored);
    assert!(b.leads(at(2)));
}
