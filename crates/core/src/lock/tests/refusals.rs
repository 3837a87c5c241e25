//! Locks that cannot be acquired, or not now.

use super::harness::{Scene, options, seconds, slots};
use crate::election::{Claim, Token};
use crate::lock::{
    End, Entry, Found, LockDocument, Mode, Notice, Observer, Operation, Options, Outcome,
    QUEUE_MAX, Standing, Want,
};

fn non_blocking(name: &str) -> Options {
    Options {
        non_blocking: true,
        ..options(name, Want::Exclusive)
    }
}

#[test]
fn who_does_not_wait_is_told_who_holds() {
    let mut scene = Scene::empty();
    let first = scene.come_with(non_blocking("first"));
    assert_eq!(scene.token(first), Some(1));
    let second = scene.come_with(non_blocking("second"));
    let Some(End::Busy {
        holding: 1,
        waiting: 0,
        ahead,
    }) = scene.end(second)
    else {
        panic!("{:?}", scene.standing(second));
    };
    assert_eq!(ahead[0].identity.as_str(), "first");
    assert_eq!(scene.ones[second].sent, ["try", "read"]);
    assert_eq!(scene.document().queue, []);
}

#[test]
fn who_does_not_wait_sweeps_what_an_earlier_one_saw_long_enough_ago() {
    let (mut scene, [_dead]) = Scene::exclusive(["dead"]);
    let first = scene.come_with(non_blocking("first"));
    let observations = scene.ones[first].contender.observations().clone();
    for (passed, acquired) in [(seconds(23), false), (seconds(1), true)] {
        scene.now = scene.now + passed;
        let second = scene.enter(Options {
            observations: observations.clone(),
            ..non_blocking("second")
        });
        scene.settle_one(second);
        assert_eq!(scene.token(second).is_some(), acquired);
    }
}

#[test]
fn another_number_of_slots_ends_with_a_reason_that_a_linearizable_read_confirmed() {
    let mut scene = Scene::empty();
    scene.come("a", slots(3));
    for want in [slots(2), Want::Exclusive] {
        let b = scene.come("b", want);
        assert_eq!(scene.end(b), Some(End::WrongSlots { has: 3 }));
        assert_eq!(scene.ones[b].sent, ["join", "read", "read"]);
    }
}

#[test]
fn a_document_of_another_kind_ends_it() {
    let mut scene = Scene::new();
    scene.stored = Found::Foreign("it is a lease".to_owned());
    let a = scene.come("a", Want::Exclusive);
    let why = "it is a lease".to_owned();
    assert_eq!(scene.end(a), Some(End::Foreign { why }));
}

/// Returns a lock with a full queue behind a holder, none of which will renew.
fn full() -> LockDocument {
    let mut scene = Scene::empty();
    scene.come("dead", Want::Exclusive);
    let mut lock = scene.document().clone();
    lock.holders[0].claim = Claim::from_bytes([9; 16]);
    let entry = lock.holders[0].clone();
    let waiting = |n: usize| Entry {
        claim: Claim::from_bytes((n as u128).to_be_bytes()),
        token: None,
        mode: Mode::Exclusive,
        ..entry.clone()
    };
    LockDocument {
        queue: (0..QUEUE_MAX).map(waiting).collect(),
        ..lock
    }
}

#[test]
fn a_queue_that_is_full_of_the_dead_is_swept_by_who_has_no_place_in_it() {
    let mut scene = Scene::new();
    scene.stored = Found::Lock(full());
    let a = scene.come("a", Want::Exclusive);
    assert_eq!(scene.notices(a), [&Notice::QueueFull]);
    assert_eq!(scene.standing(a), Standing::Joining);
    scene.pass(seconds(26));
    assert_eq!(scene.token(a), Some(2));
    assert_eq!(scene.document().queue, []);
}

#[test]
fn a_store_that_went_back_is_believed_by_a_linearizable_read_and_waited_for() {
    let (mut scene, [_a, b]) = Scene::exclusive(["a", "b"]);
    scene.stored = Found::Missing;
    scene.pass_for(seconds(12), &[b]);
    let back = Notice::StoreRolledBack {
        seen: Token::new(1).expect("one"),
        found: None,
        wait: seconds(24),
    };
    assert_eq!(scene.notices(b), [&back]);
    assert_eq!(scene.stored, Found::Missing, "nobody joins before that");
    scene.pass_for(seconds(24), &[b]);
    assert_eq!(scene.token(b), Some(2));
}

#[test]
fn tokens_that_cannot_grow_end_it() {
    let mut scene = Scene::new();
    scene.stored = Found::Lock(LockDocument {
        token: Token::MAX,
        ..LockDocument::default()
    });
    let a = scene.come("a", Want::Exclusive);
    assert_eq!(scene.end(a), Some(End::TokensExhausted));
    assert_eq!(scene.document().holders, []);
}

#[test]
fn an_operator_breaks_what_was_silent_for_as_long_as_it_declared() {
    let (mut scene, [a, _b]) = Scene::exclusive(["a", "b"]);
    let mut observer = Observer::new(seconds(3));
    observer.observe(scene.document(), scene.now);
    assert_eq!(observer.next_death(), Some(scene.now + seconds(24)));
    scene.pass_for(seconds(24), &[a]);
    let Some(operation @ Operation::Evict { .. }) = observer.break_silent(scene.now) else {
        panic!("they are silent as far as he saw");
    };
    // The holder has renewed since, so only the waiter is removed.
    assert!(matches!(scene.land(a, &operation), Outcome::Applied(_)));
    assert_eq!(scene.document().holders.len(), 1);
    assert_eq!(scene.document().queue, []);
    observer.observe(scene.document(), scene.now);
    assert_eq!(observer.break_silent(scene.now), None);
}

#[test]
fn commands_for_each_acquisition_are_few() {
    for (watch_first, most) in [(true, 3.1), (false, 4.1)] {
        let (mut scene, [first]) = Scene::exclusive(["a"]);
        let all: Vec<_> = (0..20)
            .map(|_| {
                let one = scene.come_with(Options {
                    watch_first,
                    ..options("b", Want::Exclusive)
                });
                scene.open_stream(one);
                one
            })
            .collect();
        scene.release(first);
        for one in &all {
            assert!(scene.token(*one).is_some());
            scene.release(*one);
        }
        let commands: usize = all.iter().map(|one| scene.ones[*one].sent.len()).sum();
        let each = commands as f64 / all.len() as f64;
        assert!(each <= most, "{each} with watch_first {watch_first}");
    }
}
