//! A call whose outcome is unknown gives no authority. A late reply gives no authority past its
//! deadline.

use std::time::Duration;

use super::harness::{Fixture, millis, options, seconds};
use crate::election::Token;
use crate::lock::{
    FoundLock, Hint, LockDocument, LockInput, LockMode, LockOperation, LockOutcome, Standing,
};

fn joined(operation: &LockOperation) -> &crate::lock::NewEntry {
    match operation {
        LockOperation::Join { entry, .. } => entry,
        other => panic!("{other:?} is no join"),
    }
}

#[test]
fn an_unknown_join_is_looked_for_and_then_repeated_with_its_claim() {
    let (mut fixture, a) = Fixture::entering("a");
    let first = fixture.answer(a, LockOutcome::Unknown);
    assert_eq!(fixture.token(a), None);
    fixture.pass(seconds(2));
    assert_eq!(fixture.ones[a].sent, ["join", "read", "join"]);
    let again = &fixture.document().holders[0];
    assert_eq!(again.claim, joined(&first).claim);
    assert_ne!(again.revision, joined(&first).revision);
    assert_eq!(fixture.token(a), Some(1));
}

#[test]
fn a_join_that_landed_unseen_is_renewed_and_leads_from_that() {
    let (mut fixture, a) = Fixture::entering("a");
    fixture.lose_reply(a);
    let sent = fixture.now;
    fixture.pass(seconds(2));
    assert_eq!(fixture.ones[a].sent, ["join", "read", "renew"]);
    let until = fixture.valid_until(a).expect("a holds the lock");
    // Authority is counted from when the renewal was sent, not from when the join was sent.
    assert!(until > sent + seconds(18));
}

#[test]
fn a_late_answer_counts_from_when_it_was_sent_and_not_after_its_deadline() {
    for (late, holds) in [(seconds(17), true), (seconds(18), false)] {
        let (mut fixture, a) = Fixture::entering("a");
        let sent = fixture.now;
        let (call, join) = fixture.take(a);
        fixture.reply(a, call, LockOutcome::Unknown);
        let outcome = fixture.land(a, &join);
        fixture.now = sent + late;
        fixture.reply(a, call, outcome);
        assert_eq!(fixture.valid_until(a), holds.then_some(sent + seconds(18)));
    }
}

#[test]
fn a_hint_makes_a_grantee_confirm_and_grants_nothing() {
    let (mut fixture, [a, b]) = Fixture::exclusive(["a", "b"]);
    fixture.input(b, LockInput::Hint(Hint::Granted(None)));
    assert_eq!(fixture.token(b), None);
    fixture.settle();
    // b renews only once, because the hint was false.
    assert_eq!(fixture.ones[b].sent, ["join", "renew"]);
    assert_eq!((fixture.token(a), fixture.token(b)), (Some(1), None));
}

#[test]
fn a_grant_that_a_read_shows_gives_authority_too() {
    let mut fixture = Fixture::empty();
    fixture.streams = false;
    let [a, b] = ["a", "b"].map(|name| fixture.come(name, LockMode::Exclusive));
    fixture.release(a);
    assert!(!fixture.document().holders[0].is_confirmed());
    let joined = fixture.now;
    fixture.pass(millis(1_100));
    assert_eq!(fixture.valid_until(b), Some(joined + millis(2_250)));
    assert_eq!(fixture.ones[b].sent, ["join", "read"]);
    fixture.pass(millis(300));
    assert_eq!(fixture.token(b), Some(2));
    assert_eq!(fixture.ones[b].sent, ["join", "read", "renew"]);
}

#[test]
fn an_unknown_renewal_extends_nothing_and_is_repeated() {
    let (mut fixture, [a]) = Fixture::exclusive(["a"]);
    let until = fixture.valid_until(a);
    fixture.tick_after(a, seconds(3));
    fixture.answer(a, LockOutcome::Unknown);
    assert_eq!(fixture.valid_until(a), until);
    fixture.pass(seconds(2));
    assert!(fixture.valid_until(a) > until);
}

#[test]
fn at_its_deadline_a_lock_is_lost_whatever_comes_then() {
    let (mut fixture, [a]) = Fixture::exclusive(["a"]);
    fixture.tick_after(a, seconds(3));
    let (call, outcome) = fixture.land_next(a);
    fixture.now = fixture.now + seconds(16);
    fixture.reply(a, call, outcome);
    assert!(matches!(fixture.standing(a), Standing::Lost(_)));
    assert_eq!(fixture.token(a), None);
}

#[test]
fn a_token_lowered_before_a_confirmation_neither_grants_the_lock_nor_aborts() {
    let (mut fixture, a) = Fixture::entering("a");
    fixture.lose_reply(a);
    assert_eq!(fixture.document().token.get(), 1);
    fixture.stored = FoundLock::Lock(LockDocument {
        token: Token::ZERO,
        ..fixture.document().clone()
    });
    fixture.pass(seconds(2));
    // If `a` held the lock, the next contender would get the token of `a` again.
    assert_eq!(fixture.token(a), None);
    fixture.pass(seconds(60));
    assert_eq!(fixture.token(a), Some(2));
}

#[test]
fn the_late_rejection_of_an_overtaken_renewal_means_nothing() {
    let (mut fixture, [a]) = Fixture::exclusive(["a"]);
    fixture.tick_after(a, seconds(3));
    let (first, overtaken) = fixture.take(a);
    fixture.input(a, LockInput::PrimaryChanged);
    let (second, applied) = fixture.land_next(a);
    let rejected = fixture.land(a, &overtaken);
    assert_eq!(rejected, LockOutcome::Rejected);
    fixture.reply(a, first, rejected);
    assert_eq!(fixture.token(a), Some(1), "only the newest renewal counts");
    let sent = fixture.now;
    fixture.reply(a, second, applied);
    assert_eq!(fixture.valid_until(a), Some(sent + seconds(18)));
}

#[test]
fn a_read_from_before_the_claim_was_known_does_not_prove_it_absent() {
    let mut fixture = Fixture::empty();
    fixture.come("a", LockMode::Exclusive);
    let b = fixture.enter(options("b", LockMode::Exclusive));
    let claim = fixture.claim(b);
    let (join_call, join) = fixture.take(b);
    fixture.reply(b, join_call, LockOutcome::Unknown);
    fixture.wake(b);
    let (read_call, before) = fixture.land_next(b);
    let joined = fixture.land(b, &join);
    fixture.reply(b, join_call, joined);
    assert_eq!(fixture.position(b), Some(0));
    fixture.reply(b, read_call, before);
    fixture.settle();
    assert_eq!((fixture.claim(b), fixture.position(b)), (claim, Some(0)));
    assert_eq!(fixture.notices(b).len(), 0, "{:?}", fixture.notices(b));
}

#[test]
fn a_late_failure_does_not_postpone_the_renewal() {
    let (mut fixture, [a]) = Fixture::exclusive(["a"]);
    fixture.wake(a);
    let (call, operation) = fixture.take(a);
    assert_eq!(operation.as_str(), "renew");
    fixture.reply(a, call, LockOutcome::Unknown);
    let retry = fixture.ones[a].contender.next_wakeup();
    fixture.now = fixture.now + Duration::from_millis(500);
    fixture.reply(a, call, LockOutcome::Unknown);
    assert_eq!(fixture.ones[a].contender.next_wakeup(), retry);
}
