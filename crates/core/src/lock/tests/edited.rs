//! Documents that were edited by hand into states that no write produces.

use super::harness::{Fixture, seconds, slots};
use crate::lock::{Entry, FoundLock, LockDocument};

fn edit(fixture: &mut Fixture, change: impl FnOnce(&mut LockDocument)) {
    match &mut fixture.stored {
        FoundLock::Lock(lock) => change(lock),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_waiter_is_granted_a_lock_whose_holders_were_removed() {
    let (mut fixture, [_a, b, c]) = Fixture::exclusive(["a", "b", "c"]);
    edit(&mut fixture, |lock| lock.holders.clear());
    fixture.pass_for(seconds(10), &[b, c]);
    assert_eq!(fixture.token(b), Some(2));
    assert_eq!(fixture.position(c), Some(0), "in order");
}

#[test]
fn as_many_waiters_are_granted_as_there_is_room_for() {
    let (mut fixture, [_a, b, c, d]) = Fixture::of(["a", "b", "c", "d"], slots(1));
    edit(&mut fixture, |lock| {
        lock.holders.clear();
        lock.slots = 2;
    });
    fixture.pass_for(seconds(10), &[b, c, d]);
    let holds = [b, c, d].map(|one| fixture.token(one).is_some());
    assert_eq!(holds, [true, true, false]);
}

fn add_holder_without_slot(fixture: &mut Fixture) {
    edit(fixture, |lock| {
        let waiting = lock.queue.remove(0);
        lock.token = lock.token.next().expect("small");
        lock.holders.push(Entry {
            token: Some(lock.token),
            slot: None,
            ..waiting
        });
    });
}

#[test]
fn a_grantee_for_which_no_slot_is_free_evicts_a_holder_that_has_expired() {
    let (mut fixture, [_a, b]) = Fixture::of(["a", "b"], slots(1));
    add_holder_without_slot(&mut fixture);
    fixture.pass_for(seconds(10), &[b]);
    assert_eq!(fixture.token(b), None);
    fixture.pass_for(seconds(30), &[b]);
    assert!(fixture.token(b).is_some());
}

#[test]
fn a_grantee_for_which_no_slot_is_free_does_not_renew_without_a_pause() {
    let (mut fixture, [_a, b]) = Fixture::of(["a", "b"], slots(1));
    add_holder_without_slot(&mut fixture);
    let until = fixture.now + seconds(10);
    fixture.ones[b].sent.clear();
    while fixture.now < until && fixture.ones[b].sent.len() < 100 {
        match fixture.ones[b].pending.is_empty() {
            true => fixture.wake(b),
            false => {
                fixture.perform(b);
            }
        }
    }
    let sent = fixture.ones[b].sent.len();
    assert!((2..20).contains(&sent), "{sent} calls in 10 s");
    assert_eq!(fixture.token(b), None);
}
