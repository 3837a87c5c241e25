//! Holders and waiters when nothing goes wrong.

use super::harness::{Scene, options, seconds, slots};
use crate::lock::{End, Input, Options, Standing, Want};

#[test]
fn a_free_lock_costs_a_join_and_a_leave() {
    let (mut scene, [a]) = Scene::exclusive(["a"]);
    assert_eq!(scene.token(a), Some(1));
    scene.input(a, Input::Release);
    assert_eq!(scene.token(a), None, "ended when the leave is sent");
    assert_eq!(scene.standing(a), Standing::Leaving);
    scene.settle();
    assert_eq!(scene.end(a), Some(End::Released));
    assert_eq!(scene.ones[a].sent, ["join", "leave"]);
    assert_eq!(scene.document().holders, []);
}

#[test]
fn where_there_is_no_document_one_is_made() {
    let mut scene = Scene::new();
    let a = scene.come("a", Want::Exclusive);
    assert_eq!(scene.token(a), Some(1));
    assert_eq!(scene.ones[a].sent, ["join", "read", "create", "join"]);
}

#[test]
fn a_contended_lock_costs_a_join_a_confirmation_and_a_leave() {
    let (mut scene, [a, b]) = Scene::exclusive(["a", "b"]);
    assert_eq!((scene.token(b), scene.position(b)), (None, Some(0)));
    scene.release(a);
    assert_eq!(scene.token(b), Some(2));
    scene.release(b);
    assert_eq!(scene.ones[b].sent, ["join", "renew", "leave"]);
}

#[test]
fn another_primary_opens_the_stream_of_a_waiter_anew() {
    let mut scene = Scene::empty();
    scene.come("a", Want::Exclusive);
    let b = scene.come("b", Want::Exclusive);
    scene.open_stream(b);
    let before = scene.watches(b);
    scene.input(b, Input::PrimaryChanged);
    assert_eq!(scene.watches(b), before + 1);
    // A stream that is still being opened finds the new primary without help.
    scene.input(b, Input::PrimaryChanged);
    assert_eq!(scene.watches(b), before + 1);
    scene.settle();
    let reads = scene.ones[b].sent.len();
    scene.open_stream(b);
    // The missed changes are read.
    assert_eq!(scene.ones[b].sent[reads..], ["read"]);
}

#[test]
fn an_opened_stream_is_read_after_unless_it_was_open_before_the_join() {
    let (mut scene, [a, late]) = Scene::exclusive(["a", "late"]);
    scene.open_stream(late);
    assert_eq!(scene.ones[late].sent, ["join", "read"]);
    let early = scene.enter(Options {
        watch_first: true,
        ..options("first", Want::Exclusive)
    });
    assert_eq!(scene.ones[early].sent, [""; 0], "it waits for its stream");
    scene.open_stream(early);
    scene.release(a);
    scene.release(late);
    assert_eq!(scene.token(early), Some(3));
    assert_eq!(scene.ones[early].sent, ["join", "renew"]);
}

#[test]
fn readers_hold_together_and_let_a_waiting_writer_go_first() {
    let mut scene = Scene::empty();
    let readers = ["a", "b"].map(|name| scene.come(name, Want::Shared));
    let writer = scene.come("w", Want::Exclusive);
    let later = scene.come("c", Want::Shared);
    assert_eq!(readers.map(|r| scene.token(r)), [Some(1), Some(2)]);
    assert_eq!(scene.position(writer), Some(0));
    assert_eq!(scene.position(later), Some(1));
    for reader in readers {
        scene.release(reader);
    }
    assert_eq!((scene.token(writer), scene.token(later)), (Some(3), None));
    scene.release(writer);
    assert_eq!(scene.token(later), Some(4));
}

#[test]
fn slots_are_held_by_as_many_as_there_are() {
    let (mut scene, all) = Scene::of(["a", "b", "c"], slots(2));
    assert_eq!(all.map(|one| scene.token(one)), [Some(1), Some(2), None]);
    scene.release(all[0]);
    assert_eq!(scene.token(all[2]), Some(3));
}

#[test]
fn holders_and_waiters_live_for_as_long_as_they_renew() {
    let (mut scene, all) = Scene::exclusive(["a", "b", "c"]);
    scene.pass(seconds(600));
    assert_eq!(all.map(|one| scene.position(one)), [None, Some(0), Some(1)]);
    assert_eq!(scene.token(all[0]), Some(1));
}

#[test]
fn the_dead_are_swept_and_the_next_one_acquires() {
    let (mut scene, [_, _, c, d]) = Scene::exclusive(["a", "b", "c", "d"]);
    scene.pass_for(seconds(24 + 8 + 3), &[c, d]);
    assert_eq!((scene.token(c), scene.position(d)), (Some(2), Some(0)));
    assert_eq!(scene.notices(c).len(), 2, "{:?}", scene.notices(c));
}
