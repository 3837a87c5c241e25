//! Goal: verify that a driver still uses its proxy after it has discovered the replica set, and
//! that the proxy affects no other client. Method: connect to real sets with one client through the
//! proxy and another without it.

#![allow(clippy::unwrap_used)] // A failed unwrap fails the test.
#![allow(clippy::disallowed_methods)] // The test measures with its own clocks.
#![allow(clippy::print_stdout)] // The test prints its measurements.

use leasehold_testbed::{Proxy, ReplicaSet, eventually};
use mongodb::bson::{Document, doc};
use mongodb::{Client, Collection};

async fn collection(uri: &str) -> Collection<Document> {
    let client = Client::with_uri_str(format!("{uri}&retryWrites=false"))
        .await
        .unwrap();
    client.database("app").collection("events")
}

async fn exists(collection: &Collection<Document>, id: &str) -> bool {
    collection
        .find_one(doc! { "_id": id })
        .await
        .unwrap()
        .is_some()
}

fn upsert(
    collection: &Collection<Document>,
    id: &'static str,
) -> tokio::task::JoinHandle<mongodb::error::Result<Option<Document>>> {
    let collection = collection.clone();
    tokio::spawn(async move {
        let update = doc! { "$set": { "a": 1 } };
        collection
            .find_one_and_update(doc! { "_id": id }, update)
            .upsert(true)
            .await
    })
}

async fn open(set: &ReplicaSet) -> (Proxy, Collection<Document>, Collection<Document>) {
    let proxy = set.proxy();
    let through = collection(&set.proxied_uri(&proxy)).await;
    let beside = collection(&set.uri()).await;
    upsert(&through, "first").await.unwrap().unwrap();
    (proxy, through, beside)
}

#[tokio::test]
async fn discovery_stays_behind_the_proxy() {
    let set = ReplicaSet::start().await;
    let (proxy, through, beside) = open(&set).await;
    // The connection string names only one member. From the replies of this member,
    // the driver discovers the other members.
    let seed = format!("mongodb://127.0.0.1:{}/?replicaSet=testbed", proxy.port(1));
    let seeded = collection(&seed).await;
    upsert(&seeded, "seeded").await.unwrap().unwrap();
    let hello = seeded
        .client()
        .database("admin")
        .run_command(doc! { "hello": 1 })
        .await
        .unwrap();
    let text = hello.to_string();
    for index in 0..3 {
        assert!(text.contains(&proxy.port(index).to_string()), "{text}");
        assert!(
            !text.contains(&set.node(index).port().to_string()),
            "{text}"
        );
    }
    // The driver must follow an election through the proxy.
    let old = set.primary().await;
    set.kill(old);
    eventually("a write after the election", async || {
        upsert(&through, "later").await.unwrap().is_ok()
    })
    .await;
    assert!(exists(&beside, "later").await);
}

#[tokio::test]
async fn a_stalled_write_lands_at_resume_and_others_are_not_stalled() {
    let set = ReplicaSet::start().await;
    let (proxy, through, beside) = open(&set).await;
    proxy.stall();
    let write = upsert(&through, "late");
    eventually("something is held", async || proxy.held_requests() > 0).await;
    upsert(&beside, "meanwhile").await.unwrap().unwrap();
    assert!(!exists(&beside, "late").await);
    assert!(!write.is_finished());
    proxy.resume();
    eventually("the write arrives late", async || {
        exists(&beside, "late").await
    })
    .await;
    write.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_stalled_write_lands_although_its_client_has_gone() {
    let set = ReplicaSet::builder().members(1).start().await;
    let (proxy, through, beside) = open(&set).await;
    proxy.hold_requests_containing("findAndModify");
    let write = upsert(&through, "orphan");
    eventually("the write is held", async || proxy.held_requests() > 0).await;
    write.abort();
    let _ = write.await;
    through.client().clone().shutdown().immediate(true).await;
    drop(through);
    assert!(!exists(&beside, "orphan").await);
    proxy.resume();
    eventually("the write arrives late", async || {
        exists(&beside, "orphan").await
    })
    .await;
}

#[tokio::test]
async fn a_held_reply_hides_a_write_that_landed() {
    let set = ReplicaSet::builder().members(1).start().await;
    let (proxy, through, beside) = open(&set).await;
    proxy.hold_replies();
    let write = upsert(&through, "landed");
    eventually("the write lands", async || exists(&beside, "landed").await).await;
    eventually("its reply is held", async || proxy.held_replies() > 0).await;
    assert!(!write.is_finished());
    proxy.resume();
    write.await.unwrap().unwrap();
}

#[tokio::test]
async fn only_the_reply_to_a_find_and_modify_is_held() {
    let set = ReplicaSet::builder().members(1).start().await;
    let (proxy, through, _) = open(&set).await;
    proxy.hold_replies_containing("lastErrorObject");
    let write = upsert(&through, "landed");
    eventually("the reply is held", async || proxy.held_replies() == 1).await;
    assert!(exists(&through, "landed").await);
    proxy.resume();
    write.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_cut_fails_what_is_under_way_and_resume_heals() {
    let set = ReplicaSet::builder().members(1).start().await;
    let (proxy, through, beside) = open(&set).await;
    proxy.hold_requests_containing("findAndModify");
    let write = upsert(&through, "lost");
    eventually("the write is held", async || proxy.held_requests() > 0).await;
    proxy.cut();
    eventually("nothing is held", async || proxy.held_requests() == 0).await;
    proxy.resume();
    assert!(write.await.unwrap().is_err());
    eventually("a later write", async || {
        upsert(&through, "healed").await.unwrap().is_ok()
    })
    .await;
    assert!(!exists(&beside, "lost").await);
}
