//! Leaving a lock, losing it, and losing a place in the queue.

use super::harness::{Scene, seconds};
use crate::lock::{End, Input, Loss, Notice, Outcome, Standing, Want};

#[test]
fn a_lost_lock_is_left_only_when_nothing_runs_under_it() {
    let (mut scene, [a]) = Scene::exclusive(["a"]);
    scene.tick_after(a, seconds(20));
    assert_eq!(scene.standing(a), Standing::Lost(Loss::Deadline));
    assert!(scene.ones[a].pending.is_empty(), "no leave yet (I6)");
    scene.input(a, Input::Release);
    assert_eq!(scene.perform(a), "leave");
    assert_eq!(scene.end(a), Some(End::Lost(Loss::Deadline)));
}

#[test]
fn a_broken_lock_is_noticed_at_the_next_renewal_and_not_left() {
    let (mut scene, [a]) = Scene::exclusive(["a"]);
    let everybody = crate::lock::Operation::Break {
        claims: vec![scene.claim(a)],
        seen: crate::election::Token::ZERO,
    };
    scene.land(a, &everybody);
    scene.pass(seconds(3));
    assert_eq!(scene.standing(a), Standing::Lost(Loss::Rejected));
    scene.input(a, Input::Release);
    assert_eq!(scene.end(a), Some(End::Lost(Loss::Rejected)));
    assert_eq!(scene.ones[a].sent, ["join", "renew"]);
}

#[test]
fn a_leave_is_repeated_until_it_is_resolved_or_the_entry_is_dead_to_all() {
    let (mut scene, [a]) = Scene::exclusive(["a"]);
    scene.input(a, Input::Release);
    scene.answer(a, Outcome::Unknown);
    assert_eq!(scene.standing(a), Standing::Leaving);
    scene.pass(seconds(2));
    assert_eq!(scene.end(a), Some(End::Released));
    assert_eq!(scene.ones[a].sent, ["join", "leave", "leave"]);

    let b = scene.come("b", Want::Exclusive);
    scene.input(b, Input::Release);
    let begun = scene.now;
    while scene.end(b).is_none() {
        while !scene.ones[b].pending.is_empty() {
            scene.answer(b, Outcome::Failed);
        }
        scene.wake(b);
    }
    assert_eq!(scene.now, begun + seconds(24));
}

#[test]
fn a_leave_waits_for_its_own_join() {
    let (mut scene, a) = Scene::entering("a");
    scene.input(a, Input::GiveUp);
    // A leave now could overtake it.
    assert_eq!(scene.ones[a].sent, ["join"]);
    scene.settle();
    assert_eq!(scene.ones[a].sent, ["join", "leave"]);
    assert_eq!(scene.end(a), Some(End::GaveUp));
    assert_eq!(scene.document().holders, []);
}

#[test]
fn a_contender_that_never_joined_has_nothing_to_leave() {
    let (mut scene, a) = Scene::entering("a");
    scene.answer(a, Outcome::Failed);
    scene.input(a, Input::GiveUp);
    assert_eq!(scene.end(a), Some(End::GaveUp));
    assert_eq!(scene.ones[a].sent, ["join"]);
}

#[test]
fn who_lost_its_place_joins_again_at_the_tail_with_a_new_claim() {
    let (mut scene, [a, late, c]) = Scene::exclusive(["a", "late", "c"]);
    let before = scene.claim(late);
    scene.pass_for(seconds(40), &[a, c]);
    assert_eq!(scene.position(c), Some(0));
    assert_eq!(scene.document().queue.len(), 1);
    scene.pass(seconds(1));
    assert_ne!(scene.claim(late), before);
    assert_eq!(scene.position(late), Some(1));
    assert_eq!(scene.notices(late), [&Notice::PlaceLost]);
}

#[test]
fn after_a_rejection_comes_a_read() {
    let (mut scene, [a, late, c]) = Scene::exclusive(["a", "late", "c"]);
    scene.pass_for(seconds(40), &[a, c]);
    scene.ones[late].sent.clear();
    scene.pass(seconds(1));
    assert_eq!(scene.ones[late].sent, ["renew", "read", "read", "join"]);
}
