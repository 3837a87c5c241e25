//! Goal: an operator can list the holders and waiters of a lock, read its history, and prune an
//! unused lock without resetting its token.

use leasehold::lock::{EntryMode, FoundLock, LockOperation, LockOutcome};
use leasehold::store::mongo::operators::{Content, MongoCollection, Scope};
use mongodb::bson::doc;

use crate::fixture::{
    applied, join, leave, numbers, shared_stage, store, store_options, store_over, stored, sweep,
    token,
};

#[tokio::test]
async fn pruning_an_unused_lock_keeps_only_its_token() {
    let stage = shared_stage().await;
    let (store, stored) = (store(&stage), stored(&stage));
    applied(&store, LockOperation::Create { seen: token(41) }).await;
    applied(&store, join(1, EntryMode::Slot)).await;
    let pruned = async |seen| store.prune(token(seen)).await.outcome;
    assert_eq!(pruned(42).await, LockOutcome::Rejected, "the lock is held");
    applied(&store, leave(1)).await;
    stored.set(doc! { "newer": true }).await;
    assert_eq!(
        pruned(41).await,
        LockOutcome::Rejected,
        "the lock was used since"
    );
    let pruned = pruned(42).await;
    assert!(
        matches!(pruned, LockOutcome::Applied(FoundLock::Lock(_))),
        "{pruned:?}"
    );
    let left = doc! {
        "_id": "orders", "schema": 1, "kind": "lock", "token": 42_i64, "newer": true,
    };
    assert_eq!(stored.get().await, left);
    assert_eq!(store.history().await.expect("the history is readable"), []);
    let lock = applied(&store, join(2, EntryMode::Exclusive)).await;
    assert_eq!(lock.holders[0].token, Some(token(43)));
}

#[tokio::test]
async fn the_listing_shows_the_locks_with_holders_and_waiters() {
    let stage = shared_stage().await;
    let locks = MongoCollection::brief(store_options(&stage, "operator"));
    assert_eq!(
        locks.list(&Scope::Locks).await.expect("MongoDB answers"),
        []
    );
    for (name, claims) in [("b", 1..4), ("a", 4..5)] {
        let (store, _) = store_over(store_options(&stage, "a"), name);
        applied(&store, LockOperation::Create { seen: token(0) }).await;
        for claim in claims {
            applied(&store, join(claim, EntryMode::Exclusive)).await;
        }
    }
    stage
        .stored()
        .replace(&doc! { "schema": 1, "kind": "lease" })
        .await;
    stored(&stage)
        .replace(&doc! { "schema": 2, "kind": "lock" })
        .await;
    let listed = locks.list(&Scope::Locks).await.expect("MongoDB answers");
    let shown = listed.iter().map(|listed| match &listed.content {
        Content::Lock(record) => (
            listed.name.as_str(),
            numbers(&record.lock.holders),
            numbers(&record.lock.queue),
        ),
        Content::Lease(_) | Content::Foreign(_) => (listed.name.as_str(), vec![], vec![]),
    });
    assert_eq!(
        shown.collect::<Vec<_>>(),
        [
            ("a", vec![4], vec![]),
            ("b", vec![1], vec![2, 3]),
            ("orders", vec![], vec![]),
        ]
    );
    locks.shut_down().await;
}

#[tokio::test]
async fn the_history_shows_the_holder_the_token_and_the_reason() {
    let stage = shared_stage().await;
    let store = store(&stage);
    applied(&store, LockOperation::Create { seen: token(0) }).await;
    for number in 1..5 {
        applied(&store, join(number, EntryMode::Exclusive)).await;
    }
    let broken = LockOperation::Break {
        claims: vec![crate::fixture::claim(3)],
        seen: token(0),
    };
    // The second claim leaves without confirming its grant. The history records this claim's end,
    // because its holder may have worked under the grant.
    applied(&store, leave(1)).await;
    applied(&store, leave(2)).await;
    applied(&store, crate::fixture::renew(3, 30)).await;
    applied(&store, broken).await;
    applied(&store, crate::fixture::renew(4, 40)).await;
    let gone = LockOperation::Evict {
        entries: vec![leasehold::lock::EntryVersion {
            claim: crate::fixture::claim(4),
            revision: crate::fixture::revision(40),
        }],
        me: None,
        ending: leasehold::lock::Ending::Expired,
        seen: token(0),
    };
    applied(&store, gone).await;
    let history = store.history().await.expect("the history is readable");
    let ends = history
        .iter()
        .map(|end| (end.token, end.reason.as_deref().unwrap_or_default()));
    assert_eq!(
        ends.collect::<Vec<_>>(),
        [
            (Some(token(1)), "released"),
            (Some(token(2)), "released"),
            (Some(token(3)), "broken"),
            (Some(token(4)), "expired"),
        ]
    );
    assert!(history.iter().all(|end| end.ended_at >= end.acquired_at));
    // All four claims were exclusive and joined before the first claim left.
    let overlapping = history
        .windows(2)
        .find(|pair| pair[1].acquired_at < pair[0].ended_at);
    assert!(overlapping.is_none(), "{history:?}");
}

#[tokio::test]
async fn only_unchanged_entries_are_evicted() {
    let stage = shared_stage().await;
    let store = store(&stage);
    applied(&store, LockOperation::Create { seen: token(0) }).await;
    for number in [1, 2, 3] {
        applied(&store, join(number, EntryMode::Exclusive)).await;
    }
    applied(&store, crate::fixture::renew(1, 10)).await;
    let answer = store.perform(sweep(&[1], Some(2))).await;
    assert_eq!(answer.outcome, LockOutcome::Rejected);
    // Only the revision of entry 2 matches, so entry 2 is evicted and entry 1 stays.
    let lock = applied(&store, sweep(&[1, 2], Some(3))).await;
    assert_eq!(
        (numbers(&lock.holders), numbers(&lock.queue)),
        (vec![1], vec![3])
    );
}
