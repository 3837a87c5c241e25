//! Leaders, followers and contenders in the states in which most tests start.

use super::harness::*;
use crate::election::*;

/// Returns a leader that acquired at `now`, with its stream open, and the store.
pub(super) fn leader(name: &str, now: BootTime) -> (Node, Stored) {
    leader_with(name, now, tunables())
}

pub(super) fn leader_with(name: &str, now: BootTime, tunables: Tunables) -> (Node, Stored) {
    let candidate = Candidate {
        tunables,
        ..candidate(name)
    };
    leading(candidate, now)
}

pub(super) fn supervisor(name: &str) -> (Node, Stored) {
    leading(supervising(name), at(0))
}

pub(super) fn supervising(name: &str) -> Candidate {
    Candidate {
        supervises: true,
        ..candidate(name)
    }
}

fn leading(candidate: Candidate, now: BootTime) -> (Node, Stored) {
    let mut stored = Stored::default();
    let mut node = Node::begin(candidate, now);
    node.serve(now, &mut stored);
    node.open_stream(now, &mut stored);
    assert_eq!(node.role(), Role::Leader, "{:?}", node.sent);
    (node, stored)
}

/// Returns a follower of the stored lease, with its stream open.
pub(super) fn follower(name: &str, now: BootTime, stored: &mut Stored) -> Node {
    let mut node = Node::served(name, now, stored);
    node.open_stream(now, stored);
    assert_eq!(node.role(), Role::Follower, "{:?}", node.sent);
    node
}

pub(super) fn leader_and_follower() -> (Node, Node, Stored) {
    let (a, mut stored) = leader("a", at(0));
    let b = follower("b", at(0), &mut stored);
    (a, b, stored)
}

/// Returns a follower `b` and the store. The leader has vanished.
pub(super) fn follower_of_vanished() -> (Node, Stored) {
    let (_, b, stored) = leader_and_follower();
    (b, stored)
}

/// Returns a follower `b` and the store. The lease is free, and `b` has just sent an acquisition.
pub(super) fn acquiring() -> (Node, Stored) {
    let (mut b, mut stored) = follower_of_vanished();
    stored.vacate();
    b.event(at(1), &stored);
    assert_eq!(b.waiting(), ["acquire"]);
    (b, stored)
}

/// Returns the follower `b`, which has just sent a takeover from the vanished leader, and the store.
pub(super) fn taking_over() -> (Node, Stored) {
    let (mut b, stored) = follower_of_vanished();
    b.tick(at(24));
    assert_eq!(b.waiting(), ["take_over"]);
    (b, stored)
}
