//! The published status of a candidate and of the holder.

use super::harness::*;
use crate::election::*;

/// Returns the view of `a` as the holder, with its first token.
fn a_until(until: BootTime) -> HolderView {
    HolderView {
        identity: identity("a"),
        token: token(1),
        until,
    }
}

#[test]
fn a_follower_names_the_holder_until_it_would_call_it_expired() {
    let (mut b, _) = follower_of_vanished();
    let holder = a_until(at(24));
    assert_eq!(b.election.status().holder, Some(holder.clone()));
    b.tick(at(24) - millis(1));
    assert_eq!(b.election.status().holder, Some(holder));
    b.tick(at(24));
    assert_eq!(b.election.status().holder, None);
}

#[test]
fn a_leader_names_itself_until_its_own_deadline() {
    let (a, _) = leader("a", at(0));
    assert_eq!(a.election.status().holder, Some(a_until(at(18))));
}

#[test]
fn a_pause_is_the_reason_while_it_lasts() {
    let (mut a, mut b, mut stored) = leader_and_follower();
    stored.lease_mut().paused = true;
    a.event(at(1), &stored);
    a.serve_reads(at(1), &mut stored);
    a.assert_role(Role::Stopping, Reason::Paused);
    b.event(at(1), &stored);
    b.assert_role(Role::Paused, Reason::Paused);
    stored.lease_mut().paused = false;
    b.event(at(2), &stored);
    assert_eq!((b.role(), b.reason()), (Role::Follower, None));
}

#[test]
fn every_change_of_role_is_counted_and_logged() {
    let (mut a, mut stored) = leader("a", at(0));
    a.release(at(1), Input::StepDown, &mut stored);
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
