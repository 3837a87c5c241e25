//! Goal: if the work never began, the lock is not kept for the minimum hold, however the
//! acquisition ended.

use std::sync::Arc;
use std::time::Duration;

use leasehold::election::ResourceName;
use leasehold::lock::{End, LockOperation, LockStatus, Loss, MinHold, Standing};
use leasehold::locker::{Lock, Locker, LockerOptions};

use crate::fixture::{NAME, applied, eventually, read, shared_stage, store, store_options, token};
use crate::library::short;

fn hour() -> MinHold {
    MinHold::new(Duration::from_secs(3600)).expect("short")
}

fn name() -> ResourceName {
    ResourceName::new(NAME).expect("legal")
}

#[tokio::test]
async fn a_lock_that_is_lost_before_the_work_begins_has_no_minimum_hold() {
    let stage = shared_stage().await;
    let proxy = stage.set().proxy();
    let uri = stage.set().proxied_uri(&proxy);
    let mut options = store_options(&stage, "a");
    options.uri = Arc::new(move || Ok(uri.clone()));
    options.timings = short();
    let mut options = LockerOptions::new(options, name());
    options.min_hold = hour();
    let mut locker = Locker::start(options, ()).expect("legal options");
    let mut status = locker.status();
    let held = |status: &LockStatus| matches!(status.standing, Standing::Held(_));
    status
        .wait_for(held)
        .await
        .expect("the status is published");
    proxy.stall();
    let lost = |status: &LockStatus| matches!(status.standing, Standing::Lost(_));
    status
        .wait_for(lost)
        .await
        .expect("the status is published");
    proxy.resume();
    locker.give_up().await;
    let finished = locker.wait().await.expect("no fault");
    assert_eq!(finished.end, End::Lost(Loss::Deadline));
    assert_eq!(read(&store(&stage)).await.holders, []);
}

#[tokio::test]
async fn an_acquisition_that_is_dropped_at_its_grant_has_no_minimum_hold() {
    let stage = shared_stage().await;
    let lock = Lock::new(store_options(&stage, "a"), name()).min_hold(hour());
    let mut acquiring = Box::pin(lock.acquire());
    let store = store(&stage);
    applied(&store, LockOperation::Create { seen: token(0) }).await;
    // The first poll starts the contender. The test never polls again, so the guard is not
    // returned.
    let polled = futures_util::poll!(&mut acquiring);
    assert!(polled.is_pending());
    eventually("the entry declares its minimum hold", async || {
        let read = read(&store).await;
        read.holders.iter().any(|entry| !entry.min_hold.is_zero())
    })
    .await;
    drop(acquiring);
    eventually("the lock is free", async || {
        read(&store).await.holders.is_empty()
    })
    .await;
}
