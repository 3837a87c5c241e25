//! Goal: a program's lock never has two holders. Contenders get the lock in order of arrival, with
//! growing tokens, and lose it when an operator breaks it. Dropping the guard releases the lock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::election::{ResourceName, TimingSettings, Timings, Token};
use leasehold::lock::{
    LockMode, LockOperation, LockStatus, Loss, MinHold, Slots, Standing, WorkKey, scaled,
};
use leasehold::locker::{Lock, LockError, LockGuard, Locker, LockerOptions};
use leasehold_testbed::Stage;
use mongodb::bson::doc;

use crate::fixture::{
    LONG, NAME, applied, eventually, numbers, read, shared_stage, store, store_options, stored,
    token,
};

/// Timeout of waits that must time out. Long enough to distinguish a wait from an immediate return.
const SHORTLY: Duration = Duration::from_millis(300);

fn lock(stage: &Stage, identity: &str) -> Lock {
    lock_with(stage, identity, Timings::default())
}

fn lock_with(stage: &Stage, identity: &str, timings: Timings) -> Lock {
    let mut options = store_options(stage, identity);
    options.timings = timings;
    Lock::new(options, ResourceName::new(NAME).expect("legal"))
}

async fn acquire(lock: &Lock) -> LockGuard {
    let acquired = lock.acquire_within(LONG).await;
    acquired.unwrap_or_else(|error| panic!("{error}"))
}

fn held_with(guard: &LockGuard) -> Token {
    guard.authority().expect("the lock is held").token
}

fn slots(number: u32) -> Slots {
    Slots::new(number).expect("legal")
}

#[tokio::test]
async fn a_waiter_acquires_with_the_next_token_after_a_release() {
    let stage = shared_stage().await;
    let first = acquire(&lock(&stage, "a")).await;
    let [second, third] = ["b", "c"].map(|identity| {
        let lock = lock(&stage, identity);
        tokio::spawn(async move { acquire(&lock).await })
    });
    let store = store(&stage);
    eventually("both wait", async || read(&store).await.queue.len() == 2).await;
    let before = held_with(&first);
    let released = Instant::now();
    first.release().await.expect("the lock was held throughout");
    let (next, other) = tokio::select! {
        next = second => (next, None),
        next = third => (next, Some(())),
    };
    let next = next.expect("no panic");
    assert!(held_with(&next) > before);
    assert!(
        released.elapsed() < Duration::from_secs(3),
        "the waiter polled instead of being woken: {:?}",
        released.elapsed()
    );
    drop((next, other));
}

