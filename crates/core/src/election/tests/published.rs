//! The published status of a candidate and of the holder.

use super::harness::*;
use crate::election::*;

/// Returns the view of `a` as the holder, with its first token.
fn a_until(until: BootTime) -> HolderView {
    HolderView {
        identity: identity("a"),
        token: token(1),
        until,
        unconfirmed: false,
    }
}

#[test]
fn a_follower_names_the_holder_until_it_would_call_it_expired() {
    let (mut b, _) = follower_of_vanished();
    let holder = HolderView {
        unconfirmed: true,
        ..a_until(at(24))
    };
    assert_eq!(b.election.status().holder, Some(holder.clone()));
    b.tick(at(24) - millis(1));
    assert_eq!(b.election.status().holder, Some(holder));
    b.tick(at(24));
    assert_eq!(b.election.status().holder, None);
}

#[test]
fn a_follower_confirms_a_holder_that_writes() {
    let (mut a, mut b, mut stored) = leader_and_follower();
    b.reread(at(1), &mut stored);
    let unconfirmed = |b: &Node| b.election.status().holder.as_ref().unwrap().unconfirmed;
    assert!(unconfirmed(&b), "the same revision");
    a.run(at(6), &mut stored);
    b.event(at(6), &stored);
    assert_eq!(b.election.status().holder, Some(a_until(at(30))));
    // `c` starts after `b` has acquired the lease, so `c` has not seen `b` write.
    a.release(at(7), Input::Shutdown, &mut stored);
    b.event(at(7), &stored);
    b.serve(at(7), &mut stored);
    assert_eq!(b.role(), Role::Leader);
    let mut c = follower("c", at(8), &mut stored);
    assert!(unconfirmed(&c));
    b.release(at(9), Input::Shutdown, &mut stored);
    c.event(at(9), &stored);
    assert_eq!(c.election.status().holder, None);
}

#[test]
fn a_follower_shows_the_holder_s_token_and_not_a_raised_one() {
    let (_, mut b, mut stored) = leader_and_follower();
    let mut shown = |stored: &mut Stored| {
        b.reread(at(1), stored);
        b.election.status().holder.as_ref().unwrap().token
    };
    stored.lease_mut().token = token(4711);
    assert_eq!(shown(&mut stored), token(1));
    stored.holder_mut().token = None;
    assert_eq!(shown(&mut stored), token(4711));
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
