//! Goal: a lock whose document an operator has edited by hand becomes usable again. A success that
//! the server dated in the future does not cause jobs to be skipped indefinitely.

use std::time::Duration;

use leasehold::election::ResourceName;
use leasehold::lock::WorkKey;
use leasehold::locker::{Lock, LockError};
use mongodb::bson::{DateTime, doc};

use crate::fixture::{LONG, NAME, eventually, read, shared_stage, store, store_options, stored};

fn name() -> ResourceName {
    ResourceName::new(NAME).expect("legal")
}

#[tokio::test]
async fn a_waiter_is_granted_a_lock_whose_holders_were_removed() {
    let stage = shared_stage().await;
    let holder = Lock::new(store_options(&stage, "a"), name());
    let holder = holder.acquire_within(LONG).await;
    let holder = holder.unwrap_or_else(|error| panic!("{error}"));
    let waiter = Lock::new(store_options(&stage, "b"), name());
    let waiter = tokio::spawn(async move { waiter.acquire_within(LONG).await });
    let store = store(&stage);
    eventually("the contender waits", async || {
        read(&store).await.queue.len() == 1
    })
    .await;
    stored(&stage).set(doc! { "holders": [] }).await;
    let granted = waiter.await.expect("no panic");
    assert!(granted.is_ok_and(|guard| guard.authority().is_some()));
    drop(holder);
}

#[tokio::test]
async fn a_success_dated_in_the_future_skips_work_for_at_most_one_period() {
    let stage = shared_stage().await;
    let period = Duration::from_secs(3600);
    let hourly =
        || Lock::new(store_options(&stage, "a"), name()).once_per(period, WorkKey::default());
    let done = hourly().acquire_within(LONG).await;
    let done = done.unwrap_or_else(|error| panic!("{error}"));
    done.succeed().await.expect("the lock was held throughout");
    let dated = async |ahead: Duration| {
        let now = DateTime::now().timestamp_millis();
        let ahead = i64::try_from(ahead.as_millis()).expect("short");
        let success = doc! { "key": "default", "at": DateTime::from_millis(now + ahead) };
        stored(&stage).set(doc! { "successes": [success] }).await;
    };
    dated(period / 2).await;
    match hourly().acquire_within(LONG).await {
        Err(LockError::Skipped { ago }) => assert_eq!(ago, Duration::ZERO),
        other => panic!("{:?}", other.err()),
    }
    dated(period * 10).await;
    let again = hourly().acquire_within(LONG).await;
    assert!(again.is_ok(), "{:?}", again.err());
}
