//! Goal: a lock's document cannot become too large, however many contenders there are. At most 256
//! contenders hold and 512 wait, the history has at most 20 entries, and an identity is plain text.

use leasehold::lock::{Entry, EntryMode, HOLDERS_MAX, LockDocument, LockOperation, QUEUE_MAX};
use leasehold::store::mongo::lock::MongoLockStore;
use leasehold_testbed::{Stage, StoredLease};

use crate::fixture::{
    applied, document, entry, held, join, joining, leave, numbers, read, rejected, shared_stage,
    store, store_options, store_over, stored, text, token, undated,
};

const HISTORY_MAX: usize = 20;

fn count(number: usize) -> u16 {
    u16::try_from(number).expect("a limit of the protocol")
}

async fn locked(
    newest: i64,
    holders: impl IntoIterator<Item = Entry>,
    queue: impl IntoIterator<Item = Entry>,
) -> (Stage, MongoLockStore, StoredLease) {
    let stage = shared_stage().await;
    let (store, stored) = (store(&stage), stored(&stage));
    let lock = LockDocument {
        slot_owners: Vec::new(),
        token: token(newest),
        slots: 0,
        holders: holders.into_iter().collect(),
        queue: queue.into_iter().collect(),
        ..LockDocument::default()
    };
    stored.replace(&document(&lock)).await;
    (stage, store, stored)
}

#[tokio::test]
async fn only_512_waiters_may_join() {
    let (last, one_more) = (count(QUEUE_MAX) + 1, count(QUEUE_MAX) + 2);
    let waiting = (2..last).map(|number| entry(number, EntryMode::Exclusive));
    let (_stage, store, _) = locked(1, [held(1, EntryMode::Exclusive, 1)], waiting).await;
    let full = applied(&store, join(last, EntryMode::Exclusive)).await;
    assert_eq!(full.queue.len(), QUEUE_MAX);
    rejected(&store, join(one_more, EntryMode::Exclusive)).await;
    assert_eq!(undated(read(&store).await), undated(full));
    applied(&store, leave(1)).await;
    applied(&store, join(one_more, EntryMode::Exclusive)).await;
}

#[tokio::test]
async fn the_257th_reader_waits() {
    let (last, one_more) = (count(HOLDERS_MAX), count(HOLDERS_MAX) + 1);
    let holding = (1..last).map(|number| held(number, EntryMode::Shared, i64::from(number)));
    let (_stage, store, _) = locked(400, holding, []).await;
    let full = applied(&store, join(last, EntryMode::Shared)).await;
    assert_eq!((full.holders.len(), full.queue.len()), (HOLDERS_MAX, 0));
    rejected(&store, non_blocking(join(one_more, EntryMode::Shared))).await;
    let waits = applied(&store, join(one_more, EntryMode::Shared)).await;
    assert_eq!(numbers(&waits.queue), [one_more]);
    let granted = applied(&store, leave(7)).await;
    assert_eq!(
        (granted.holders.len(), granted.queue.len()),
        (HOLDERS_MAX, 0)
    );
}

fn non_blocking(operation: LockOperation) -> LockOperation {
    match operation {
        LockOperation::Join {
            entry,
            seen,
            token_min,
            ..
        } => LockOperation::Join {
            entry,
            seen,
            token_min,
            non_blocking: true,
        },
        other => other,
    }
}

#[tokio::test]
async fn all_waiting_readers_up_to_the_limit_are_granted_together() {
    let waiting = (2..400).map(|number| entry(number, EntryMode::Shared));
    let (_stage, store, stored) = locked(1, [held(1, EntryMode::Exclusive, 1)], waiting).await;
    let granted = applied(&store, leave(1)).await;
    assert_eq!(granted.holders.len(), HOLDERS_MAX);
    let expected: Vec<_> = (2..count(HOLDERS_MAX) + 2).collect();
    assert_eq!(numbers(&granted.holders), expected);
    let document = stored.get().await;
    assert_eq!(text(&document, "granted").split(' ').count(), HOLDERS_MAX);
    assert_eq!(text(&document, "next"), granted.queue[0].claim.to_string());
}

#[tokio::test]
async fn slots_change_only_while_the_lock_is_empty() {
    let stage = shared_stage().await;
    let store = store(&stage);
    let slots = |number: u16, slots: u32, mode: EntryMode| LockOperation::Join {
        entry: leasehold::lock::NewEntry {
            slots,
            ..joining(number, mode)
        },
        seen: token(0),
        token_min: token(0),
        non_blocking: false,
    };
    rejected(&store, slots(1, 2, EntryMode::Slot)).await;
    applied(&store, LockOperation::Create { seen: token(0) }).await;
    assert_eq!(applied(&store, slots(1, 2, EntryMode::Slot)).await.slots, 2);
    rejected(&store, slots(2, 3, EntryMode::Slot)).await;
    rejected(&store, slots(2, 0, EntryMode::Exclusive)).await;
    applied(&store, slots(2, 2, EntryMode::Slot)).await;
    let waits = applied(&store, slots(3, 2, EntryMode::Slot)).await;
    assert_eq!((waits.holders.len(), waits.queue.len()), (2, 1));
    for number in [1, 2, 3] {
        rejected(&store, slots(4, 3, EntryMode::Slot)).await;
        applied(&store, leave(number)).await;
    }
    assert_eq!(applied(&store, slots(4, 3, EntryMode::Slot)).await.slots, 3);
    applied(&store, leave(4)).await;
    assert_eq!(
        applied(&store, slots(5, 0, EntryMode::Exclusive))
            .await
            .slots,
        0
    );
}

#[tokio::test]
async fn the_history_keeps_the_twenty_newest_entries() {
    let stage = shared_stage().await;
    let store = store(&stage);
    applied(&store, LockOperation::Create { seen: token(0) }).await;
    let rounds = 25;
    for number in 1..=rounds {
        applied(&store, join(number, EntryMode::Exclusive)).await;
        applied(&store, leave(number)).await;
    }
    let history = store.history().await.expect("the history is readable");
    let tokens: Vec<_> = history.iter().filter_map(|end| end.token).collect();
    let oldest = i64::from(rounds) - i64::try_from(HISTORY_MAX).expect("small") + 1;
    let expected: Vec<_> = (oldest..=rounds.into()).map(token).collect();
    assert_eq!(tokens, expected);
}

#[tokio::test]
async fn an_identity_is_stored_as_text_and_never_evaluated() {
    let stage = shared_stage().await;
    let (store, _) = store_over(store_options(&stage, "$token"), crate::fixture::NAME);
    applied(&store, LockOperation::Create { seen: token(0) }).await;
    let lock = applied(&store, join(1, EntryMode::Exclusive)).await;
    assert_eq!(lock.holders[0].owner.identity.as_str(), "$token");
    applied(&store, leave(1)).await;
    let history = store.history().await.expect("the history is readable");
    let identity = history[0].identity.clone().expect("a name");
    assert_eq!(identity.as_str(), "$token");
}
