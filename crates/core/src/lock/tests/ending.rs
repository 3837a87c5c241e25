//! Leaving a lock, losing it, and losing an entry in the queue.

use super::harness::{Fixture, seconds};
use crate::lock::{End, LockInput, LockMode, LockNotice, LockOutcome, Loss, Standing};

#[test]
fn a_lost_lock_is_left_only_when_nothing_runs_under_it() {
    let (mut fixture, [a]) = Fixture::exclusive(["a"]);
    fixture.tick_after(a, seconds(20));
    assert_eq!(fixture.standing(a), Standing::Lost(Loss::Deadline));
    assert!(
        fixture.ones[a].pending.is_empty(),
        "a sends no leave before its work has ended (I6)"
    );
    fixture.input(a, LockInput::Release);
    assert_eq!(fixture.perform(a), "leave");
    assert_eq!(fixture.end(a), Some(End::Lost(Loss::Deadline)));
}

#[test]
fn a_broken_lock_is_noticed_at_the_next_renewal_and_not_left() {
    let (mut fixture, [a]) = Fixture::exclusive(["a"]);
    let everybody = crate::lock::LockOperation::Break {
        claims: vec![fixture.claim(a)],
        seen: crate::election::Token::ZERO,
    };
    fixture.land(a, &everybody);
    fixture.pass(seconds(3));
    assert_eq!(fixture.standing(a), Standing::Lost(Loss::Rejected));
    fixture.input(a, LockInput::Release);
    assert_eq!(fixture.end(a), Some(End::Lost(Loss::Rejected)));
    assert_eq!(fixture.ones[a].sent, ["join", "renew"]);
}

#[test]
fn a_leave_is_repeated_until_it_is_resolved_or_the_entry_has_expired() {
    let (mut fixture, [a]) = Fixture::exclusive(["a"]);
    fixture.input(a, LockInput::Release);
    fixture.answer(a, LockOutcome::Unknown);
    assert_eq!(fixture.standing(a), Standing::Leaving);
    fixture.pass(seconds(2));
    assert_eq!(fixture.end(a), Some(End::Released));
    assert_eq!(fixture.ones[a].sent, ["join", "leave", "leave"]);

    let b = fixture.come("b", LockMode::Exclusive);
    fixture.input(b, LockInput::Release);
    let begun = fixture.now;
    while fixture.end(b).is_none() {
        while !fixture.ones[b].pending.is_empty() {
            fixture.answer(b, LockOutcome::Failed);
        }
        fixture.wake(b);
    }
    assert_eq!(fixture.now, begun + seconds(24));
    assert_eq!(fixture.end(b), Some(End::Unconfirmed));
}

#[test]
fn a_release_that_finds_no_entry_reports_the_loss() {
    let (mut fixture, [a]) = Fixture::exclusive(["a"]);
    let everybody = crate::lock::LockOperation::Break {
        claims: vec![fixture.claim(a)],
        seen: crate::election::Token::ZERO,
    };
    fixture.land(a, &everybody);
    fixture.release(a);
    assert_eq!(fixture.ones[a].sent, ["join", "leave"]);
    assert_eq!(fixture.end(a), Some(End::Lost(Loss::Rejected)));
}

#[test]
fn a_leave_waits_for_its_own_join() {
    let (mut fixture, a) = Fixture::entering("a");
    fixture.input(a, LockInput::GiveUp);
    // A leave that is sent now could overtake the join.
    assert_eq!(fixture.ones[a].sent, ["join"]);
    fixture.settle();
    assert_eq!(fixture.ones[a].sent, ["join", "leave"]);
    assert_eq!(fixture.end(a), Some(End::GaveUp));
    assert_eq!(fixture.document().holders, []);
}

#[test]
fn a_contender_that_never_joined_has_nothing_to_leave() {
    let (mut fixture, a) = Fixture::entering("a");
    fixture.answer(a, LockOutcome::Failed);
    fixture.input(a, LockInput::GiveUp);
    assert_eq!(fixture.end(a), Some(End::GaveUp));
    assert_eq!(fixture.ones[a].sent, ["join"]);
}

#[test]
fn a_contender_that_lost_its_place_rejoins_at_the_end_with_a_new_claim() {
    let (mut fixture, [a, late, c]) = Fixture::exclusive(["a", "late", "c"]);
    let before = fixture.claim(late);
    fixture.pass_for(seconds(40), &[a, c]);
    assert_eq!(fixture.position(c), Some(0));
    assert_eq!(fixture.document().queue.len(), 1);
    fixture.pass(seconds(1));
    assert_ne!(fixture.claim(late), before);
    assert_eq!(fixture.position(late), Some(1));
    assert_eq!(fixture.notices(late), [&LockNotice::PlaceLost]);
}

#[test]
fn after_a_rejection_comes_a_read() {
    let (mut fixture, [a, late, c]) = Fixture::exclusive(["a", "late", "c"]);
    fixture.pass_for(seconds(40), &[a, c]);
    fixture.ones[late].sent.clear();
    fixture.pass(seconds(1));
    assert_eq!(fixture.ones[late].sent, ["renew", "read", "read", "join"]);
}
