//! Releases that a hint announces. The candidate that the lease is reserved for acquires it without
//! a read.

use super::harness::*;
use super::hints::leader_and_reader;
use crate::election::*;

/// The delay after which a candidate reads the announced release.
const READ_AFTER: u64 = 50;

fn announcement(claim: Claim, revision: Revision, reserved_for: &str) -> Input {
    let reserved_for = identity(reserved_for);
    Input::Watch(Watch::Released(Released {
        claim,
        revision,
        reserved_for,
    }))
}

#[test]
fn an_announced_release_is_acquired_without_a_read() {
    let (mut a, mut b, mut stored) = leader_and_reader();
    let claim = stored.lease().claim().expect("held");
    a.release(at(2), Input::Shutdown, &mut stored);
    let reads = b.count("read");
    b.input(at(2), announcement(claim, stored.lease().revision, "b"));
    assert_eq!(b.waiting(), ["acquire"]);
    b.serve(at(2), &mut stored);
    assert!(b.leads(at(2)), "{:?}", b.sent);
    assert_eq!(b.count("read"), reads);
}

#[test]
fn the_other_candidates_read_from_the_head_start_until_the_release_shows() {
    let (mut a, mut b, mut stored) = leader_and_reader();
    let mut before = stored.clone();
    let claim = stored.lease().claim().expect("held");
    a.release(at(2), Input::Shutdown, &mut stored);
    b.input(at(2), announcement(claim, stored.lease().revision, "c"));
    assert_eq!(b.waiting(), [""; 0]);
    for late in [READ_AFTER, 2 * READ_AFTER, 4 * READ_AFTER] {
        assert_eq!(b.wake(), at(2) + millis(late));
        assert_eq!(b.waiting(), ["read"]);
        // The release is not majority-committed yet.
        b.answer(at(2) + millis(late), &mut before);
    }
    b.run(at(2) + millis(8 * READ_AFTER), &mut stored);
    assert!(b.leads(b.now()), "{:?}", b.sent);
}

#[test]
fn i8_a_false_announcement_changes_nothing() {
    let (mut a, mut b, mut stored) = leader_and_reader();
    let (claim, known) = (
        stored.lease().claim().expect("held"),
        stored.lease().revision,
    );
    let (other, absent) = (Claim::from_bytes([9; 16]), Revision::from_bytes([9; 16]));
    for (claim, revision) in [(claim, known), (other, absent)] {
        b.input(at(2), announcement(claim, revision, "b"));
        assert_eq!(b.waiting(), [""; 0]);
    }
    b.input(at(2), announcement(claim, absent, "b"));
    assert_eq!(b.waiting(), ["acquire"]);
    b.serve(at(2), &mut stored);
    assert_eq!(b.waiting(), [""; 0], "tried once");
    assert_eq!(b.role(), Role::Follower);
    assert_eq!(stored.lease().claim().expect("held"), claim);
    a.run(at(12), &mut stored);
    assert!(a.leads(at(12)));
}

#[test]
fn i8_a_late_announcement_does_not_hide_a_pause_that_was_read() {
    let (mut a, mut b, mut stored) = leader_and_reader();
    let claim = stored.lease().claim().expect("held");
    a.release(at(2), Input::Shutdown, &mut stored);
    stored.lease_mut().paused = true;
    b.observe(at(2), &mut stored);
    b.input(at(2), announcement(claim, stored.lease().revision, "b"));
    assert_eq!(b.count("acquire"), 0, "{:?}", b.sent);
    b.run(at(30), &mut stored);
    assert_eq!(b.count("acquire"), 0, "{:?}", b.sent);
}

#[test]
fn a_barred_candidate_does_not_acquire_an_announced_release() {
    let (mut a, mut b, mut stored) = leader_and_reader();
    let claim = stored.lease().claim().expect("held");
    b.input(at(2), Input::Health { healthy: false });
    a.release(at(2), Input::Shutdown, &mut stored);
    b.input(at(2), announcement(claim, stored.lease().revision, "b"));
    b.run(at(4), &mut stored);
    assert_eq!(b.count("acquire"), 0);
}

#[test]
fn a_release_that_only_the_primary_acknowledged_ends_the_claim() {
    for input in [Input::Shutdown, Input::StepDown] {
        let (mut a, _, mut stored) = leader_and_reader();
        let before = stored.clone();
        let exits = input == Input::Shutdown;
        a.demote(at(2), input);
        assert_eq!(a.waiting(), ["release"]);
        let (call, _) = a.perform(&mut stored);
        a.reply(at(2), call, Outcome::PrimaryOnly);
        assert!(!a.leads(at(2)));
        assert_eq!(a.exited, exits);
        if exits {
            continue;
        }
        assert_eq!(a.wake(), at(2) + millis(READ_AFTER));
        assert_eq!(a.waiting(), ["read"]);
        // The release was rolled back, so the candidate releases the claim again.
        stored = before;
        a.run(at(10), &mut stored);
        assert_eq!(a.role(), Role::Follower);
        assert_eq!((a.count("release"), stored.lease().claim()), (2, None));
    }
}

#[test]
fn a_leader_that_reads_after_a_hint_reserves_the_lease_for_the_new_standby() {
    let (mut a, _, mut stored) = leader_and_reader();
    a.input(at(2), Input::Watch(Watch::HintsOpened));
    a.serve(at(2), &mut stored);
    stored.lease_mut().standby = Some(Standby {
        session: Session::from_bytes([9; 16]),
        identity: identity("b"),
        priority: 0,
    });
    a.input(at(2), Input::Watch(Watch::Hint));
    a.serve(at(2), &mut stored);
    a.release(at(2), Input::Shutdown, &mut stored);
    let reserved_for = stored.lease().reserved_for.as_ref();
    assert_eq!(reserved_for.map(|it| &it.identity), Some(&identity("b")));
}
