//! Followers of a change stream that reports changes seconds late. They read just after each
//! expected renewal. An event only triggers a read.

use super::harness::*;
use super::hints::{INTERVAL, LATE_MAX, together};
use crate::election::*;

const LAG: u64 = 10;

/// Returns a leader `a`, a follower `b` of a late stream, and the store. `a` has led since 0 s, and
/// `b` has run since 1.234 s.
fn leader_and_late_follower() -> (Node, Node, Stored) {
    let (a, mut stored) = leader("a", at(0));
    let now = at(0) + millis(1_234);
    let mut b = Node::served("b", now, &mut stored);
    b.input(now, Input::Watch(Watch::LateStreamOpened));
    b.serve(now, &mut stored);
    (a, b, stored)
}

/// Advances both candidates to `until`. The stream reports the document of each second with a delay
/// of [`LAG`] seconds.
fn together_with_late_events(
    (a, b): (&mut Node, &mut Node),
    (from, until): (u64, u64),
    before: &mut Vec<Stored>,
    stored: &mut Stored,
) {
    for second in from..=until {
        together(a, b, at(second), stored);
        before.push(stored.clone());
        if let Some(past) = before.len().checked_sub(LAG as usize + 1) {
            b.event(at(second), &before[past]);
            b.serve(at(second), stored);
        }
    }
}

#[test]
fn i10_renewals_are_seen_as_they_come_although_the_stream_is_late() {
    let (mut a, mut b, mut stored) = leader_and_late_follower();
    together(&mut a, &mut b, at(12), &mut stored);
    let reads = b.count("read");
    let mut before = Vec::new();
    together_with_late_events((&mut a, &mut b), (13, 312), &mut before, &mut stored);
    let late = together(&mut a, &mut b, at(612), &mut stored);
    assert!(late <= LATE_MAX, "{late:?}");
    let reads = b.count("read") - reads;
    assert!(
        (200..=300).contains(&reads),
        "{reads} reads for 200 renewals"
    );
    assert_eq!(
        b.streams_reopened, 0,
        "the stream reports the changes later"
    );
}

#[test]
fn i10_late_events_do_not_put_off_a_takeover() {
    let (mut a, mut b, mut stored) = leader_and_late_follower();
    let mut before = Vec::new();
    together_with_late_events((&mut a, &mut b), (2, 31), &mut before, &mut stored);
    // The last renewal was sent at second 30, and its event comes ten seconds later.
    let expired = at(30 + 24);
    for second in 32..54 {
        b.run(at(second), &mut stored);
        before.push(stored.clone());
        b.event(at(second), &before[before.len() - 1 - LAG as usize]);
        b.serve(at(second), &mut stored);
    }
    b.run(expired - millis(1), &mut stored);
    assert!(!b.leads(expired), "{:?}", b.sent);
    b.run(expired + LATE_MAX, &mut stored);
    assert!(b.leads(expired + LATE_MAX), "{:?}", b.sent.last());
}

#[test]
fn i10_a_release_is_seen_within_an_interval() {
    let (mut a, mut b, mut stored) = leader_and_late_follower();
    together(&mut a, &mut b, at(31), &mut stored);
    a.release(at(31), Input::Shutdown, &mut stored);
    b.run(at(31 + INTERVAL), &mut stored);
    assert!(b.leads(at(31 + INTERVAL)), "{:?}", b.sent);
    assert_eq!(b.streams_reopened, 0);
}

#[test]
fn a_release_that_the_stream_reports_in_time_is_read_at_once() {
    let (mut a, mut b, mut stored) = leader_and_late_follower();
    together(&mut a, &mut b, at(31), &mut stored);
    a.release(at(31), Input::Shutdown, &mut stored);
    b.event(at(31), &stored);
    assert_eq!(b.waiting(), ["read"], "an event alone shows nothing");
    b.serve(at(31), &mut stored);
    assert!(b.leads(at(31)), "{:?}", b.sent);
}

#[test]
fn events_of_what_was_read_before_are_not_read_again() {
    let (mut a, mut b, mut stored) = leader_and_late_follower();
    let earlier = stored.clone();
    together(&mut a, &mut b, at(31), &mut stored);
    let seen = b.election.contender.view().seen;
    b.event(at(31), &earlier);
    assert!(
        b.waiting().is_empty(),
        "the event is a renewal of the known holder"
    );
    a.release(at(31), Input::Shutdown, &mut stored);
    b.event(at(31), &stored);
    b.serve(at(31), &mut stored);
    assert!(b.leads(at(31)));
    assert!(b.election.contender.view().seen > seen);
    let mut c = Node::served("c", at(32), &mut stored);
    c.input(at(32), Input::Watch(Watch::LateStreamOpened));
    c.serve(at(32), &mut stored);
    c.event(at(32), &earlier);
    assert!(c.waiting().is_empty(), "an earlier token");
}

#[test]
fn an_event_that_says_nothing_makes_a_follower_read_and_act_on_the_reply() {
    let (mut a, mut b, mut stored) = leader_and_late_follower();
    together(&mut a, &mut b, at(31), &mut stored);
    a.release(at(31), Input::Shutdown, &mut stored);
    b.input(at(31), Input::Watch(Watch::Unclear));
    b.serve(at(31), &mut stored);
    assert!(b.leads(at(31)), "{:?}", b.sent);
}

#[test]
fn a_lease_that_is_paused_or_resumed_is_read_when_the_stream_reports_it() {
    let (_, mut b, mut stored) = leader_and_late_follower();
    stored.lease_mut().paused = true;
    b.event(at(2), &stored);
    b.serve(at(2), &mut stored);
    assert_eq!(b.role(), Role::Paused);
}

#[test]
fn another_primary_opens_a_late_stream_anew() {
    let (_, mut b, _) = leader_and_late_follower();
    b.input(at(2), Input::PrimaryChanged);
    assert_eq!(b.streams_reopened, 1);
}
