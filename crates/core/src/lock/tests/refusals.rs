//! Locks that cannot be acquired now, or never.

use super::harness::{Fixture, millis, options, seconds, slots};
use crate::election::{Claim, ForeignDocument, Token};
use crate::lock::{
    End, Entry, EntryMode, FoundLock, LockDocument, LockInput, LockMode, LockNotice, LockOperation,
    LockOutcome, Observer, Options, QUEUE_MAX, Standing,
};

fn non_blocking(name: &str) -> Options {
    Options {
        non_blocking: true,
        ..options(name, LockMode::Exclusive)
    }
}

#[test]
fn a_non_blocking_contender_gets_the_holders() {
    let mut fixture = Fixture::empty();
    let first = fixture.come_with(non_blocking("first"));
    assert_eq!(fixture.token(first), Some(1));
    let second = fixture.come_with(non_blocking("second"));
    let Some(End::Busy {
        holding: 1,
        waiting: 0,
        ahead,
    }) = fixture.end(second)
    else {
        panic!("{:?}", fixture.standing(second));
    };
    assert_eq!(ahead[0].identity.as_str(), "first");
    assert_eq!(fixture.ones[second].sent, ["try", "read"]);
    assert_eq!(fixture.document().queue, []);
}

#[test]
fn a_non_blocking_contender_evicts_by_earlier_observations() {
    let (mut fixture, [_dead]) = Fixture::exclusive(["dead"]);
    let first = fixture.come_with(non_blocking("first"));
    let observations = fixture.ones[first].contender.observations().clone();
    for (passed, acquired) in [(seconds(23), false), (seconds(1), true)] {
        fixture.now = fixture.now + passed;
        let second = fixture.enter(Options {
            observations: observations.clone(),
            ..non_blocking("second")
        });
        fixture.settle_one(second);
        assert_eq!(fixture.token(second).is_some(), acquired);
    }
}

#[test]
fn another_number_of_slots_ends_with_a_reason_that_a_linearizable_read_confirmed() {
    let mut fixture = Fixture::empty();
    fixture.come("a", slots(3));
    for mode in [slots(2), LockMode::Exclusive] {
        let b = fixture.come("b", mode);
        assert_eq!(fixture.end(b), Some(End::WrongSlots { has: 3 }));
        assert_eq!(fixture.ones[b].sent, ["join", "read", "read"]);
    }
}

#[test]
fn a_document_of_another_kind_ends_it() {
    let mut fixture = Fixture::new();
    let why = ForeignDocument::Lease("a".to_owned());
    fixture.stored = FoundLock::Foreign(why.clone());
    let a = fixture.come("a", LockMode::Exclusive);
    assert_eq!(fixture.end(a), Some(End::Foreign { why }));
}

/// Returns a lock with a holder and a full queue, whose entries are not renewed.
fn full() -> LockDocument {
    let mut fixture = Fixture::empty();
    fixture.come("dead", LockMode::Exclusive);
    let mut lock = fixture.document().clone();
    lock.holders[0].claim = Claim::from_bytes([9; 16]);
    let entry = lock.holders[0].clone();
    let waiting = |n: usize| Entry {
        claim: Claim::from_bytes((n as u128).to_be_bytes()),
        token: None,
        mode: EntryMode::Exclusive,
        ..entry.clone()
    };
    LockDocument {
        queue: (0..QUEUE_MAX).map(waiting).collect(),
        ..lock
    }
}

#[test]
fn a_contender_without_a_place_evicts_expired_entries_of_a_full_queue() {
    let mut fixture = Fixture::new();
    fixture.stored = FoundLock::Lock(full());
    let a = fixture.come("a", LockMode::Exclusive);
    assert_eq!(fixture.notices(a), [&LockNotice::QueueFull]);
    assert_eq!(fixture.standing(a), Standing::Joining);
    fixture.pass(seconds(26));
    assert_eq!(fixture.token(a), Some(2));
    assert_eq!(fixture.document().queue, []);
}

#[test]
fn a_store_rollback_is_confirmed_by_a_linearizable_read_and_waited_for() {
    let (mut fixture, [_a, b]) = Fixture::exclusive(["a", "b"]);
    fixture.stored = FoundLock::Missing;
    fixture.pass_for(seconds(12), &[b]);
    let back = LockNotice::StoreRolledBack {
        seen: Token::new(1).expect("one"),
        found: None,
        wait: seconds(24),
    };
    assert_eq!(fixture.notices(b), [&back]);
    assert_eq!(
        fixture.stored,
        FoundLock::Missing,
        "nobody joins before that"
    );
    fixture.pass_for(seconds(24), &[b]);
    assert_eq!(fixture.token(b), Some(2));
}

