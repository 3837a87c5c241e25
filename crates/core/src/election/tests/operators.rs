//! Pause, step-down and transfer: requests in the document to the lease's holder.

use super::harness::*;
use crate::election::*;

fn step_down(n: i64) -> Option<Request> {
    Some(Request {
        kind: RequestKind::StepDown,
        token: token(n),
    })
}

fn transfer(to: &str, n: i64) -> Option<Request> {
    let reservation = Reservation {
        identity: identity(to),
        duration: seconds(5),
    };
    Some(Request {
        kind: RequestKind::Transfer(reservation),
        token: token(n),
    })
}

/// Returns the notice of a request to the leader with token 1.
fn notice(requested: i64) -> Notice {
    Notice::RequestForAnotherToken {
        requested: token(requested),
        leading: token(1),
    }
}

#[test]
fn a_request_from_the_stream_is_carried_out_after_a_read() {
    let (mut a, mut stored) = leader("a", at(0));
    stored.lease_mut().request = step_down(1);
    a.event(at(1), &stored);
    // An event is only a hint.
    assert_eq!((a.role(), a.waiting()), (Role::Leader, vec!["read"]));
    a.serve(at(1), &mut stored);
    a.assert_role(Role::Stopping, Reason::Requested);
}

#[test]
fn without_a_stream_a_request_is_learned_from_the_next_renewal() {
    let (mut a, mut stored) = leader("a", at(0));
    stored.lease_mut().request = step_down(1);
    a.run(at(3), &mut stored);
    assert_eq!(a.role(), Role::Stopping);
}

#[test]
fn a_request_for_another_token_is_ignored() {
    let (mut a, mut stored) = leader("a", at(0));
    stored.lease_mut().request = step_down(2);
    let sent = a.sent.len();
    a.event(at(1), &stored);
    assert_eq!(a.sent.len(), sent, "the event causes no read");
    a.run(at(30), &mut stored);
    assert!(a.leads(at(30)));
    assert_eq!(a.notices, [notice(2)], "once");
    stored.lease_mut().request = step_down(3);
    a.run(at(40), &mut stored);
    assert_eq!(a.notices, [notice(2), notice(3)]);
}

#[test]
fn a_request_for_a_raised_token_is_reported() {
    let (mut a, mut stored) = leader("a", at(0));
    stored.lease_mut().token = token(9);
    stored.lease_mut().request = step_down(9);
    a.run(at(30), &mut stored);
    assert!(a.leads(at(30)) && a.token() == token(1));
    assert_eq!(a.notices, [notice(9)]);
    stored.lease_mut().request = step_down(1);
    a.run(at(33), &mut stored);
    assert_eq!(a.role(), Role::Stopping);
}

#[test]
fn after_a_step_down_a_candidate_stays_out_for_a_lease_duration() {
    let (mut a, mut stored) = leader("a", at(0));
    a.release(at(1), Input::StepDown, &mut stored);
    assert_eq!(stored.lease().holder, None);
    a.sends_nth(2, "acquire", at(25), &mut stored);
    assert!(
        a.leads(at(25)),
        "a leads again if no other candidate acquires"
    );
}

#[test]
fn after_a_step_down_a_candidate_contends_again_once_another_led() {
    let (mut a, mut b, mut stored) = leader_and_follower();
    a.release(at(1), Input::StepDown, &mut stored);
    b.observe(at(1), &mut stored);
    a.event(at(1), &stored);
    b.release(at(2), Input::Shutdown, &mut stored);
    a.observe(at(2), &mut stored);
    assert!(a.leads(at(2)));
}

#[test]
fn a_transfer_keeps_the_lease_for_its_target_for_a_while() {
    let (mut a, mut b, mut stored) = leader_and_follower();
    let mut c = follower("c", at(0), &mut stored);
    stored.lease_mut().request = transfer("c", 1);
    a.observe(at(1), &mut stored);
    a.demoted(at(1), &mut stored);
    assert_eq!(stored.history[0].reason, Reason::Transferred);
    b.event(at(1), &stored);
    assert_eq!(b.election.next_wakeup(), Some(at(6)));
    let mut without_c = stored.clone();
    c.observe(at(1), &mut stored);
    assert!(c.leads(at(1)));
    assert_eq!(stored.lease().reserved_for, None);
    // If c had exited, b would have acquired the lease after five seconds.
    b.run(at(6), &mut without_c);
    assert!(b.leads(at(6)));
}

#[test]
fn a_transfer_to_the_leader_itself_changes_nothing() {
    let (mut a, mut stored) = leader("a", at(0));
    stored.lease_mut().request = transfer("a", 1);
    a.event(at(1), &stored);
    a.run(at(30), &mut stored);
    assert!(a.leads(at(30)));
}

#[test]
fn while_paused_no_candidate_leads_or_acquires() {
    let (mut a, mut b, mut stored) = leader_and_follower();
    stored.lease_mut().paused = true;
    a.observe(at(1), &mut stored);
    a.demoted(at(1), &mut stored);
    b.event(at(1), &stored);
    assert_eq!((a.role(), b.role()), (Role::Paused, Role::Paused));
    for node in [&mut a, &mut b] {
        node.run(at(200), &mut stored);
        let led_before = usize::from(node.identity == identity("a"));
        assert_eq!(node.count("acquire") + node.count("take_over"), led_before);
    }
    stored.lease_mut().paused = false;
    b.observe(at(201), &mut stored);
    assert!(b.leads(at(201)));
}

#[test]
fn a_paused_lease_of_an_expired_holder_is_not_taken_over() {
    let (_, mut stored) = leader("a", at(0));
    stored.lease_mut().paused = true;
    let mut b = Node::served("b", at(0), &mut stored);
    b.run(at(500), &mut stored);
    assert_eq!((b.role(), b.count("take_over")), (Role::Paused, 0));
}

#[test]
fn a_candidate_that_was_asked_to_step_down_stays_out_also_if_its_deadline_ended_the_drain() {
    let (mut a, mut stored) = leader_with("a", at(0), with_handoff(seconds(60)));
    a.demote(at(1), Input::StepDown);
    // The store does not answer until the leader's deadline has passed.
    a.run_cut_off(at(18), &Outcome::Unknown);
    assert_eq!(a.reason(), Some(Reason::Deadline));
    a.run(at(30), &mut stored);
    assert_eq!((a.role(), a.count("take_over")), (Role::Follower, 0));
}

#[test]
fn a_candidate_without_a_stream_looks_again_after_its_own_release() {
    let (mut a, mut stored) = leader("a", at(0));
    a.input(at(1), Input::Watch(Watch::Lost));
    stored.lease_mut().paused = true;
    a.run(at(3), &mut stored);
    a.demoted(at(3), &mut stored);
    assert_eq!(stored.lease().holder, None);
    assert_eq!(a.role(), Role::Paused);
    stored.lease_mut().paused = false;
    a.run(at(8), &mut stored);
    assert_eq!(a.role(), Role::Leader);
}
