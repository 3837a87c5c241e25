//! Goal: a waiter learns immediately that it was granted the lock or has become the head of the
//! queue. Other contenders' renewals never wake the waiter.

use std::time::Duration;

use leasehold::lock::{EntryMode, Hint, LockOperation};
use leasehold::store::mongo::lock::{ClaimHint, MongoLockStore};
use leasehold_testbed::Stage;

use crate::fixture::{
    NAME, applied, claim, eventually, granted, join, leave, next_hint, renew, revision,
    shared_stage, store, store_options, store_over, stored, sweep, token,
};

struct Waiter {
    _store: MongoLockStore,
    news: tokio::sync::mpsc::Receiver<leasehold::store::StoreEvent<ClaimHint>>,
    watching: tokio::task::JoinHandle<()>,
}

impl Waiter {
    async fn of(stage: &Stage, number: u16) -> Self {
        let (store, mut news) = store_over(store_options(stage, "waiter"), NAME);
        let watching = tokio::spawn(store.clone().watch(claim(number)));
        let since_join = false;
        assert_eq!(next_hint(&mut news).await, Hint::Opened { since_join });
        Self {
            _store: store,
            news,
            watching,
        }
    }

    async fn expect(&mut self, hint: Hint) {
        assert_eq!(next_hint(&mut self.news).await, hint);
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

fn renew_again(number: u16, last: u16) -> LockOperation {
    LockOperation::Renew {
        claim: claim(number),
        revision: revision(last + 1),
        mine: vec![revision(last)],
        seen: token(0),
        min_hold: None,
    }
}

#[tokio::test]
async fn the_stream_reports_only_grants_and_new_heads_of_the_queue() {
    let stage = shared_stage().await;
    let store = store(&stage);
    applied(&store, LockOperation::Create { seen: token(0) }).await;
    for number in [1, 2, 3, 4] {
        applied(&store, join(number, EntryMode::Exclusive)).await;
    }
    let mut third = Waiter::of(&stage, 3).await;
    // The stream must not report renewals, nor entries that join or leave behind entry 3.
    for (number, new) in [(1, 10), (2, 20), (3, 30), (4, 40)] {
        applied(&store, renew(number, new)).await;
    }
    applied(&store, join(5, EntryMode::Exclusive)).await;
    applied(&store, leave(4)).await;
    // Events arrive in the order of the writes, so an unwanted event would arrive first.
    applied(&store, leave(1)).await;
    third.expect(Hint::Next).await;
    applied(&store, renew_again(2, 20)).await;
    applied(&store, leave(2)).await;
    third.expect(granted(3, 30)).await;
    let lock = applied(&store, renew_again(3, 30)).await;
    assert_eq!(lock.holders[0].claim, claim(3));
}

#[tokio::test]
async fn readers_are_woken_together_by_one_write() {
    let stage = shared_stage().await;
    let store = store(&stage);
    applied(&store, LockOperation::Create { seen: token(0) }).await;
    applied(&store, join(1, EntryMode::Exclusive)).await;
    for number in [2, 3, 4] {
        applied(&store, join(number, EntryMode::Shared)).await;
    }
    let mut readers = Vec::new();
    for number in [2, 3, 4] {
        readers.push(Waiter::of(&stage, number).await);
    }
    applied(&store, sweep(&[1], None)).await;
    for (reader, number) in readers.iter_mut().zip([2, 3, 4]) {
        // The exclusive holder had token 1, and the readers get tokens in the order of the queue.
        reader.expect(granted(i64::from(number), number)).await;
    }
}

#[tokio::test]
async fn a_replaced_or_deleted_document_is_reported() {
    let stage = shared_stage().await;
    let (store, stored) = (store(&stage), stored(&stage));
    applied(&store, LockOperation::Create { seen: token(0) }).await;
    let mut waiter = Waiter::of(&stage, 1).await;
    let document = stored.get().await;
    let mut other = document.clone();
    other.insert("restored", true);
    stored.replace(&other).await;
    waiter.expect(Hint::Changed).await;
    stored.delete().await;
    waiter.expect(Hint::Changed).await;
    stored.replace(&document).await;
    waiter.expect(Hint::Changed).await;
    stored.drop_collection().await;
    // When the collection is dropped, the stream reports this, ends, and is reopened.
    eventually("the stream is open again", async || {
        matches!(next_hint(&mut waiter.news).await, Hint::Opened { .. })
    })
    .await;
}

#[tokio::test]
async fn a_stream_reports_a_grant_between_the_join_and_its_opening() {
    let stage = shared_stage().await;
    let other = store(&stage);
    applied(&other, LockOperation::Create { seen: token(0) }).await;
    applied(&other, join(1, EntryMode::Exclusive)).await;
    let (store, mut news) = store_over(store_options(&stage, "b"), NAME);
    applied(&store, join(2, EntryMode::Exclusive)).await;
    applied(&other, leave(1)).await;
    let watching = tokio::spawn(store.clone().watch(claim(2)));
    let since_join = true;
    assert_eq!(next_hint(&mut news).await, Hint::Opened { since_join });
    // The stream also reports the join itself, because the join made the claim the head of the
    // queue.
    assert_eq!(next_hint(&mut news).await, Hint::Next);
    assert_eq!(next_hint(&mut news).await, granted(2, 2));
    watching.abort();
    // A second stream starts when it is opened, so it misses the changes since the join.
    let watching = tokio::spawn(store.watch(claim(2)));
    let since_join = false;
    assert_eq!(next_hint(&mut news).await, Hint::Opened { since_join });
    watching.abort();
}

#[tokio::test]
async fn a_cancelled_stream_reports_nothing() {
    let stage = shared_stage().await;
    let store = store(&stage);
    applied(&store, LockOperation::Create { seen: token(0) }).await;
    for number in [1, 2] {
        applied(&store, join(number, EntryMode::Exclusive)).await;
    }
    let mut ended = Waiter::of(&stage, 2).await;
    let mut other = Waiter::of(&stage, 2).await;
    ended.watching.abort();
    let aborted = (&mut ended.watching).await;
    assert!(aborted.is_err_and(|error| error.is_cancelled()));
    applied(&store, leave(1)).await;
    other.expect(granted(2, 2)).await;
    let quiet = tokio::time::timeout(Duration::from_millis(500), next_hint(&mut ended.news));
    assert!(quiet.await.is_err());
}
