//! Candidates without a change stream, which only poll.

use super::harness::*;
use crate::election::*;

#[test]
fn i10_without_a_stream_a_successor_is_noticed_while_staying_out() {
    let (mut a, mut stored) = leader("a", at(0));
    a.input(at(1), Input::Watch(Watch::Lost));
    a.serve(at(1), &mut stored);
    a.release(at(2), Input::StepDown, &mut stored);
    assert_eq!(stored.lease().holder, None);

    let b = Node::served("b", at(2), &mut stored);
    assert!(b.leads(at(2)));
    // b exits immediately. By then, `a` must have seen the claim of `b`, although the cooldown of
    // `a` has not ended.
    a.run(at(26), &mut stored);
    assert!(!a.leads(at(26)));
    a.run(at(28), &mut stored);
    assert!(a.leads(at(28)));
}

#[test]
fn a_follower_without_a_stream_goes_on_reading() {
    let (_, mut stored) = leader("a", at(0));
    let mut b = Node::served("b", at(0), &mut stored);
    assert_eq!(b.role(), Role::Follower);
    b.run(at(10), &mut stored);
    // The candidate reads once at the start, then once per second with jitter.
    let reads = b.count("read");
    assert!((9..=13).contains(&reads), "{reads} reads");
}

#[test]
fn after_its_own_release_a_candidate_without_a_stream_reads_at_the_pace_of_a_poll() {
    let (mut a, mut stored) = leader("a", at(0));
    a.input(at(1), Input::Watch(Watch::Lost));
    a.serve(at(1), &mut stored);
    let reads = a.count("read");
    a.release(at(2), Input::StepDown, &mut stored);
    assert_eq!(a.count("read"), reads, "the release showed the document");
    let wait = a.wake().since(at(2));
    assert!((millis(800)..=millis(1200)).contains(&wait), "{wait:?}");
}

#[test]
fn nothing_is_read_while_a_release_is_under_way() {
    let (mut a, mut stored) = leader("a", at(0));
    a.input(at(1), Input::Watch(Watch::Lost));
    a.serve(at(1), &mut stored);
    a.demote(at(2), Input::StepDown);
    a.tick(at(4));
    assert_eq!(
        a.waiting(),
        ["release"],
        "the reply to the release shows the document"
    );
}
