//! Goal: a program that embeds a lock learns why it does not hold the lock, and never leaves an
//! entry in the document.

use std::sync::Arc;
use std::time::Duration;

use leasehold::election::ResourceName;
use leasehold::lock::{LockOperation, Loss, WorkKey};
use leasehold::locker::{Lock, LockError, Locker, LockerOptions};
use leasehold_testbed::Stage;

use crate::fixture::{
    LONG, NAME, applied, eventually, read, shared_stage, store, store_options, token,
};

fn name() -> ResourceName {
    ResourceName::new(NAME).expect("legal")
}

fn lock(stage: &Stage, identity: &str) -> Lock {
    Lock::new(store_options(stage, identity), name())
}

#[tokio::test]
async fn a_refused_acquisition_returns_the_reason() {
    let stage = shared_stage().await;
    let mut options = store_options(&stage, "a");
    options.uri = Arc::new(|| Err("the secret is not mounted".to_owned()));
    let acquired = tokio::time::timeout(LONG, Lock::new(options, name()).acquire()).await;
    match acquired.expect("the contender ends") {
        Err(LockError::Refused { failure }) => {
            let why = failure.to_string();
            assert!(why.contains("the secret is not mounted"), "{why}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn once_per_on_a_lock_of_several_holders_is_refused() {
    let stage = shared_stage().await;
    let shared = lock(&stage, "a").shared();
    let hourly = shared.once_per(Duration::from_secs(3600), WorkKey::default());
    let acquired = hourly.acquire_within(LONG).await;
    assert!(
        matches!(acquired, Err(LockError::NotExclusive)),
        "{acquired:?}"
    );
}

#[tokio::test]
async fn the_cleanup_of_a_dropped_acquisition_can_be_awaited() {
    let stage = shared_stage().await;
    let guard = lock(&stage, "a").acquire_within(LONG).await;
    let guard = guard.unwrap_or_else(|error| panic!("{error}"));
    let waiter = lock(&stage, "b");
    let store = store(&stage);
    tokio::select! {
        acquired = waiter.acquire() => panic!("{acquired:?}"),
        _ = eventually("the contender waits", async || read(&store).await.queue.len() == 1) => {}
    }
    waiter.idle().await;
    assert_eq!(read(&store).await.queue, []);
    drop(guard);
}

#[tokio::test]
async fn work_and_a_loss_can_be_awaited_together() {
    let stage = shared_stage().await;
    let guard = lock(&stage, "a").acquire_within(LONG).await;
    let guard = guard.unwrap_or_else(|error| panic!("{error}"));
    let store = store(&stage);
    let claim = read(&store).await.holders[0].claim;
    let broken = LockOperation::Break {
        claims: vec![claim],
        seen: token(0),
    };
    let work = async {
        assert!(guard.authority().is_some());
        applied(&store, broken).await;
        std::future::pending::<()>().await
    };
    let lost = tokio::select! {
        lost = guard.lost() => lost,
        () = work => unreachable!("the work never ends"),
    };
    assert_eq!(lost, Loss::Rejected);
}

#[tokio::test]
async fn waiting_twice_for_the_end_of_a_contender_returns_the_same_result() {
    let stage = shared_stage().await;
    let options = LockerOptions::new(store_options(&stage, "a"), name());
    let mut locker = Locker::start(options, ()).expect("legal options");
    locker.give_up().await;
    let first = locker.wait().await.expect("no fault");
    assert_eq!(locker.wait().await.expect("no fault"), first);
}
