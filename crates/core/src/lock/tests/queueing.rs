//! Holders and waiters when nothing goes wrong.

use super::harness::{Fixture, millis, options, seconds, slots};
use crate::lock::{End, Hint, LockInput, LockMode, Options, Standing};

#[test]
fn a_free_lock_costs_a_join_and_a_leave() {
    let (mut fixture, [a]) = Fixture::exclusive(["a"]);
    assert_eq!(fixture.token(a), Some(1));
    fixture.input(a, LockInput::Release);
    assert_eq!(
        fixture.token(a),
        None,
        "authority ends when the leave is sent"
    );
    assert_eq!(fixture.standing(a), Standing::Leaving);
    fixture.settle();
    assert_eq!(fixture.end(a), Some(End::Released));
    assert_eq!(fixture.ones[a].sent, ["join", "leave"]);
    assert_eq!(fixture.document().holders, []);
}

#[test]
fn where_there_is_no_document_one_is_made() {
    let mut fixture = Fixture::new();
    let a = fixture.come("a", LockMode::Exclusive);
    assert_eq!(fixture.token(a), Some(1));
    assert_eq!(fixture.ones[a].sent, ["join", "read", "create", "join"]);
}

#[test]
fn a_contended_lock_costs_a_join_and_a_leave_if_the_work_is_short() {
    let (mut fixture, [a, b]) = Fixture::exclusive(["a", "b"]);
    assert_eq!((fixture.token(b), fixture.position(b)), (None, Some(0)));
    fixture.release(a);
    assert_eq!(fixture.token(b), Some(2));
    fixture.release(b);
    assert_eq!(fixture.ones[b].sent, ["join", "leave"]);
}

#[test]
fn another_primary_opens_the_stream_of_a_waiter_anew() {
    let mut fixture = Fixture::empty();
    fixture.come("a", LockMode::Exclusive);
    let b = fixture.come("b", LockMode::Exclusive);
    fixture.open_stream(b);
    let before = fixture.watches(b);
    fixture.input(b, LockInput::PrimaryChanged);
    assert_eq!(fixture.watches(b), before + 1);
    // A stream that is still being opened finds the new primary without another request.
    fixture.input(b, LockInput::PrimaryChanged);
    assert_eq!(fixture.watches(b), before + 1);
    fixture.settle();
    let reads = fixture.ones[b].sent.len();
    fixture.open_stream(b);
    // A read shows the changes that the stream missed.
    assert_eq!(fixture.ones[b].sent[reads..], ["read"]);
}

#[test]
fn an_opened_stream_is_read_after_unless_it_was_open_before_the_join() {
    let (mut fixture, [a, late]) = Fixture::exclusive(["a", "late"]);
    fixture.open_stream(late);
    assert_eq!(fixture.ones[late].sent, ["join", "read"]);
    let early = fixture.enter(Options {
        watch_first: true,
        ..options("first", LockMode::Exclusive)
    });
    assert_eq!(
        fixture.ones[early].sent, [""; 0],
        "the contender waits for its stream"
    );
    fixture.open_stream(early);
    fixture.release(a);
    fixture.release(late);
    assert_eq!(fixture.token(early), Some(3));
    assert_eq!(fixture.ones[early].sent, ["join"]);
}

#[test]
fn a_stream_since_the_join_needs_no_read() {
    let (mut fixture, [a, b]) = Fixture::exclusive(["a", "b"]);
    let since_join = true;
    fixture.input(b, LockInput::Hint(Hint::Opened { since_join }));
    fixture.settle();
    fixture.pass_for(millis(1_000), &[b]);
    assert_eq!(fixture.ones[b].sent, ["join"]);
    fixture.release(a);
    assert_eq!(fixture.token(b), Some(2));
    fixture.release(b);
    assert_eq!(fixture.ones[b].sent, ["join", "leave"]);
    assert_eq!(fixture.end(b), Some(End::Released));
}

#[test]
fn readers_hold_together_and_let_a_waiting_writer_go_first() {
    let mut fixture = Fixture::empty();
    let readers = ["a", "b"].map(|name| fixture.come(name, LockMode::Shared));
    let writer = fixture.come("w", LockMode::Exclusive);
    let later = fixture.come("c", LockMode::Shared);
    assert_eq!(readers.map(|r| fixture.token(r)), [Some(1), Some(2)]);
    assert_eq!(fixture.position(writer), Some(0));
    assert_eq!(fixture.position(later), Some(1));
    for reader in readers {
        fixture.release(reader);
    }
    assert_eq!(
        (fixture.token(writer), fixture.token(later)),
        (Some(3), None)
    );
    fixture.release(writer);
    assert_eq!(fixture.token(later), Some(4));
}

#[test]
fn slots_are_held_by_as_many_as_there_are() {
    let (mut fixture, all) = Fixture::of(["a", "b", "c"], slots(2));
    assert_eq!(all.map(|one| fixture.token(one)), [Some(1), Some(2), None]);
    fixture.release(all[0]);
    assert_eq!(fixture.token(all[2]), Some(3));
}

#[test]
fn holders_and_waiters_live_for_as_long_as_they_renew() {
    let (mut fixture, all) = Fixture::exclusive(["a", "b", "c"]);
    fixture.pass(seconds(600));
    assert_eq!(
        all.map(|one| fixture.position(one)),
        [None, Some(0), Some(1)]
    );
    assert_eq!(fixture.token(all[0]), Some(1));
}

#[test]
fn expired_entries_are_evicted_and_the_next_contender_acquires() {
    let (mut fixture, [_, _, c, d]) = Fixture::exclusive(["a", "b", "c", "d"]);
    fixture.pass_for(seconds(24 + 8 + 3), &[c, d]);
    assert_eq!((fixture.token(c), fixture.position(d)), (Some(2), Some(0)));
    assert_eq!(fixture.notices(c).len(), 2, "{:?}", fixture.notices(c));
}
