//! Goal: a program that drops a future at any await point never leaves an entry in the lock's
//! document, and may drop a handle after the runtime has been dropped. Method: polls each future n
//! times and then drops it, for each n until the future completes.

use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::Duration;

use leasehold::election::ResourceName;
use leasehold::elector::{Elector, ElectorOptions};
use leasehold::lock::{LockOperation, WorkKey};
use leasehold::locker::{Lock, LockGuard, Locker, LockerOptions};
use leasehold_testbed::Stage;
use mongodb::bson::{Document, doc};
use tokio::runtime::Runtime;

use crate::fixture::{LONG, NAME, applied, read, shared_stage, store, store_options, token};

const POLLS_MAX: usize = 200;

fn name() -> ResourceName {
    ResourceName::new(NAME).expect("legal")
}

async fn dropped_after<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = Box::pin(future);
    let mut left = polls;
    poll_fn(move |context| {
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Runs `begin` with one more poll each time, drops the result, and asserts that the lock is free.
/// Returns the number of polls that completed the future.
async fn leaves_nothing<T>(
    stage: &Stage,
    lock: &Lock,
    begin: impl AsyncFn(usize) -> Option<T>,
) -> usize {
    let store = store(stage);
    for polls in 1..POLLS_MAX {
        let done = begin(polls).await;
        let is_done = done.is_some();
        drop(done);
        let idle = tokio::time::timeout(LONG, lock.idle()).await;
        idle.unwrap_or_else(|_| panic!("a contender still runs after {polls} polls and the drop"));
        let document = read(&store).await;
        assert_eq!(
            (document.holders, document.queue),
            (vec![], vec![]),
            "{polls} polls"
        );
        if is_done {
            return polls;
        }
    }
    panic!("the future does not complete within {POLLS_MAX} polls");
}

async fn acquire(lock: &Lock) -> LockGuard {
    let acquired = lock.acquire_within(LONG).await;
    acquired.unwrap_or_else(|error| panic!("{error}"))
}

#[tokio::test]
async fn a_dropped_acquisition_leaves_no_entry() {
    let stage = shared_stage().await;
    let lock = Lock::new(store_options(&stage, "a"), name());
    drop(acquire(&lock).await);
    let polls = leaves_nothing(&stage, &lock, async |polls| {
        dropped_after(polls, lock.acquire()).await
    });
    assert!(
        polls.await > 1,
        "the acquisition was dropped while it waited"
    );
    leaves_nothing(&stage, &lock, async |polls| {
        dropped_after(polls, lock.acquire_within(LONG)).await
    })
    .await;
    leaves_nothing(&stage, &lock, async |polls| {
        dropped_after(polls, lock.try_acquire()).await
    })
    .await;
}

#[tokio::test]
async fn an_acquisition_that_is_dropped_while_it_times_out_leaves_no_entry() {
    let stage = shared_stage().await;
    let holder = acquire(&Lock::new(store_options(&stage, "holder"), name())).await;
    let lock = Lock::new(store_options(&stage, "a"), name());
    let store = store(&stage);
    for polls in 1..POLLS_MAX {
        let wait = Duration::from_millis(50);
        let done = dropped_after(polls, lock.acquire_within(wait)).await;
        lock.idle().await;
        assert_eq!(read(&store).await.queue, [], "{polls} polls");
        if let Some(acquired) = done {
            assert!(acquired.is_err());
            break;
        }
    }
    holder.release().await.expect("the lock was held");
}

#[tokio::test]
async fn a_dropped_release_releases_the_lock() {
    let stage = shared_stage().await;
    let lock = Lock::new(store_options(&stage, "a"), name());
    leaves_nothing(&stage, &lock, async |polls| {
        dropped_after(polls, acquire(&lock).await.release()).await
    })
    .await;
    let often = lock.once_per(Duration::from_millis(1), WorkKey::default());
    leaves_nothing(&stage, &often, async |polls| {
        dropped_after(polls, acquire(&often).await.succeed()).await
    })
    .await;
}

#[tokio::test]
async fn a_dropped_wait_can_be_repeated() {
    let stage = shared_stage().await;
    applied(&store(&stage), LockOperation::Create { seen: token(0) }).await;
    for polls in 1..POLLS_MAX {
        let options = LockerOptions::new(store_options(&stage, "a"), name());
        let mut locker = Locker::start(options, ()).expect("legal options");
        locker.give_up().await;
        let done = dropped_after(polls, locker.wait()).await;
        let end = tokio::time::timeout(LONG, locker.wait())
            .await
            .expect("the contender ends");
        let end = end.expect("no fault");
        if let Some(first) = done {
            assert_eq!(first.expect("no fault"), end);
            break;
        }
    }
    assert_eq!(read(&store(&stage)).await.holders, []);
}

#[tokio::test]
async fn a_dropped_stop_releases_the_lease() {
    let stage = shared_stage().await;
    let leases = stage.set().client().database(stage.database());
    let leases = leases.collection::<Document>(stage.collection());
    let free = doc! { "_id": "dropped-stop", "holder": null };
    for polls in 1..POLLS_MAX {
        let lease = ResourceName::new("dropped-stop").expect("legal");
        let mut options = ElectorOptions::new(store_options(&stage, "a"), lease);
        options.handoff_delay = Duration::ZERO;
        let elector = Elector::start(options);
        let mut status = elector.status();
        while elector.authority().is_none() {
            status.changed().await.expect("the status is published");
        }
        let done = dropped_after(polls, elector.stop()).await;
        crate::fixture::eventually("the lease is free", async || {
            let found = leases.find_one(free.clone()).await;
            found.expect("readable").is_some()
        })
        .await;
        if done.is_some() {
            break;
        }
    }
}

#[test]
fn a_guard_may_outlive_its_runtime() {
    let outer = Runtime::new().expect("a runtime");
    let stage = outer.block_on(shared_stage());
    let inner = Runtime::new().expect("a runtime");
    let lock = Lock::new(store_options(&stage, "a"), name());
    let guard = inner.block_on(acquire(&lock));
    let waiter = inner.block_on(async { dropped_after(1, lock.acquire()).await });
    assert!(waiter.is_none());
    // Waits for the runtime's threads, because the contender could otherwise still send a release.
    inner.shutdown_timeout(LONG);
    // The runtime no longer renews the lock, and the guard reports the loss after the deadline.
    let status = guard.status().borrow().clone();
    assert!(guard.authority().is_some());
    let authority = guard.authority().expect("not yet");
    assert!(status.authority_at(authority.valid_until).is_none());
    drop(guard);
    drop(lock);
    // Nothing removes the entry before it expires.
    let held = outer.block_on(async { read(&store(&stage)).await.holders.len() });
    assert_eq!(held, 1);
}
