//! Entries that stay for a minimum hold after the acquisition.

use super::harness::{Fixture, options, seconds};
use crate::lock::{
    Ending, EntryState, LockInput, LockMode, LockNotice, LockOperation, LockOutcome, Loss, MinHold,
    Standing,
};

const LEAST: u64 = 55;

/// Adds a contender with a minimum hold of 55 s.
fn keeper(fixture: &mut Fixture, name: &str) -> usize {
    let min_hold = MinHold::new(seconds(LEAST)).expect("short");
    fixture.come_with(crate::lock::Options {
        min_hold,
        ..options(name, LockMode::Exclusive)
    })
}

#[test]
fn others_wait_for_the_least_time_of_work_that_ended_early() {
    let mut fixture = Fixture::empty();
    let began = fixture.now;
    let a = keeper(&mut fixture, "a");
    fixture.pass(seconds(1));
    fixture.release(a);
    assert_eq!(fixture.ones[a].sent, ["join", "renew", "keep"]);
    assert!(
        fixture.end(a).is_some(),
        "a does not wait for the rest of its minimum hold"
    );
    assert_eq!(fixture.document().holders[0].min_hold, seconds(LEAST - 1));
    let b = fixture.come("b", LockMode::Exclusive);
    while fixture.token(b).is_none() {
        fixture.pass_for(seconds(1), &[b]);
    }
    assert_eq!(fixture.now, began + seconds(LEAST));
    let [LockNotice::Evicted { state, .. }] = fixture.notices(b)[..] else {
        panic!("{:?}", fixture.notices(b));
    };
    assert_eq!(*state, EntryState::Kept);
}

#[test]
fn the_place_of_a_killed_process_is_kept_beyond_its_lease() {
    let mut fixture = Fixture::empty();
    let began = fixture.now;
    let _killed = keeper(&mut fixture, "killed");
    let b = fixture.come("b", LockMode::Exclusive);
    fixture.pass_for(seconds(LEAST - 1), &[b]);
    assert_eq!(fixture.token(b), None);
    while fixture.token(b).is_none() {
        fixture.pass_for(seconds(1), &[b]);
    }
    assert_eq!(fixture.now, began + seconds(LEAST));
}

#[test]
fn work_that_takes_longer_leaves_as_usual() {
    let mut fixture = Fixture::empty();
    let a = keeper(&mut fixture, "a");
    fixture.pass(seconds(LEAST));
    fixture.release(a);
    assert_eq!(fixture.ones[a].sent.last(), Some(&"leave"));
    assert_eq!(fixture.document().holders, []);
}

#[test]
fn a_newcomer_waits_only_for_what_the_newest_renewal_left() {
    let mut fixture = Fixture::empty();
    let began = fixture.now;
    let a = keeper(&mut fixture, "a");
    fixture.pass(seconds(50));
    fixture.release(a);
    let b = fixture.come("b", LockMode::Exclusive);
    fixture.pass_for(seconds(LEAST - 50), &[b]);
    assert_eq!(fixture.now, began + seconds(LEAST));
    assert!(fixture.token(b).is_some());
}

#[test]
fn a_waiter_that_gives_up_keeps_nothing() {
    let (mut fixture, [_a]) = Fixture::exclusive(["a"]);
    let b = keeper(&mut fixture, "b");
    fixture.input(b, LockInput::GiveUp);
    fixture.settle();
    assert_eq!(fixture.ones[b].sent.last(), Some(&"leave"));
    assert_eq!(fixture.document().queue, []);
}

#[test]
fn a_job_that_never_ran_keeps_nothing_although_its_lock_is_lost() {
    let mut fixture = Fixture::empty();
    let a = keeper(&mut fixture, "a");
    fixture.tick_after(a, seconds(20));
    assert_eq!(fixture.standing(a), Standing::Lost(Loss::Deadline));
    fixture.input(a, LockInput::GiveUp);
    fixture.settle();
    assert_eq!(fixture.ones[a].sent.last(), Some(&"leave"));
    assert_eq!(fixture.document().holders, []);
}

#[test]
fn a_request_to_give_up_after_the_work_ended_keeps_its_place() {
    let mut fixture = Fixture::empty();
    let a = keeper(&mut fixture, "a");
    fixture.input(a, LockInput::Release);
    fixture.answer(a, LockOutcome::Unknown);
    fixture.input(a, LockInput::GiveUp);
    fixture.pass(seconds(2));
    assert_eq!(fixture.ones[a].sent, ["join", "renew", "keep", "keep"]);
    assert!(fixture.document().holders[0].work_done);
}

