//! Grants by another contender: provisional authority, its confirmation and its end.

use std::time::Duration;

use super::harness::{Fixture, millis, seconds};
use crate::election::Token;
use crate::lock::{
    FoundLock, Grant, Hint, LockInput, LockMode, LockOperation, LockOutcome, Loss, Standing,
};

/// The provisional authority at the default timings: an eighth of the renew deadline of 18 s.
const PROVISIONAL: Duration = Duration::from_millis(2_250);

/// Returns a fixture with the holder `a` and the waiter `b`. Each test delivers their change events
/// itself.
fn contended() -> (Fixture, [usize; 2]) {
    let mut fixture = Fixture::empty();
    fixture.streams = false;
    let ones = ["a", "b"].map(|name| fixture.come(name, LockMode::Exclusive));
    (fixture, ones)
}

fn grant(fixture: &Fixture) -> Grant {
    let holders = &fixture.document().holders;
    holders[0].unconfirmed_grant().expect("a grant")
}

fn deliver(fixture: &mut Fixture, one: usize, grant: Grant) {
    fixture.input(one, LockInput::Hint(Hint::Granted(Some(grant))));
}

#[test]
fn provisional_authority_counts_from_the_send_of_the_granted_revision() {
    let (mut fixture, [a, b]) = contended();
    let joined = fixture.now;
    fixture.now = joined + millis(300);
    fixture.input(a, LockInput::Release);
    fixture.settle_one(a);
    let grant = grant(&fixture);
    fixture.now = fixture.now + millis(400);
    deliver(&mut fixture, b, grant);
    assert_eq!(fixture.token(b), Some(2));
    assert_eq!(fixture.valid_until(b), Some(joined + PROVISIONAL));
    assert!(fixture.ones[b].contender.status().provisional);
    assert_eq!(fixture.ones[b].sent, ["join"]);
}

#[test]
fn a_confirmation_that_is_acknowledged_gives_authority_from_its_own_send() {
    let (mut fixture, [a, b]) = Fixture::exclusive(["a", "b"]);
    fixture.release(a);
    fixture.tick_after(b, millis(250));
    let confirmed = fixture.now;
    fixture.settle();
    assert_eq!(fixture.valid_until(b), Some(confirmed + seconds(18)));
    assert_eq!(
        fixture.token(b),
        Some(2),
        "the confirmation keeps the grant's token"
    );
    assert!(!fixture.ones[b].contender.status().provisional);
    assert_eq!(fixture.ones[b].sent, ["join", "renew"]);
    fixture.pass(seconds(60));
    assert_eq!(fixture.token(b), Some(2));
}

#[test]
fn a_grant_that_is_seen_late_is_confirmed_first() {
    let (mut fixture, [a, b]) = contended();
    fixture.input(a, LockInput::Release);
    fixture.settle_one(a);
    let grant = grant(&fixture);
    fixture.now = fixture.now + millis(1_200);
    deliver(&mut fixture, b, grant);
    assert_eq!(fixture.token(b), None);
    let confirmed = fixture.now;
    fixture.settle();
    assert_eq!(fixture.valid_until(b), Some(confirmed + seconds(18)));
    assert_eq!(fixture.ones[b].sent[..2], ["join", "renew"]);
}

#[test]
fn a_grant_of_a_revision_that_was_never_sent_is_confirmed_first() {
    let (mut fixture, [a, b]) = contended();
    fixture.input(a, LockInput::Release);
    fixture.settle_one(a);
    let other = Grant {
        revision: crate::election::Revision::from_bytes([9; 16]),
        ..grant(&fixture)
    };
    deliver(&mut fixture, b, other);
    assert_eq!(fixture.token(b), None);
    assert_eq!(fixture.ones[b].sent, ["join", "renew"]);
}

#[test]
fn a_token_that_was_known_before_is_replaced_by_the_confirmation() {
    let mut fixture = Fixture::empty();
    fixture.streams = false;
    let a = fixture.come("a", LockMode::Exclusive);
    let set_token = |fixture: &mut Fixture, number| {
        if let FoundLock::Lock(lock) = &mut fixture.stored {
            lock.token = Token::new(number).expect("legal");
        }
    };
    set_token(&mut fixture, 40);
    let b = fixture.come("b", LockMode::Exclusive);
    // A restored document does not show the higher tokens that were used.
    set_token(&mut fixture, 7);
    fixture.input(a, LockInput::Release);
    fixture.settle_one(a);
    let grant = grant(&fixture);
    assert!(grant.token <= Token::new(40).expect("legal"));
    deliver(&mut fixture, b, grant);
    assert_eq!(fixture.token(b), None);
    fixture.settle();
    assert_eq!(fixture.token(b), Some(41));
}

#[test]
fn replies_that_are_older_than_the_grant_end_nothing() {
    let (mut fixture, [a, b]) = contended();
    // b's renewal is applied before the grant, and its reply arrives after the grant's event.
    fixture.pass_for(seconds(6), &[a]);
    fixture.tick_after(b, millis(2_000));
    let (call, outcome) = loop {
        let (call, operation) = fixture.take(b);
        let outcome = fixture.land(b, &operation);
        if matches!(operation, LockOperation::Renew { .. }) {
            break (call, outcome);
        }
        fixture.reply(b, call, outcome);
    };
    fixture.input(a, LockInput::Release);
    fixture.settle_one(a);
    let grant = grant(&fixture);
    deliver(&mut fixture, b, grant);
    assert_eq!(fixture.token(b), Some(2));
    fixture.reply(b, call, outcome);
    assert_eq!(fixture.token(b), Some(2));
    // The confirmation does not wait for the reply to an earlier renewal.
    fixture.tick_after(b, millis(250));
    fixture.settle_one(b);
    assert!(!fixture.ones[b].contender.status().provisional);
}

#[test]
fn without_a_confirmation_the_lock_is_lost_at_the_end_of_the_provisional_authority() {
    let (mut fixture, [a, b]) = Fixture::exclusive(["a", "b"]);
    let joined = fixture.now;
    fixture.release(a);
    while fixture.now < joined + PROVISIONAL {
        fixture.wake(b);
        while !fixture.ones[b].pending.is_empty() {
            fixture.answer(b, LockOutcome::Failed);
        }
    }
    assert_eq!(fixture.standing(b), Standing::Lost(Loss::Deadline));
    let renewals = fixture.ones[b].sent.len() - 1;
    assert!((2..=10).contains(&renewals), "{renewals}");
}

#[test]
fn an_eviction_before_the_confirmation_is_noticed_by_it() {
    let (mut fixture, [a, b]) = Fixture::exclusive(["a", "b"]);
    fixture.release(a);
    let entry = fixture.document().holders[0].clone();
    let evict = LockOperation::Break {
        claims: vec![entry.claim],
        seen: Token::ZERO,
    };
    fixture.land(a, &evict);
    fixture.tick_after(b, millis(250));
    fixture.settle_one(b);
    assert_eq!(fixture.standing(b), Standing::Lost(Loss::Rejected));
}
