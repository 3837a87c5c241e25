//! Unknown outcomes give no authority, and late ones none past their deadline.

use super::harness::{Scene, millis, options, seconds};
use crate::election::Token;
use crate::lock::{Found, Hint, Input, LockDocument, Operation, Outcome, Standing, Want};

fn joined(operation: &Operation) -> &crate::lock::Joining {
    match operation {
        Operation::Join { entry, .. } => entry,
        other => panic!("{other:?} is no join"),
    }
}

#[test]
fn an_unknown_join_is_looked_for_and_then_repeated_with_its_claim() {
    let (mut scene, a) = Scene::entering("a");
    let first = scene.answer(a, Outcome::Unknown);
    assert_eq!(scene.token(a), None);
    scene.pass(seconds(2));
    assert_eq!(scene.ones[a].sent, ["join", "read", "join"]);
    let again = &scene.document().holders[0];
    assert_eq!(again.claim, joined(&first).claim);
    assert_ne!(again.revision, joined(&first).revision);
    assert_eq!(scene.token(a), Some(1));
}

#[test]
fn a_join_that_landed_unseen_is_renewed_and_leads_from_that() {
    let (mut scene, a) = Scene::entering("a");
    scene.lose_reply(a);
    let sent = scene.now;
    scene.pass(seconds(2));
    assert_eq!(scene.ones[a].sent, ["join", "read", "renew"]);
    let until = scene.valid_until(a).expect("it holds");
    // The deadline counts from the renewal, not from the join.
    assert!(until > sent + seconds(18));
}

#[test]
fn a_late_answer_counts_from_when_it_was_sent_and_not_after_its_deadline() {
    for (late, holds) in [(seconds(17), true), (seconds(18), false)] {
        let (mut scene, a) = Scene::entering("a");
        let sent = scene.now;
        let (call, join) = scene.take(a);
        scene.reply(a, call, Outcome::Unknown);
        let outcome = scene.land(a, &join);
        scene.now = sent + late;
        scene.reply(a, call, outcome);
        assert_eq!(scene.valid_until(a), holds.then_some(sent + seconds(18)));
    }
}

#[test]
fn a_hint_makes_a_grantee_confirm_and_grants_nothing() {
    let (mut scene, [a, b]) = Scene::exclusive(["a", "b"]);
    scene.input(b, Input::Hint(Hint::Granted));
    assert_eq!(scene.token(b), None);
    scene.settle();
    // It renews once, because the hint was a false one.
    assert_eq!(scene.ones[b].sent, ["join", "renew"]);
    assert_eq!((scene.token(a), scene.token(b)), (Some(1), None));
}

#[test]
fn a_grant_that_only_a_read_shows_is_confirmed() {
    let mut scene = Scene::empty();
    scene.streams = false;
    let [a, b] = ["a", "b"].map(|name| scene.come(name, Want::Exclusive));
    scene.release(a);
    assert_eq!(scene.document().holders[0].token, None);
    scene.pass(millis(1_300));
    assert_eq!(scene.token(b), Some(2));
    assert_eq!(scene.ones[b].sent, ["join", "read", "renew"]);
}

#[test]
fn an_unknown_renewal_extends_nothing_and_is_repeated() {
    let (mut scene, [a]) = Scene::exclusive(["a"]);
    let until = scene.valid_until(a);
    scene.tick_after(a, seconds(3));
    scene.answer(a, Outcome::Unknown);
    assert_eq!(scene.valid_until(a), until);
    scene.pass(seconds(2));
    assert!(scene.valid_until(a) > until);
}

#[test]
fn at_its_deadline_a_lock_is_lost_whatever_comes_then() {
    let (mut scene, [a]) = Scene::exclusive(["a"]);
    scene.tick_after(a, seconds(3));
    let (call, outcome) = scene.land_next(a);
    scene.now = scene.now + seconds(16);
    scene.reply(a, call, outcome);
    assert!(matches!(scene.standing(a), Standing::Lost(_)));
    assert_eq!(scene.token(a), None);
}

#[test]
fn a_token_that_is_lowered_before_a_confirmation_is_no_reason_to_hold_or_to_abort() {
    let (mut scene, a) = Scene::entering("a");
    scene.lose_reply(a);
    assert_eq!(scene.document().token.get(), 1);
    scene.stored = Found::Lock(LockDocument {
        token: Token::ZERO,
        ..scene.document().clone()
    });
    scene.pass(seconds(2));
    // The next contender would have this token too.
    assert_eq!(scene.token(a), None);
    scene.pass(seconds(60));
    assert_eq!(scene.token(a), Some(2));
}

#[test]
fn the_late_rejection_of_an_overtaken_renewal_means_nothing() {
    let (mut scene, [a]) = Scene::exclusive(["a"]);
    scene.tick_after(a, seconds(3));
    let (first, overtaken) = scene.take(a);
    scene.input(a, Input::PrimaryChanged);
    let (second, applied) = scene.land_next(a);
    let rejected = scene.land(a, &overtaken);
    assert_eq!(rejected, Outcome::Rejected);
    scene.reply(a, first, rejected);
    assert_eq!(scene.token(a), Some(1), "the newest renewal decides");
    let sent = scene.now;
    scene.reply(a, second, applied);
    assert_eq!(scene.valid_until(a), Some(sent + seconds(18)));
}

#[test]
fn a_read_from_before_the_claim_was_known_does_not_prove_it_absent() {
    let mut scene = Scene::empty();
    scene.come("a", Want::Exclusive);
    let b = scene.enter(options("b", Want::Exclusive));
    let claim = scene.claim(b);
    let (join_call, join) = scene.take(b);
    scene.reply(b, join_call, Outcome::Unknown);
    scene.wake(b);
    let (read_call, before) = scene.land_next(b);
    let joined = scene.land(b, &join);
    scene.reply(b, join_call, joined);
    assert_eq!(scene.position(b), Some(0));
    scene.reply(b, read_call, before);
    scene.settle();
    assert_eq!((scene.claim(b), scene.position(b)), (claim, Some(0)));
    assert_eq!(scene.notices(b).len(), 0, "{:?}", scene.notices(b));
}