#[tokio::test]
async fn a_non_blocking_contender_does_not_wait_for_a_held_lock() {
    let stage = shared_stage().await;
    let guard = acquire(&lock(&stage, "holder")).await;
    match lock(&stage, "b").try_acquire().await {
        Err(LockError::Busy { ahead }) => {
            assert_eq!(ahead.len(), 1);
            assert_eq!(ahead[0].identity.as_str(), "holder");
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("two contenders hold the lock"),
    }
    guard.release().await.expect("the lock was held throughout");
    let tried = lock(&stage, "b").try_acquire().await;
    assert!(tried.is_ok_and(|guard| guard.authority().is_some()));
}

#[tokio::test]
async fn a_contender_whose_wait_times_out_leaves_the_queue() {
    let stage = shared_stage().await;
    let guard = acquire(&lock(&stage, "a")).await;
    let other = lock(&stage, "b");
    loop {
        match other.acquire_within(SHORTLY).await {
            Err(LockError::TimedOut) => break,
            // On a busy machine, even the first answer may take longer than the wait.
            Err(LockError::Unreachable { .. }) => {}
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("two contenders hold the lock"),
        }
    }
    // The acquisition returns only after MongoDB has acknowledged the withdrawal.
    assert_eq!(read(&store(&stage)).await.queue, []);
    assert!(guard.authority().is_some());
}

#[tokio::test]
async fn an_unresponsive_mongodb_is_not_mistaken_for_a_holder() {
    let stage = shared_stage().await;
    let mut nowhere = store_options(&stage, "a");
    nowhere.uri = Arc::new(|| Ok("mongodb://127.0.0.1:1/".to_owned()));
    let lock = Lock::new(nowhere, ResourceName::new(NAME).expect("legal"));
    let acquired = lock.acquire_within(SHORTLY).await;
    match acquired {
        Err(LockError::Unreachable { failure }) => assert!(failure.is_some()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn dropping_a_guard_releases_the_lock() {
    let stage = shared_stage().await;
    drop(acquire(&lock(&stage, "a")).await);
    let store = store(&stage);
    eventually("the lock is free", async || {
        read(&store).await.holders.is_empty()
    })
    .await;
    let history = store.history().await.expect("the history is readable");
    assert_eq!(history[0].reason.as_deref(), Some("released"));
}

#[tokio::test]
async fn readers_share_the_lock_and_a_writer_holds_it_alone() {
    let stage = shared_stage().await;
    let readers = [
        acquire(&lock(&stage, "a").shared()).await,
        acquire(&lock(&stage, "b").shared()).await,
    ];
    assert_ne!(held_with(&readers[0]), held_with(&readers[1]));
    let writer = lock(&stage, "c");
    let writer = tokio::spawn(async move { acquire(&writer).await });
    let store = store(&stage);
    eventually("the contender waits", async || {
        read(&store).await.queue.len() == 1
    })
    .await;
    let late = lock(&stage, "d").shared().try_acquire().await;
    assert!(
        matches!(late, Err(LockError::Busy { .. })),
        "the late reader overtakes the writer"
    );
    for reader in readers {
        reader
            .release()
            .await
            .expect("the lock was held throughout");
    }
    let writer = writer.await.expect("no panic");
    assert_eq!(read(&store).await.holders.len(), 1);
    writer
        .release()
        .await
        .expect("the lock was held throughout");
}

#[tokio::test]
async fn there_are_as_many_holders_as_slots() {
    let stage = shared_stage().await;
    let two = |identity| lock(&stage, identity).slots(slots(2));
    let a = acquire(&two("a")).await;
    let b = acquire(&two("b")).await;
    assert!(matches!(
        two("c").try_acquire().await,
        Err(LockError::Busy { .. })
    ));
    let three = lock(&stage, "d").slots(slots(3)).acquire_within(LONG).await;
    assert!(matches!(three, Err(LockError::WrongSlots { has: 2 })));
    let exclusive = lock(&stage, "e").acquire_within(LONG).await;
    assert!(matches!(exclusive, Err(LockError::WrongSlots { has: 2 })));
    assert_eq!((a.slot(), b.slot()), (Some(0), Some(1)));
    a.release().await.expect("the lock was held throughout");
    let c = acquire(&two("c")).await;
    assert!(b.authority().is_some() && c.authority().is_some());
    assert_eq!(c.slot(), Some(0));
    b.release().await.expect("the lock was held throughout");
    c.release().await.expect("the lock was held throughout");
    let again = acquire(&two("b")).await;
    assert_eq!(again.slot(), Some(1), "the previous slot");
    let alone = acquire(&lock(&shared_stage().await, "f")).await;
    assert_eq!(alone.slot(), None);
}

#[tokio::test]
async fn a_lock_that_an_operator_breaks_is_lost_at_the_next_renewal() {
    let stage = shared_stage().await;
    let guard = acquire(&lock(&stage, "a")).await;
    let store = store(&stage);
    let claim = read(&store).await.holders[0].claim;
    let broken = LockOperation::Break {
        claims: vec![claim],
        seen: token(0),
    };
    applied(&store, broken).await;
    assert_eq!(guard.lost().await, Loss::Rejected);
    assert_eq!(guard.authority(), None);
    match guard.release().await {
        Err(LockError::Lost(Loss::Rejected)) => {}
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn i11_a_lease_with_the_name_of_a_lock_is_reported_and_not_changed() {
    let stage = shared_stage().await;
    let stored = stored(&stage);
    stored.replace(&doc! { "schema": 1, "kind": "lease" }).await;
    let before = stored.bytes().await;
    match lock(&stage, "a").acquire_within(LONG).await {
        Err(LockError::Foreign { why }) => assert!(why.is_of_other_kind(), "{why}"),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("a lease was held as a lock"),
    }
    assert_eq!(stored.bytes().await, before);
}

#[tokio::test]
async fn a_renewing_holder_keeps_the_lock_beyond_its_lease_duration() {
    let stage = shared_stage().await;
    let guard = acquire(&lock_with(&stage, "a", short())).await;
    let other = lock_with(&stage, "b", short());
    let rival = tokio::spawn(async move { other.acquire_within(LONG).await });
    let before = held_with(&guard);
    let end = Instant::now() + short().lease_duration() * 2;
    while Instant::now() < end {
        assert_eq!(held_with(&guard), before);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let standing = guard.status().borrow().standing.clone();
    assert!(matches!(standing, Standing::Held(_)));
    let store = store(&stage);
    let lock = read(&store).await;
    assert_eq!((lock.holders.len(), numbers(&lock.queue).len()), (1, 1));
    guard.release().await.expect("the lock was held throughout");
    let rival = rival.await.expect("no panic");
    assert!(rival.is_ok_and(|guard| held_with(&guard) > before));
}

pub(crate) fn short() -> Timings {
    Timings::new(TimingSettings {
        lease_duration: Duration::from_secs(4),
        renew_deadline: Duration::from_secs(3),
        renew_interval: Duration::from_millis(300),
        retry_interval: Duration::from_millis(100),
        operation_timeout: Duration::from_secs(1),
        loss_grace: Duration::ZERO,
    })
    .unwrap_or_else(|errors| panic!("{errors:?}"))
}

#[tokio::test]
async fn successful_work_is_skipped_within_its_period() {
    let stage = shared_stage().await;
    let hourly = |identity| {
        let hour = Duration::from_secs(3600);
        lock(&stage, identity).once_per(hour, WorkKey::default())
    };
    let failed = acquire(&hourly("a")).await;
    failed
        .release()
        .await
        .expect("the lock was held throughout");
    let done = acquire(&hourly("b")).await;
    done.succeed().await.expect("the lock was held throughout");
    match hourly("c").acquire_within(LONG).await {
        Err(LockError::Skipped { ago }) => assert!(ago < LONG, "{ago:?}"),
        other => panic!("{:?}", other.err()),
    }
    let other = lock(&stage, "d").try_acquire().await;
    assert!(other.is_ok(), "the lock is free");
}

#[tokio::test]
async fn a_minimum_hold_outlives_its_guard() {
    for drops in [false, true] {
        let stage = shared_stage().await;
        let hour = MinHold::new(Duration::from_secs(3600)).expect("short");
        let guard = acquire(&lock(&stage, "a").min_hold(hour)).await;
        match drops {
            true => drop(guard),
            false => guard.release().await.expect("the lock was held throughout"),
        }
        let store = store(&stage);
        eventually("the entry's work has ended", async || {
            read(&store)
                .await
                .holders
                .iter()
                .any(|entry| entry.work_done)
        })
        .await;
        match lock(&stage, "b").try_acquire().await {
            Err(LockError::Busy { ahead }) => assert!(ahead[0].work_done, "{ahead:?}"),
            other => panic!("{:?}", other.err()),
        }
    }
}

/// Acquires one of two slots and never releases the slot, like a killed process.
async fn abandoned_slot(stage: &Stage, timings: Timings) {
    let mut store = store_options(stage, "killed");
    store.timings = timings;
    let name = ResourceName::new(NAME).expect("legal");
    let mut options = LockerOptions::new(store, name);
    options.mode = LockMode::Slot(slots(2));
    let locker = Locker::start(options, ()).expect("legal options");
    let held = |status: &LockStatus| matches!(status.standing, Standing::Held(_));
    locker
        .status()
        .wait_for(held)
        .await
        .expect("the status is published");
    locker.abandon();
}

#[tokio::test]
async fn frequent_short_holds_free_the_slot_of_a_killed_holder() {
    let stage = shared_stage().await;
    let lease = Duration::from_secs(4);
    let timings = scaled(&Timings::default(), lease).expect("the defaults scale");
    abandoned_slot(&stage, timings).await;
    let lock = lock_with(&stage, "a", timings).slots(slots(2));
    let store = store(&stage);
    let since = Instant::now();
    eventually("the killed holder's slot is free", async || {
        let guard = acquire(&lock).await;
        guard.release().await.expect("the lock was held throughout");
        read(&store).await.holders.is_empty()
    })
    .await;
    assert!(since.elapsed() < 2 * lease, "{:?}", since.elapsed());
}
