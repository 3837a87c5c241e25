//! A candidate with an unhealthy workload does not lead and does not contend.

use super::harness::*;
use crate::election::*;

const ILL: Input = Input::Health { healthy: false };
const WELL: Input = Input::Health { healthy: true };

#[test]
fn an_unhealthy_leader_releases_and_contends_again_as_soon_as_it_is_healthy() {
    let (mut a, mut stored) = leader("a", at(0));
    a.input(at(1), ILL);
    a.assert_role(Role::Stopping, Reason::Unhealthy);
    a.demoted(at(1), &mut stored);
    assert_eq!(stored.lease().holder, None);
    assert_eq!(stored.history[0].reason, Reason::Unhealthy);
    a.run(at(500), &mut stored);
    assert_eq!(a.count("acquire"), 1);
    a.input(at(500), WELL);
    a.serve(at(500), &mut stored);
    assert!(a.leads(at(500)), "the candidate may contend again");
}

#[test]
fn health_that_comes_back_during_the_step_down_does_not_undo_it() {
    let (mut a, mut stored) = leader("a", at(0));
    a.input(at(1), ILL);
    a.input(at(1), WELL);
    assert_eq!(a.role(), Role::Stopping);
    a.demoted(at(1), &mut stored);
    assert_eq!(
        a.token(),
        token(2),
        "a acquires again after its own release"
    );
}

#[test]
fn an_unhealthy_candidate_takes_nothing_over_and_makes_no_document() {
    let (mut b, mut stored) = follower_of_vanished();
    b.input(at(1), ILL);
    b.run(at(500), &mut stored);
    assert_eq!(b.count("take_over"), 0);

    let mut stored = Stored::default();
    let mut c = Node::start("c", at(0));
    c.input(at(0), ILL);
    c.run(at(500), &mut stored);
    assert_eq!(c.count("create"), 0);
    c.input(at(500), WELL);
    c.serve(at(500), &mut stored);
    assert!(c.leads(at(500)));
}

#[test]
fn an_acquisition_that_lands_while_unhealthy_never_leads_and_is_released() {
    let (mut b, mut stored) = acquiring();
    b.input(at(1), ILL);
    b.serve(at(2), &mut stored);
    assert_eq!(b.times_leader(), 0);
    assert_eq!(stored.lease().holder, None);
    assert_eq!(stored.history[0].reason, Reason::Unhealthy);
    assert_eq!(b.role(), Role::Follower);
}

#[test]
fn an_open_acquisition_is_released_and_not_adopted_while_unhealthy() {
    let (mut b, mut stored) = acquiring();
    b.lose_reply(at(1), &mut stored);
    b.input(at(1), ILL);
    b.run(at(10), &mut stored);
    assert_eq!((b.count("renew"), b.count("release")), (0, 1));
    assert_eq!(stored.lease().holder, None);
}

#[test]
fn a_release_during_a_repeated_read_waits_for_its_own_answer() {
    let (mut b, mut stored) = acquiring();
    // A read is in flight together with the acquisition, and another read is due.
    b.input(at(1), Input::Watch(Watch::Lost));
    b.input(at(1), Input::Watch(Watch::Lost));
    b.input(at(1), ILL);
    assert_eq!(b.waiting(), ["acquire", "read"]);
    b.answer(at(1), &mut stored);
    assert_eq!(b.waiting(), ["read", "release"]);
    b.run(at(30), &mut stored);
    assert_eq!(stored.lease().holder, None);
}

#[test]
fn unhealthy_and_asked_to_step_down_it_still_lets_another_lead_first() {
    let (mut a, mut stored) = leader("a", at(0));
    a.input(at(1), Input::StepDown);
    a.input(at(1), ILL);
    assert_eq!(a.reason(), Some(Reason::Requested));
    a.demoted(at(1), &mut stored);
    a.input(at(2), WELL);
    a.run(at(24), &mut stored);
    assert_eq!(a.role(), Role::Follower);
    a.run(at(25), &mut stored);
    assert!(a.leads(at(25)));
}

#[test]
fn a_step_down_request_during_a_step_down_needs_a_cooldown_too() {
    let (mut a, mut stored) = leader("a", at(0));
    a.input(at(1), ILL);
    a.input(at(1), Input::StepDown);
    a.demoted(at(1), &mut stored);
    assert_eq!(stored.history[0].reason, Reason::Unhealthy);
    a.input(at(2), WELL);
    a.run(at(25) - millis(1), &mut stored);
    assert_eq!(a.count("acquire"), 1);
    a.run(at(25), &mut stored);
    assert_eq!(a.token(), token(2));
}
