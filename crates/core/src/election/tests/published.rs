//! The published status of a candidate, for itself and for the holder.

use super::harness::*;
use crate::election::*;

#[test]
fn a_follower_names_the_holder_until_it_would_call_it_expired() {
    let (_, mut stored) = leader("a", at(0));
    let mut b = follower("b", at(0), &mut stored);
    let holder = HolderView {
        identity: identity("a"),
        token: token(1),
        until: at(24),
    };
    assert_eq!(b.election.status().holder, Some(holder.clone()));
    b.tick(at(24) - millis(1));
    assert_eq!(b.election.status().holder, Some(holder));
    b.tick(at(24));
    assert_eq!(b.election.status().holder, None);
}

#[test]
fn a_leader_names_itself_until_its_own_deadline() {
    let (a, _) = leader("a", at(0));
    let holder = HolderView {
        identity: identity("a"),
        token: token(1),
        until: at(18),
    };
    assert_eq!(a.election.status().holder, Some(holder));
}

#[test]
fn a_pause_is_the_reason_while_it_lasts() {
    let (mut a, mut stored) = leader("a", at(0));
    let mut b = follower("b", at(0), &mut stored);
    stored.lease_mut().paused = true;
    a.event(at(1), &stored);
    a.serve_reads(at(1), &mut stored);
    assert_eq!(
        (a.role(), a.reason()),
        (Role::Stopping, Some(Reason::Paused))
    );
    b.event(at(1), &stored);
    assert_eq!((b.role(), b.reason()), (Role::Paused, Some(Reason::Paused)));
    stored.lease_mut().paused = false;
    b.event(at(2), &stored);
    assert_eq!((b.role(), b.reason()), (Role::Follower, None));
}

#[test]
fn every_change_of_role_is_counted_and_told() {
    let (mut a, mut stored) = leader("a", at(0));
    a.input(at(1), Input::StepDown);
    a.input(at(1), Input::Demoted { shown: true });
    a.serve(at(1), &mut stored);
    let roles: Vec<_> = a.transitions.iter().map(|t| (t.from, t.to)).collect();
    let expected = [
        (Role::Unknown, Role::Follower),
        (Role::Follower, Role::Leader),
        (Role::Leader, Role::Stopping),
        (Role::Stopping, Role::Follower),
    ];
    assert_eq!(roles, expected);
    assert_eq!(a.election.status().transitions, 4);
}
