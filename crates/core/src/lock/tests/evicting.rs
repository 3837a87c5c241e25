//! Evicting entries whose owners no longer renew.

use super::harness::{Fixture, One, options, seconds, slots};
use crate::election::Token;
use crate::lock::{
    EntryState, LockEffect, LockInput, LockMode, LockNotice, LockOperation, LockOutcome,
};

#[test]
fn a_grantee_has_its_time_to_confirm_from_its_grant_on_and_no_more() {
    let mut fixture = Fixture::empty();
    fixture.streams = false;
    let [a, frozen, c] = ["a", "frozen", "c"].map(|name| fixture.come(name, LockMode::Exclusive));
    let granted = fixture.claim(frozen);
    fixture.pass_for(seconds(4), &[a, c]);
    fixture.input(a, crate::lock::LockInput::Release);
    fixture.settle_one(a);
    fixture.pass_for(seconds(2), &[c]);
    assert_eq!(fixture.document().holders[0].claim, granted);
    fixture.pass_for(seconds(4), &[c]);
    assert_eq!(fixture.token(c), Some(3));
    assert_eq!(fixture.document().holders.len(), 1);
}

#[test]
fn a_waiter_that_lost_its_place_follows_its_new_claim() {
    let (mut fixture, [a, b]) = Fixture::exclusive(["a", "b"]);
    fixture.open_stream(b);
    let before = fixture.claim(b);
    let evict = LockOperation::Break {
        claims: vec![before],
        seen: Token::ZERO,
    };
    fixture.land(a, &evict);
    fixture.pass_for(seconds(9), &[b]);
    let claim = fixture.claim(b);
    assert_ne!(claim, before);
    let watched = fixture.ones[b]
        .asked
        .iter()
        .rev()
        .find_map(|effect| match effect {
            LockEffect::Watch(claim) => Some(*claim),
            _ => None,
        });
    assert_eq!(watched, Some(Some(claim)));
}

#[test]
fn a_holder_evicts_an_expired_holder_without_waiters() {
    let (mut fixture, [a, _expired]) = Fixture::of(["a", "expired"], slots(2));
    fixture.pass_for(seconds(23), &[a]);
    assert_eq!(fixture.document().holders.len(), 2);
    fixture.pass_for(seconds(6), &[a]);
    assert_eq!(fixture.document().holders.len(), 1);
    assert_eq!(fixture.token(a), Some(1));
}

/// Returns a fixture and the index of `a`. Both `a` and an expired contender hold a slot, and `a`
/// has sent an eviction of the expired contender.
fn evicting() -> (Fixture, usize) {
    let (mut fixture, [a, _expired]) = Fixture::of(["a", "expired"], slots(2));
    while fixture.ones[a].pending.is_empty() {
        fixture.tick_after(a, seconds(1));
        let evicts =
            |one: &One| matches!(one.pending.front(), Some((_, LockOperation::Evict { .. })));
        while !fixture.ones[a].pending.is_empty() && !evicts(&fixture.ones[a]) {
            fixture.perform(a);
        }
    }
    (fixture, a)
}

fn reported(fixture: &Fixture, one: usize) -> usize {
    let notices = fixture.notices(one);
    for notice in &notices {
        let LockNotice::Evicted { token, state, .. } = notice else {
            panic!("{notice:?}");
        };
        assert_eq!(token.map(|t| t.get()), Some(2));
        assert_eq!(*state, EntryState::Held);
    }
    notices.len()
}

#[test]
fn an_eviction_that_is_answered_late_is_reported_once() {
    let (mut fixture, a) = evicting();
    let (call, applied) = fixture.land_next(a);
    fixture.reply(a, call, LockOutcome::Unknown);
    assert_eq!(reported(&fixture, a), 0, "the outcome is not known yet");
    // Before the late reply, renewals show that the entry is gone.
    fixture.pass_for(seconds(8), &[a]);
    fixture.reply(a, call, applied.clone());
    assert_eq!(reported(&fixture, a), 1);
    fixture.reply(a, call, applied);
    assert_eq!(reported(&fixture, a), 1);
}

#[test]
fn an_eviction_of_unknown_outcome_that_is_rejected_late_is_not_reported() {
    let (mut fixture, a) = evicting();
    let (call, _) = fixture.take(a);
    fixture.reply(a, call, LockOutcome::Unknown);
    fixture.reply(a, call, LockOutcome::Rejected);
    assert_eq!(reported(&fixture, a), 0);
    // The entry is still there, so another eviction follows.
    fixture.pass_for(seconds(8), &[a]);
    assert_eq!(reported(&fixture, a), 1);
}

#[test]
fn an_eviction_is_reported_after_the_work_has_ended() {
    let (mut fixture, a) = evicting();
    let (call, applied) = fixture.land_next(a);
    fixture.input(a, LockInput::Release);
    fixture.reply(a, call, applied);
    assert_eq!(reported(&fixture, a), 1);
}

#[test]
fn a_late_reply_that_shows_later_revisions_evicts_nothing() {
    let mut fixture = Fixture::empty();
    fixture.streams = false;
    let [first, second, b] = ["first", "second", "b"].map(|name| fixture.come(name, slots(2)));
    let a = fixture.enter(options("a", slots(2)));
    let (call, join) = fixture.take(a);
    fixture.reply(a, call, LockOutcome::Unknown);
    fixture.input(first, LockInput::Release);
    fixture.settle_one(first);
    // The read shows the grant to b, but not b's later confirmation.
    fixture.now = fixture.ones[a]
        .contender
        .next_wakeup()
        .expect("a waits for its next read");
    fixture.input(a, LockInput::Tick);
    assert_eq!(fixture.perform(a), "read");
    fixture.pass_for(seconds(2), &[b]);
    assert!(fixture.token(b).is_some());
    fixture.input(second, LockInput::Release);
    fixture.settle_one(second);
    let joined = fixture.land(a, &join);
    fixture.now = fixture.now + seconds(4);
    fixture.reply(a, call, joined);
    assert!(fixture.token(a).is_some());
    fixture.settle_one(a);
    assert!(!fixture.ones[a].sent.contains(&"sweep"));
}
