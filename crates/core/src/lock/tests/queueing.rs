//! Holders and waiters when nothing goes wrong.

use super::harness::{Scene, options, seconds, slots};
use crate::lock::{End, Hint, Input, Standing, Want};

#[test]
fn a_free_lock_costs_a_join_and_a_leave() {
    let mut scene = Scene::empty();
    let a = scene.come("a", Want::Exclusive);
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
    let mut scene = Scene::empty();
    let a = scene.come("a", Want::Exclusive);
    let b = scene.come("b", Want::Exclusive);
    assert_eq!((scene.token(b), scene.position(b)), (None, Some(0)));
    scene.input(a, Input::Release);
    scene.settle();
    assert_eq!(scene.token(b), Some(2));
    scene.input(b, Input::Release);
    scene.settle();
    assert_eq!(scene.ones[b].sent, ["join", "renew", "leave"]);
}

#[test]
fn another_primary_opens_the_stream_of_a_waiter_anew() {
    let mut scene = Scene::empty();
    scene.come("a", Want::Exclusive);
    let b = scene.come("b", Want::Exclusive);
    scene.input(b, Input::Hint(Hint::Opened));
    scene.settle();
    let before = scene.watches(b);
    scene.input(b, Input::PrimaryChanged);
    assert_eq!(scene.watches(b), before + 1);
    // A stream that is still being opened finds the new primary without help.
    scene.input(b, Input::PrimaryChanged);
    assert_eq!(scene.watches(b), before + 1);
    scene.settle();
    let reads = scene.ones[b].sent.len();
    scene.input(b, Input::Hint(Hint::Opened));
    scene.settle();
    assert_eq!(
        scene.ones[b].sent[reads..],
        ["read"],
        "what was missed is read"
    );
}

#[test]
fn an_opened_stream_is_read_after_unless_it_was_open_before_the_join() {
    let mut scene = Scene::empty();
    let a = scene.come("a", Want::Exclusive);
    let late = scene.come("late", Want::Exclusive);
    scene.input(late, Input::Hint(Hint::Opened));
    scene.settle();
    assert_eq!(scene.ones[late].sent, ["join", "read"]);
    let mut first = options("first", Want::Exclusive);
    first.watch_first = true;
    let early = scene.enter(first);
    assert_eq!(scene.ones[early].sent, [""; 0], "it waits for its stream");
    scene.input(early, Input::Hint(Hint::Opened));
    scene.settle();
    scene.input(a, Input::Release);
    scene.settle();
    scene.input(late, Input::Release);
    scene.settle();
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
    assert_eq!(
        (scene.position(writer), scene.position(later)),
        (Some(0), Some(1))
    );
    for reader in readers {
        scene.input(reader, Input::Release);
        scene.settle();
    }
    assert_eq!((scene.token(writer), scene.token(later)), (Some(3), None));
    scene.input(writer, Input::Release);
    scene.settle();
    assert_eq!(scene.token(later), Some(4));
}

#[test]
fn slots_are_held_by_as_many_as_there_are() {
    let mut scene = Scene::empty();
    let all = ["a", "b", "c"].map(|name| scene.come(name, slots(2)));
    assert_eq!(all.map(|one| scene.token(one)), [Some(1), Some(2), None]);
    scene.input(all[0], Input::Release);
    scene.settle();
    assert_eq!(scene.token(all[2]), Some(3));
}

#[test]
fn holders_and_waiters_live_for_as_long_as_they_renew() {
    let mut scene = Scene::empty();
    let all = ["a", "b", "c"].map(|name| scene.come(name, Want::Exclusive));
    scene.pass(seconds(600));
    assert_eq!(all.map(|one| scene.position(one)), [None, Some(0), Some(1)]);
    assert_eq!(scene.token(all[0]), Some(1));
}

#[test]
fn the_dead_are_swept_and_the_next_one_acquires() {
    let mut scene = Scene::empty();
    let _dead = ["a", "b"].map(|name| scene.come(name, Want::Exclusive));
    let c = scene.come("c", Want::Exclusive);
    let d = scene.come("d", Want::Exclusive);
    scene.pass_for(seconds(24 + 8 + 3), &[c, d]);
    assert_eq!((scene.token(c), scene.position(d)), (Some(2), Some(0)));
    assert_eq!(scene.notices(c).len(), 2, "{:?}", scene.notices(c));
}