#[test]
fn i2_a_restored_document_is_noticed_before_the_first_join() {
    let token = |number| Token::new(number).expect("legal");
    for non_blocking in [false, true] {
        let mut fixture = Fixture::empty();
        // The holder with token 41 is missing from the document, and may still work.
        fixture.stored = FoundLock::Lock(LockDocument {
            token: token(7),
            ..LockDocument::default()
        });
        let a = fixture.come_with(Options {
            token_remembered: token(41),
            non_blocking,
            ..options("a", LockMode::Exclusive)
        });
        let back = LockNotice::StoreRolledBack {
            seen: token(41),
            found: Some(token(7)),
            wait: seconds(24),
        };
        assert_eq!(fixture.notices(a), [&back]);
        fixture.pass_for(seconds(24) - millis(1), &[a]);
        assert_eq!(fixture.token(a), None);
        fixture.pass_for(millis(2), &[a]);
        assert_eq!(fixture.token(a), Some(42));
    }
}

#[test]
fn contenders_that_do_not_wait_long_enough_wait_together() {
    let token = |number| Token::new(number).expect("legal");
    let mut fixture = Fixture::empty();
    fixture.stored = FoundLock::Lock(LockDocument {
        token: token(7),
        ..LockDocument::default()
    });
    let remembering = |went_back| Options {
        token_remembered: token(41),
        went_back,
        ..options("a", LockMode::Exclusive)
    };
    let a = fixture.come_with(remembering(None));
    fixture.pass_for(seconds(10), &[a]);
    fixture.input(a, LockInput::GiveUp);
    let went_back = fixture.ones[a].contender.went_back();
    assert_eq!(went_back.map(|it| it.found), Some(Some(token(7))));
    let b = fixture.come_with(remembering(went_back));
    let again = LockNotice::StoreRolledBack {
        seen: token(41),
        found: Some(token(7)),
        wait: seconds(14),
    };
    assert_eq!(fixture.notices(b), [&again]);
    fixture.pass_for(seconds(14) - millis(1), &[b]);
    assert_eq!(fixture.token(b), None);
    fixture.pass_for(millis(2), &[b]);
    assert_eq!(fixture.token(b), Some(42));
    assert_eq!(fixture.ones[b].contender.went_back(), None);
}

#[test]
fn tokens_that_cannot_grow_end_it() {
    let mut fixture = Fixture::new();
    fixture.stored = FoundLock::Lock(LockDocument {
        token: Token::MAX,
        ..LockDocument::default()
    });
    let a = fixture.come("a", LockMode::Exclusive);
    assert_eq!(fixture.end(a), Some(End::TokensExhausted));
    assert_eq!(fixture.document().holders, []);
}

#[test]
fn an_operator_breaks_expired_entries() {
    let (mut fixture, [a, _b]) = Fixture::exclusive(["a", "b"]);
    let mut observer = Observer::new(seconds(3));
    observer.observe(fixture.document(), fixture.now);
    assert_eq!(observer.next_expiry(), Some(fixture.now + seconds(24)));
    fixture.pass_for(seconds(24), &[a]);
    let Some(operation @ LockOperation::Evict { .. }) = observer.break_expired(fixture.now) else {
        panic!("the operator must see expired entries");
    };
    // The holder has renewed in the meantime, so only the waiter is removed.
    assert!(matches!(
        fixture.land(a, &operation),
        LockOutcome::Applied(_)
    ));
    assert_eq!(fixture.document().holders.len(), 1);
    assert_eq!(fixture.document().queue, []);
    observer.observe(fixture.document(), fixture.now);
    assert_eq!(observer.break_expired(fixture.now), None);
}

#[test]
fn commands_for_each_acquisition_are_few() {
    for (watch_first, most) in [(true, 3.1), (false, 4.1)] {
        let (mut fixture, [first]) = Fixture::exclusive(["a"]);
        let all: Vec<_> = (0..20)
            .map(|_| {
                let one = fixture.come_with(Options {
                    watch_first,
                    ..options("b", LockMode::Exclusive)
                });
                fixture.open_stream(one);
                one
            })
            .collect();
        fixture.release(first);
        for one in &all {
            assert!(fixture.token(*one).is_some());
            fixture.release(*one);
        }
        let commands: usize = all.iter().map(|one| fixture.ones[*one].sent.len()).sum();
        let each = commands as f64 / all.len() as f64;
        assert!(each <= most, "{each} with watch_first {watch_first}");
    }
}
