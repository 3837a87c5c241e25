//! Evicting entries whose owners no longer renew.

use super::harness::{One, Scene, options, seconds, slots};
use crate::lock::{EntryState, Input, Notice, Operation, Outcome, Want};

#[test]
fn a_grantee_has_its_time_to_confirm_from_its_grant_on_and_no_more() {
    let mut scene = Scene::empty();
    scene.streams = false;
    let [a, frozen, c] = ["a", "frozen", "c"].map(|name| scene.come(name, Want::Exclusive));
    let granted = scene.claim(frozen);
    scene.pass_for(seconds(4), &[a, c]);
    scene.input(a, crate::lock::Input::Release);
    scene.settle_one(a);
    scene.pass_for(seconds(2), &[c]);
    assert_eq!(scene.document().holders[0].claim, granted);
    scene.pass_for(seconds(4), &[c]);
    assert_eq!(scene.token(c), Some(2));
    assert_eq!(scene.document().holders.len(), 1);
}

#[test]
fn a_holder_evicts_an_expired_holder_although_nobody_waits() {
    let (mut scene, [a, _expired]) = Scene::of(["a", "expired"], slots(2));
    scene.pass_for(seconds(23), &[a]);
    assert_eq!(scene.document().holders.len(), 2);
    scene.pass_for(seconds(6), &[a]);
    assert_eq!(scene.document().holders.len(), 1);
    assert_eq!(scene.token(a), Some(1));
}

/// Returns a scene in which `a` and an expired contender hold a slot each and `a` has sent its
/// eviction, with the index of `a`.
fn evicting() -> (Scene, usize) {
    let (mut scene, [a, _expired]) = Scene::of(["a", "expired"], slots(2));
    while scene.ones[a].pending.is_empty() {
        scene.tick_after(a, seconds(1));
        let evicts = |one: &One| matches!(one.pending.front(), Some((_, Operation::Evict { .. })));
        while !scene.ones[a].pending.is_empty() && !evicts(&scene.ones[a]) {
            scene.perform(a);
        }
    }
    (scene, a)
}

fn reported(scene: &Scene, one: usize) -> usize {
    let notices = scene.notices(one);
    for notice in &notices {
        let Notice::Swept { token, state, .. } = notice else {
            panic!("{notice:?}");
        };
        assert_eq!(token.map(|t| t.get()), Some(2));
        assert_eq!(*state, EntryState::Held);
    }
    notices.len()
}

#[test]
fn an_eviction_that_is_answered_late_is_reported_once() {
    let (mut scene, a) = evicting();
    let (call, applied) = scene.land_next(a);
    scene.reply(a, call, Outcome::Unknown);
    assert_eq!(reported(&scene, a), 0, "nothing is known of it yet");
    // Renewals show in between that the entry is gone.
    scene.pass_for(seconds(8), &[a]);
    scene.reply(a, call, applied.clone());
    assert_eq!(reported(&scene, a), 1);
    scene.reply(a, call, applied);
    assert_eq!(reported(&scene, a), 1);
}

#[test]
fn an_eviction_of_unknown_outcome_that_is_rejected_late_is_not_reported() {
    let (mut scene, a) = evicting();
    let (call, _) = scene.take(a);
    scene.reply(a, call, Outcome::Unknown);
    scene.reply(a, call, Outcome::Rejected);
    assert_eq!(reported(&scene, a), 0);
    // The entry is still there, so another eviction follows.
    scene.pass_for(seconds(8), &[a]);
    assert_eq!(reported(&scene, a), 1);
}

#[test]
fn an_eviction_is_reported_after_the_work_has_ended() {
    let (mut scene, a) = evicting();
    let (call, applied) = scene.land_next(a);
    scene.input(a, Input::Release);
    scene.reply(a, call, applied);
    assert_eq!(reported(&scene, a), 1);
}

#[test]
fn a_late_reply_that_shows_later_revisions_evicts_nothing() {
    let mut scene = Scene::empty();
    scene.streams = false;
    let [first, second, b] = ["first", "second", "b"].map(|name| scene.come(name, slots(2)));
    let a = scene.enter(options("a", slots(2)));
    let (call, join) = scene.take(a);
    scene.reply(a, call, Outcome::Unknown);
    scene.input(first, Input::Release);
    scene.settle_one(first);
    // A read shows that b is granted, but not yet that b confirms.
    scene.now = scene.ones[a].contender.next_wakeup().expect("it reads");
    scene.input(a, Input::Tick);
    assert_eq!(scene.perform(a), "read");
    scene.pass_for(seconds(2), &[b]);
    assert!(scene.token(b).is_some());
    scene.input(second, Input::Release);
    scene.settle_one(second);
    let joined = scene.land(a, &join);
    scene.now = scene.now + seconds(4);
    scene.reply(a, call, joined);
    assert!(scene.token(a).is_some());
    scene.settle_one(a);
    assert!(!scene.ones[a].sent.contains(&"sweep"));
}
