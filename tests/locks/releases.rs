//! Goal: a guard never reports success for a release that MongoDB has not confirmed, or for a lock
//! that it lost in the meantime.

use std::sync::Arc;
use std::time::Duration;

use leasehold::election::ResourceName;
use leasehold::lock::{LockOperation, Loss, WorkKey};
use leasehold::locker::{Lock, LockError};

use crate::fixture::{LONG, NAME, applied, read, shared_stage, store, store_options, token};
use crate::library::short;

#[tokio::test]
async fn a_broken_lock_cannot_record_a_success() {
    let stage = shared_stage().await;
    let name = ResourceName::new(NAME).expect("legal");
    let hour = Duration::from_secs(3600);
    let lock = Lock::new(store_options(&stage, "a"), name).once_per(hour, WorkKey::default());
    let guard = lock.acquire_within(LONG).await;
    let guard = guard.unwrap_or_else(|error| panic!("{error}"));
    let store = store(&stage);
    let claim = read(&store).await.holders[0].claim;
    let broken = LockOperation::Break {
        claims: vec![claim],
        seen: token(0),
    };
    applied(&store, broken).await;
    match guard.succeed().await {
        Err(LockError::Lost(Loss::Rejected)) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(read(&store).await.successes, []);
}

#[tokio::test]
async fn an_unconfirmed_success_is_reported_as_unconfirmed() {
    let stage = shared_stage().await;
    let proxy = stage.set().proxy();
    let uri = stage.set().proxied_uri(&proxy);
    let mut options = store_options(&stage, "a");
    options.uri = Arc::new(move || Ok(uri.clone()));
    options.timings = short();
    let name = ResourceName::new(NAME).expect("legal");
    let guard = Lock::new(options, name).acquire_within(LONG).await;
    let guard = guard.unwrap_or_else(|error| panic!("{error}"));
    proxy.stall();
    match guard.succeed().await {
        Err(LockError::Unconfirmed) => {}
        other => panic!("{other:?}"),
    }
}
