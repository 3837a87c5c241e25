//! Work that is skipped if it succeeded recently.

use super::harness::{Fixture, options, seconds};
use crate::lock::{End, FoundLock, LockInput, LockMode, OncePer, Options, SUCCESSES_MAX, WorkKey};

const PERIOD: u64 = 3600;

fn once(name: &str, key: &str) -> Options {
    Options {
        once_per: Some(OncePer {
            period: seconds(PERIOD),
            key: WorkKey::new(key).expect("legal"),
        }),
        ..options(name, LockMode::Exclusive)
    }
}

fn succeed(fixture: &mut Fixture, one: usize) {
    fixture.input(one, LockInput::Succeeded);
    fixture.settle();
}

fn skipped(ago: u64) -> Option<End> {
    Some(End::Skipped { ago: seconds(ago) })
}

#[test]
fn a_recent_success_is_skipped_and_an_older_one_is_not() {
    let mut fixture = Fixture::empty();
    let a = fixture.come_with(once("a", "x"));
    succeed(&mut fixture, a);
    fixture.now = fixture.now + seconds(PERIOD - 1);
    let b = fixture.come_with(once("b", "x"));
    assert_eq!(fixture.end(b), skipped(PERIOD - 1));
    assert_eq!(fixture.document().holders, [], "it leaves");
    fixture.now = fixture.now + seconds(1);
    let c = fixture.come_with(once("c", "x"));
    assert!(fixture.token(c).is_some());
}

/// The clock of the store is set back after a success.
#[test]
fn a_success_that_is_dated_in_the_future_counts_within_one_period() {
    for (ahead, counts) in [
        (1, true),
        (PERIOD - 1, true),
        (PERIOD, false),
        (10 * PERIOD, false),
    ] {
        let mut fixture = Fixture::empty();
        let a = fixture.come_with(once("a", "x"));
        succeed(&mut fixture, a);
        let FoundLock::Lock(lock) = &mut fixture.stored else {
            panic!("a lock");
        };
        lock.successes[0].at.0 += i64::try_from(ahead * 1000).expect("small");
        let b = fixture.come_with(once("b", "x"));
        assert_eq!(fixture.end(b), skipped(0).filter(|_| counts), "{ahead} s");
        assert_eq!(fixture.token(b).is_some(), !counts, "{ahead} s");
    }
}

#[test]
fn only_a_success_counts_and_only_of_the_same_key() {
    let mut fixture = Fixture::empty();
    let failed = fixture.come_with(once("failed", "x"));
    fixture.release(failed);
    assert_eq!(fixture.document().successes, []);
    let a = fixture.come_with(once("a", "x"));
    succeed(&mut fixture, a);
    let other = fixture.come_with(once("other", "y"));
    assert!(fixture.token(other).is_some());
    succeed(&mut fixture, other);
    // Without the option, nothing is skipped and nothing recorded.
    let plain = fixture.come("plain", LockMode::Exclusive);
    succeed(&mut fixture, plain);
    let keys = fixture.document().successes.iter();
    assert_eq!(keys.map(|s| s.key.as_str()).collect::<Vec<_>>(), ["x", "y"]);
}

#[test]
fn a_waiter_skips_when_the_holder_has_succeeded() {
    let mut fixture = Fixture::empty();
    let a = fixture.come_with(once("a", "x"));
    let b = fixture.come_with(once("b", "x"));
    fixture.open_stream(b);
    succeed(&mut fixture, a);
    assert_eq!(fixture.end(b), skipped(0));
    assert!(
        !fixture.ones[b]
            .asked
            .iter()
            .any(|effect| matches!(effect, crate::lock::LockEffect::Acquired { .. }))
    );
}

#[test]
fn a_waiter_that_sees_another_success_does_not_wait_for_the_holder() {
    let mut fixture = Fixture::empty();
    let a = fixture.come_with(once("a", "x"));
    succeed(&mut fixture, a);
    let _holder = fixture.come("holder", LockMode::Exclusive);
    let b = fixture.come_with(once("b", "x"));
    assert_eq!(fixture.end(b), skipped(0));
    assert_eq!(fixture.document().queue, []);
}

#[test]
fn a_success_is_not_claimed_if_an_unanswered_release_may_have_recorded_it() {
    for (input, end) in [
        (LockInput::Succeeded, End::Unconfirmed),
        (LockInput::Release, End::Released),
    ] {
        let mut fixture = Fixture::empty();
        let a = fixture.come_with(once("a", "x"));
        fixture.input(a, input);
        fixture.lose_reply(a);
        fixture.pass(seconds(2));
        assert_eq!(fixture.ones[a].sent, ["join", "leave", "leave"]);
        assert_eq!(fixture.end(a), Some(end));
    }
}

#[test]
fn the_success_of_a_lost_lock_is_not_recorded() {
    let mut fixture = Fixture::empty();
    let a = fixture.come_with(once("a", "x"));
    fixture.tick_after(a, seconds(20));
    succeed(&mut fixture, a);
    assert_eq!(fixture.document().successes, []);
}

#[test]
fn the_oldest_success_makes_room() {
    let mut fixture = Fixture::empty();
    for number in 0..=SUCCESSES_MAX {
        let one = fixture.come_with(once("a", &number.to_string()));
        succeed(&mut fixture, one);
    }
    let successes = &fixture.document().successes;
    assert_eq!(successes.len(), SUCCESSES_MAX);
    assert_eq!(successes[0].key.as_str(), "1");
}

#[test]
fn a_key_has_a_length_and_no_control_characters() {
    for wrong in ["", "a\nb", &"k".repeat(129)] {
        assert!(WorkKey::new(wrong).is_err(), "{wrong:?}");
    }
    assert!(WorkKey::new("k".repeat(128)).is_ok());
}
