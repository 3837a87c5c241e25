//! Goal: a contender that is granted the lock needs no extra write, but confirms a grant from an
//! older version before trusting it. Method: runs contenders of the library on a real set. The test
//! itself writes the older version's grant.

use std::sync::{Arc, Mutex};

use leasehold::calls::AnsweredCall;
use leasehold::lock::{LockStatus, Standing};
use leasehold::locker::{LockSurfaces, Locker, LockerOptions, StoreHealth};
use leasehold_testbed::Stage;
use mongodb::bson::{Bson, Document};

use crate::fixture::{
    LONG, NAME, applied, claim, eventually, join, leave, read, shared_stage, store, store_options,
    stored, token,
};
use leasehold::election::ResourceName;
use leasehold::lock::{EntryMode, LockOperation};

/// Number of acquisitions. At least one acquisition must end before its delayed confirmation is
/// due. On a busy machine, the other acquisitions may take longer.
const TRIES: u16 = 20;

#[derive(Clone, Default)]
struct Operations(Arc<Mutex<Vec<&'static str>>>);

impl LockSurfaces for Operations {
    fn answered(&mut self, answered: &AnsweredCall, _: &StoreHealth) {
        self.0.lock().expect("no panic").push(answered.operation);
    }
}

impl Operations {
    fn writes(&self) -> Vec<&'static str> {
        let all = self.0.lock().expect("no panic");
        all.iter()
            .filter(|name| **name != "read")
            .copied()
            .collect()
    }
}

fn contender(stage: &Stage) -> (Locker, Operations) {
    let operations = Operations::default();
    let name = ResourceName::new(NAME).expect("legal");
    let options = LockerOptions::new(store_options(stage, "b"), name);
    let locker = Locker::start(options, operations.clone()).expect("legal options");
    (locker, operations)
}

async fn held(locker: &Locker) -> LockStatus {
    let mut status = locker.status();
    let held = status.wait_for(|status| matches!(status.standing, Standing::Held(_)));
    let held = tokio::time::timeout(LONG, held)
        .await
        .expect("the lock is held");
    held.expect("the contender runs").clone()
}

#[tokio::test]
async fn short_work_after_a_wait_needs_two_writes() {
    let stage = shared_stage().await;
    let store = store(&stage);
    applied(&store, LockOperation::Create { seen: token(0) }).await;
    let mut seen = Vec::new();
    for number in 1..=TRIES {
        applied(&store, join(number, EntryMode::Exclusive)).await;
        let (mut b, operations) = contender(&stage);
        eventually("the contender waits", async || {
            read(&store).await.queue.len() == 1
        })
        .await;
        applied(&store, leave(number)).await;
        let status = held(&b).await;
        b.release().await;
        b.wait().await.expect("the contender ends");
        let writes = operations.writes();
        if status.provisional && writes == ["join", "leave"] {
            return;
        }
        seen.push((status.provisional, writes));
    }
    panic!("no acquisition took only two writes: {seen:?}");
}

#[tokio::test]
async fn a_confirmed_grant_keeps_its_token() {
    let stage = shared_stage().await;
    let store = store(&stage);
    applied(&store, LockOperation::Create { seen: token(0) }).await;
    applied(&store, join(1, EntryMode::Exclusive)).await;
    let (mut b, operations) = contender(&stage);
    eventually("the contender waits", async || {
        read(&store).await.queue.len() == 1
    })
    .await;
    applied(&store, leave(1)).await;
    held(&b).await;
    let mut status = b.status();
    let confirmed = status.wait_for(|status| !status.provisional);
    tokio::time::timeout(LONG, confirmed)
        .await
        .expect("the grant is confirmed")
        .expect("the contender runs");
    assert_eq!(b.authority().expect("the lock is held").token, token(2));
    assert!(operations.writes().contains(&"renew"));
    let holder = read(&store).await.holders.remove(0);
    assert!(holder.is_confirmed());
    b.release().await;
    b.wait().await.expect("the contender ends");
}

/// Grants the lock as older versions did: moves the head of the queue to the holders, without a
/// token in the grant.
fn granted_by_an_older_version(mut lock: Document) -> Document {
    let mut queue = lock.get_array("queue").expect("a queue").clone();
    let head = queue.remove(0);
    let text = head
        .as_document()
        .and_then(|head| head.get_str("wake").ok());
    lock.insert("granted", text.expect("a text").to_owned());
    lock.insert("holders", Bson::Array(vec![head]));
    lock.insert("queue", queue);
    lock.insert("next", "");
    lock
}

#[tokio::test]
async fn a_grant_of_an_older_version_is_confirmed_first() {
    let stage = shared_stage().await;
    let (store, stored) = (store(&stage), stored(&stage));
    applied(&store, LockOperation::Create { seen: token(0) }).await;
    applied(&store, join(1, EntryMode::Exclusive)).await;
    let (mut b, operations) = contender(&stage);
    eventually("the contender waits", async || {
        read(&store).await.queue.len() == 1
    })
    .await;
    stored
        .replace(&granted_by_an_older_version(stored.get().await))
        .await;
    assert_ne!(read(&store).await.holders[0].claim, claim(1));
    let status = held(&b).await;
    assert!(!status.provisional);
    assert_eq!(b.authority().expect("the lock is held").token, token(2));
    assert!(operations.writes().contains(&"renew"));
    b.release().await;
    b.wait().await.expect("the contender ends");
}
