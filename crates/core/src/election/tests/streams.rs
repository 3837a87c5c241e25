//! Stale streams that still answer. The cursor's member is no longer the primary, and it lags, is
//! locked for a backup, or is cut off from the set.

use super::harness::*;
use crate::election::*;

/// Advances `node` second by second to `until`. Its stream answers but reports nothing.
fn deaf(node: &mut Node, from: u64, until: u64, stored: &mut Stored) {
    for second in from..=until {
        node.input(at(second), Input::Watch(Watch::Alive));
        node.run(at(second), stored);
    }
}

#[test]
fn i10_a_follower_on_a_stale_stream_takes_over_within_the_bound() {
    let (mut a, mut b, mut stored) = leader_and_follower();
    // The stream of b reports none of the renewals; the last renewal is sent at second 12.
    for second in 1..=12 {
        a.run(at(second), &mut stored);
        deaf(&mut b, second, second, &mut stored);
    }
    assert!(a.leads(at(12)));
    deaf(&mut b, 13, 100, &mut stored);
    let took_over = b.transitions.iter().find(|t| t.to == Role::Leader);
    let at_second = took_over.map(|t| t.lasted).expect("b took over");
    assert!(at_second <= seconds(12 + 32), "{at_second:?}");
    assert!(b.leads(at(100)));
}

#[test]
fn i10_a_lease_that_is_resumed_is_noticed_on_a_stale_stream() {
    let (mut a, mut b, mut stored) = leader_and_follower();
    stored.lease_mut().paused = true;
    b.event(at(1), &stored);
    a.release(at(1), Input::Shutdown, &mut stored);
    b.event(at(1), &stored);
    deaf(&mut b, 2, 200, &mut stored);
    assert_eq!(b.role(), Role::Paused);
    stored.lease_mut().paused = false;
    deaf(&mut b, 201, 225, &mut stored);
    assert!(b.leads(at(225)), "{:?}", b.sent.last());
}

#[test]
fn i10_a_late_reply_to_a_read_does_not_replace_a_newer_event() {
    let (mut a, mut b, mut stored) = leader_and_follower();
    b.input(at(0), Input::Watch(Watch::Unclear));
    let (read, late) = b.perform(&mut stored);
    // The renewal and its event arrive before the reply.
    a.run(at(3), &mut stored);
    b.event(at(3), &stored);
    b.reply(at(3), read, late);
    b.serve(at(3), &mut stored);
    b.sends_nth(1, "take_over", at(27), &mut stored);
    assert!(b.leads(at(27)), "{:?}", b.sent);
}

#[test]
fn a_reply_that_shows_what_the_event_showed_is_not_asked_for_again() {
    let (mut a, mut b, mut stored) = leader_and_follower();
    a.run(at(3), &mut stored);
    b.input(at(3), Input::Watch(Watch::Unclear));
    b.event(at(3), &stored);
    let reads = b.count("read");
    b.serve(at(3), &mut stored);
    assert_eq!(b.count("read"), reads);
}

#[test]
fn a_read_that_shows_what_the_stream_did_not_report_opens_it_anew() {
    let (mut a, mut b, mut stored) = leader_and_follower();
    a.run(at(4), &mut stored);
    deaf(&mut b, 4, 5, &mut stored);
    assert_eq!(b.streams_reopened, 0);
    deaf(&mut b, 6, 6, &mut stored);
    assert_eq!(b.streams_reopened, 1);
    // Until the new stream is open, b polls and does not request another stream.
    let reads = b.count("read");
    deaf(&mut b, 7, 16, &mut stored);
    let polls = b.count("read") - reads;
    assert!(polls >= 7, "{polls} in ten seconds");
    assert_eq!(b.streams_reopened, 1);
}

#[test]
fn an_unresponsive_holder_is_read_every_two_renewal_intervals_until_it_expires() {
    let (mut b, mut stored) = follower_of_vanished();
    let reads = b.count("read");
    deaf(&mut b, 1, 23, &mut stored);
    assert_eq!(b.count("read") - reads, 3);
    assert_eq!(b.streams_reopened, 0, "there was nothing to report");
    deaf(&mut b, 24, 24, &mut stored);
    assert!(b.leads(at(24)));
    assert_eq!(
        b.count("read") - reads,
        3,
        "no read in addition to the takeover"
    );
}

#[test]
fn another_primary_opens_the_stream_anew() {
    let (mut a, mut b, _) = leader_and_follower();
    for node in [&mut a, &mut b] {
        node.input(at(1), Input::PrimaryChanged);
        assert_eq!(node.streams_reopened, 1);
        // The stream is already reopening, so it finds the new primary without another request.
        node.input(at(1), Input::PrimaryChanged);
        assert_eq!(node.streams_reopened, 1);
    }
}

#[test]
fn a_rejected_take_over_opens_the_stream_anew() {
    let (mut b, _) = taking_over();
    b.answer_with(at(24), Outcome::Rejected);
    assert_eq!(b.streams_reopened, 1);
}

#[test]
fn a_reply_that_proves_a_rollback_and_is_older_than_an_event_causes_another_read() {
    let (_, mut b, mut stored) = leader_and_follower();
    b.open_stream(at(1), &mut stored);
    stored.lease_mut().token = token(2);
    b.observe(at(1), &mut stored);
    // The document is rolled back, and an operator raises the token while `b` confirms the
    // rollback. Neither write changes the revision.
    stored.lease_mut().token = token(1);
    b.input(at(2), Input::Watch(Watch::Unclear));
    b.answer(at(2), &mut stored);
    let (confirms, older) = b.perform(&mut stored);
    stored.lease_mut().token = token(2);
    b.event(at(2), &stored);
    b.reply(at(2), confirms, older);
    assert_eq!(b.reason(), Some(Reason::StoreRolledBack));
    assert_eq!(b.waiting(), ["read"]);
}
