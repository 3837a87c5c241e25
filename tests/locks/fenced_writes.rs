//! Goal: after a successor's write, a paused former holder cannot overwrite the document. The lock
//! alone cannot stop the late write; the fence refuses it. Method: after the holder has checked the
//! lock, the test stops driving the holder's runtime, as if the process were paused between its
//! check and its write.

use leasehold::election::{ResourceName, Token};
use leasehold::fenced::{self, Fence, FencedError};
use leasehold::lock::Slots;
use leasehold::locker::{Lock, LockGuard};
use leasehold_testbed::{Stage, run};
use mongodb::Collection;
use mongodb::bson::{Document, doc};

use crate::fixture::{LONG, NAME, shared_stage, store_options, token};
use crate::library::short;

fn lock(stage: &Stage, identity: &str) -> Lock {
    let name = ResourceName::new(NAME).expect("legal");
    let mut options = store_options(stage, identity);
    options.timings = short();
    Lock::new(options, name)
}

fn orders(stage: &Stage) -> Collection<Document> {
    let client = stage.set().client();
    client.database(stage.database()).collection("orders")
}

async fn value(orders: &Collection<Document>) -> i32 {
    let found = orders.find_one(doc! { "_id": 1 }).await;
    let order = found
        .expect("MongoDB answers")
        .expect("the document exists");
    order.get_i32("value").expect("a number")
}

fn set(value: i32) -> Document {
    doc! { "$set": { "value": value } }
}

fn fence(token: Token) -> Fence {
    Fence::new(ResourceName::new(NAME).expect("legal"), token)
}

fn holds(guard: &LockGuard) -> Token {
    guard.authority().expect("the lock is held").token
}

#[test]
fn the_write_of_a_paused_former_holder_is_refused() {
    let stage = run(shared_stage());
    let orders = orders(&stage);
    let paused = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a Tokio runtime starts");
    // The former holder acquires the lock, checks it, and is paused before it writes.
    let (ex_holder, its_token) = paused.block_on(async {
        let guard = lock(&stage, "a").acquire_within(LONG).await;
        let guard = guard.unwrap_or_else(|error| panic!("{error}"));
        let checked = holds(&guard);
        (guard, checked)
    });
    run(async {
        let insert = orders.insert_one(doc! { "_id": 1, "value": 0 });
        insert.await.expect("inserted");
        let successor = lock(&stage, "b").acquire_within(LONG).await;
        let successor = successor.unwrap_or_else(|error| panic!("{error}"));
        let newest = holds(&successor);
        assert!(newest > its_token);
        let written = successor
            .update_one(&orders, doc! { "_id": 1 }, set(2))
            .await;
        written.expect("the holder writes");
        // The second write shows that the fence accepts the newest token repeatedly.
        let written = successor
            .update_one(&orders, doc! { "_id": 1 }, set(3))
            .await;
        written.expect("the holder writes");

        let late = fence(its_token);
        let late = fenced::update_one(&orders, doc! { "_id": 1 }, set(1), &late).await;
        match late {
            Err(FencedError::Refused {
                newest: Some(refused_by),
            }) => assert_eq!(refused_by, newest),
            other => panic!("{other:?}"),
        }
        assert_eq!(value(&orders).await, 3);
        // Another check would have revealed the loss.
        let asked = ex_holder
            .update_one(&orders, doc! { "_id": 1 }, set(1))
            .await;
        assert!(matches!(asked, Err(FencedError::NotHeld)), "{asked:?}");
        // Without a fence, the write succeeds.
        let plain = orders.update_one(doc! { "_id": 1 }, set(1)).await;
        assert_eq!(plain.expect("written").modified_count, 1);
    });
    // The guard's connections can only be closed on the guard's own runtime.
    paused.block_on(async { drop(ex_holder) });
}

#[tokio::test]
async fn a_fenced_write_reports_its_outcome() {
    let stage = shared_stage().await;
    let orders = orders(&stage);
    let one = doc! { "_id": 1 };
    let write = async |number: i64| {
        let fence = fence(token(number));
        fenced::update_one(&orders, one.clone(), set(1), &fence).await
    };
    assert!(matches!(write(5).await, Err(FencedError::NoDocument)));
    let insert = orders.insert_one(doc! { "_id": 1, "value": 0 });
    insert.await.expect("inserted");
    for number in [5, 5, 7] {
        write(number).await.expect("the token is the newest token");
    }
    let refused = write(6).await;
    let Err(FencedError::Refused { newest }) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(newest, Some(token(7)));
    let stages = vec![doc! { "$set": { "value": { "$add": ["$value", 41] } } }];
    let added = fenced::update_one(&orders, one.clone(), stages, &fence(token(8))).await;
    added.expect("newer");
    assert_eq!(value(&orders).await, 42);
    let spoil = doc! { "$set": { "fence": { "token": "x" } } };
    orders.update_one(one.clone(), spoil).await.expect("spoilt");
    let refused = write(9).await;
    assert!(
        matches!(refused, Err(FencedError::Refused { newest: None })),
        "{refused:?}"
    );
}

#[tokio::test]
async fn the_tokens_of_readers_and_slots_are_not_accepted_for_fencing() {
    let stage = shared_stage().await;
    let orders = orders(&stage);
    let slots = Slots::new(2).expect("legal");
    for lock in [lock(&stage, "a").shared(), lock(&stage, "a").slots(slots)] {
        let guard = lock.acquire_within(LONG).await;
        let guard = guard.unwrap_or_else(|error| panic!("{error}"));
        let written = guard.update_one(&orders, doc! { "_id": 1 }, set(1)).await;
        assert!(
            matches!(written, Err(FencedError::NotExclusive)),
            "{written:?}"
        );
        guard.release().await.expect("the lock was held throughout");
    }
}

#[tokio::test]
async fn a_document_fenced_by_another_lock_is_refused() {
    let stage = shared_stage().await;
    let orders = orders(&stage);
    let insert = orders.insert_one(doc! { "_id": 1, "value": 0 });
    insert.await.expect("inserted");
    let one = doc! { "_id": 1 };
    let other = Fence::new(ResourceName::new("other").expect("legal"), token(3));
    let written = fenced::update_one(&orders, one.clone(), set(1), &other).await;
    written.expect("the first");
    // The other lock's token is higher, but tokens of different locks are not comparable.
    match fenced::update_one(&orders, one, set(2), &fence(token(9))).await {
        Err(FencedError::OtherName { name }) => assert_eq!(name, "other"),
        unrefused => panic!("{unrefused:?}"),
    }
    assert_eq!(value(&orders).await, 1);
}