#[test]
fn a_keep_is_repeated_until_it_is_resolved_and_a_late_one_undoes_nothing() {
    let mut fixture = Fixture::empty();
    let a = keeper(&mut fixture, "a");
    fixture.input(a, LockInput::Release);
    let late = fixture.answer(a, LockOutcome::Unknown);
    fixture.pass(seconds(2));
    assert_eq!(fixture.ones[a].sent, ["join", "renew", "keep", "keep"]);
    assert!(fixture.end(a).is_some());
    let before = fixture.stored.clone();
    assert_eq!(fixture.land(a, &late), LockOutcome::Rejected);
    assert_eq!(fixture.stored, before);
}

#[test]
fn the_next_contender_of_the_machine_knows_the_place_that_the_last_one_kept() {
    let mut fixture = Fixture::empty();
    let began = fixture.now;
    let a = keeper(&mut fixture, "a");
    fixture.release(a);
    let observations = fixture.ones[a].contender.observations().clone();
    fixture.now = began + seconds(LEAST);
    let again = fixture.come_with(crate::lock::Options {
        non_blocking: true,
        observations,
        ..options("a", LockMode::Exclusive)
    });
    assert!(
        fixture.token(again).is_some(),
        "the wait for the entry must not restart"
    );
}

#[test]
fn the_end_of_a_kept_place_is_a_release_in_the_history() {
    use crate::reference::lock::{self as reference, By};
    let mut fixture = Fixture::empty();
    let a = keeper(&mut fixture, "a");
    fixture.release(a);
    let kept = &fixture.document().holders[0];
    let seen = crate::lock::EntryVersion {
        claim: kept.claim,
        revision: kept.revision,
    };
    let identity = kept.owner.identity.clone();
    let by = By {
        identity: &identity,
        at: crate::election::WallMillis(0),
        store_now: fixture.store_now(),
    };
    let ended = |ending| {
        let sweep = LockOperation::Evict {
            entries: vec![seen],
            me: None,
            ending,
            seen: crate::election::Token::ZERO,
        };
        let mut stored = fixture.stored.clone();
        let performed = reference::apply(&mut stored, by, &sweep);
        performed.ended.first().map(|ended| ended.ending)
    };
    assert_eq!(ended(Ending::Expired), Some(Ending::Released));
    assert_eq!(ended(Ending::Broken), Some(Ending::Broken));
}

#[test]
fn a_lock_granted_to_a_killed_waiter_is_not_kept() {
    let (mut fixture, [a]) = Fixture::exclusive(["a"]);
    let _killed = keeper(&mut fixture, "killed");
    let c = fixture.come("c", LockMode::Exclusive);
    fixture.input(a, LockInput::Release);
    fixture.settle_one(a);
    fixture.pass_for(seconds(8), &[c]);
    assert!(
        fixture.token(c).is_some(),
        "expires as soon as any other granted entry"
    );
}

#[test]
fn a_holder_that_gives_up_before_its_work_keeps_nothing() {
    let mut fixture = Fixture::empty();
    let a = keeper(&mut fixture, "a");
    fixture.input(a, LockInput::GiveUp);
    fixture.settle();
    assert_eq!(fixture.document().holders, []);
    let dropped = keeper(&mut fixture, "dropped");
    fixture.input(dropped, LockInput::Abandoned);
    fixture.settle();
    assert_eq!(fixture.document().holders.len(), 1);
}

#[test]
fn a_place_that_was_kept_does_not_stop_another_number_of_slots() {
    let mut fixture = Fixture::empty();
    let a = keeper(&mut fixture, "a");
    fixture.release(a);
    fixture.now = fixture.now + seconds(LEAST);
    let observations = fixture.ones[a].contender.observations().clone();
    let slots = fixture.come_with(crate::lock::Options {
        observations,
        ..options("b", super::harness::slots(3))
    });
    assert!(fixture.token(slots).is_some());
}

#[test]
fn a_leave_is_repeated_for_as_long_as_a_declared_place_would_stay() {
    let mut fixture = Fixture::empty();
    let a = keeper(&mut fixture, "a");
    let begun = fixture.now;
    fixture.input(a, LockInput::GiveUp);
    while fixture.end(a).is_none() {
        while !fixture.ones[a].pending.is_empty() {
            fixture.answer(a, LockOutcome::Failed);
        }
        fixture.wake(a);
    }
    assert_eq!(fixture.now, begun + seconds(LEAST));
    // A waiter has not declared a minimum hold, so its entry expires with its lease.
    let waiter = keeper(&mut fixture, "waiter");
    let begun = fixture.now;
    fixture.input(waiter, LockInput::GiveUp);
    while fixture.end(waiter).is_none() {
        while !fixture.ones[waiter].pending.is_empty() {
            fixture.answer(waiter, LockOutcome::Failed);
        }
        fixture.wake(waiter);
    }
    assert_eq!(fixture.now, begun + seconds(24));
}
