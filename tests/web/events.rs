//! Goal: a browser never shows an old state. The browser receives the whole collection once, then
//! each change, and the current state of the connection to MongoDB.

use std::time::{Duration, Instant};

use leasehold_testbed::{DaemonTimings, ReplicaSet, Stage};
use mongodb::bson::doc;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::process::Child;

use crate::many::many;
use crate::production::collection;
use crate::server::{Events, LONG, Server, shared_stage, stage_of};

/// Starts a job that holds the lock `job` for ten minutes.
pub(crate) fn job(stage: &Stage, uri: &str, identity: &str, flags: &[&str]) -> Child {
    let identity = format!("--identity={identity}");
    let lock = ["lock", "job", &identity];
    let arguments = [&lock, flags, &["--", "sleep", "600"]].concat();
    stage.command(uri, &arguments).spawn().expect("it starts")
}

#[tokio::test]
async fn leases_and_locks_are_listed_with_holders_and_queues() {
    let stage = shared_stage().await.timings(DaemonTimings::DEFAULT);
    let uri = stage.set().uri();
    let _a = stage.candidate("a").leading(LONG).await;
    let lock = |identity| job(&stage, &uri, identity, &[]);
    let server = Server::start(&stage, &[]).await;
    let mut events = server.events().await;
    let _first = lock("first");
    events
        .until("the lock is held", |events, _| {
            events
                .documents
                .get("job")
                .is_some_and(|job| job["holders_total"] == 1)
        })
        .await;
    let _second = lock("second");
    events
        .until("the second waits", |events, _| {
            events.documents["job"]["queue_total"] == 1
        })
        .await;
    let lease = stage.lease();
    let led = &events.documents[lease];
    assert_eq!(led["kind"], "lease");
    assert_eq!(led["holder"]["identity"], "a");
    assert_eq!(led["holder"]["token"], 1);
    let job = &events.documents["job"];
    assert_eq!(job["kind"], "lock");
    assert_eq!(job["holders"][0]["identity"], "first");
    assert_eq!(job["queue"][0]["identity"], "second");
    let details = server.get("/document?name=job").await.json();
    assert_eq!(details["queue"][0]["identity"], "second");
    assert_eq!(server.get("/document?name=none").await.code, 404);
}

#[tokio::test]
async fn a_handoff_is_an_event_and_renewals_are_compact() {
    let stage = shared_stage().await;
    let a = stage.candidate("a").leading(LONG).await;
    let b = stage.candidate("b").following("a", LONG).await;
    b.wait_stream().await;
    let lease = stage.lease();
    let server = Server::start(&stage, &[]).await;
    let mut events = server.events().await;
    events.until_holder(lease, "a").await;
    let renewal = events
        .until("a renewal", |_, event| {
            event["renewed"]
                .as_array()
                .is_some_and(|renewed| !renewed.is_empty())
        })
        .await;
    assert_eq!(renewal["renewed"][0][0], *lease);
    assert_eq!(renewal["documents"], json!([]));
    a.term();
    events.until_holder(lease, "b").await;
    let details = server.get(&format!("/document?name={lease}")).await.json();
    assert_eq!(details["history"][0]["identity"], "a");
    assert_eq!(details["history"][0]["reason"], "shutdown");
}

#[tokio::test]
async fn renewals_of_a_lock_are_compact_too() {
    let stage = shared_stage().await;
    let uri = stage.set().uri();
    let server = Server::start(&stage, &[]).await;
    let mut events = server.events().await;
    let mut first = job(&stage, &uri, "first", &[]);
    events
        .until("the lock is held with a token", |events, _| {
            let job = events.documents.get("job");
            job.is_some_and(|job| job["holders"][0]["token"] == 1)
        })
        .await;
    for _ in 0..3 {
        let event = events
            .until("a renewal", |_, event| event["renewed"] != json!([]))
            .await;
        assert_eq!(event["documents"], json!([]));
        let renewed = &event["renewed"][0];
        assert_eq!(renewed[0], "job");
        let [holder] = renewed[1].as_array().unwrap().as_slice() else {
            panic!("one holder: {event}");
        };
        assert!(holder[0].is_u64() && holder[1] == true, "{event}");
    }
    let _second = job(&stage, &uri, "second", &[]);
    events
        .until("the second waits", |events, _| {
            events.documents["job"]["queue"][0]["identity"] == "second"
        })
        .await;
    let pid = i32::try_from(first.id().unwrap()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
    events
        .until("the second holds", |events, _| {
            events.documents["job"]["holders"][0]["identity"] == "second"
        })
        .await;
    first.wait().await.unwrap();
}

/// Receives the whole collection. Returns the number of events.
async fn all_pieces(events: &mut Events) -> usize {
    for pieces in 1.. {
        let event = events.next().await.unwrap();
        assert_eq!(event["reset"], pieces == 1);
        assert!(event["documents"].as_array().unwrap().len() <= 64);
        if event["complete"] == true {
            return pieces;
        }
    }
    unreachable!("a collection has an end")
}

#[tokio::test]
async fn a_large_collection_comes_in_pieces_and_deletions_are_events() {
    let stage = shared_stage().await;
    many(&stage, 1_000).await;
    let server = Server::start(&stage, &[]).await;
    server.wait_ready().await;
    let mut events = server.events().await;
    assert_eq!(all_pieces(&mut events).await, 16);
    assert_eq!(events.documents.len(), 1_000);
    // A browser that connects after renewals gets all documents too.
    let renewal = doc! { "$set": { "revision": mongodb::bson::Uuid::new() } };
    let leases = collection(&stage);
    leases.update_many(doc! {}, renewal).await.unwrap();
    let mut renewed = 0;
    while renewed < 1_000 {
        let event = events.next().await.unwrap();
        assert_eq!(event["documents"], json!([]));
        renewed += event["renewed"].as_array().unwrap().len();
    }
    let mut second = server.events().await;
    assert_eq!(all_pieces(&mut second).await, 16);
    assert_eq!(second.documents.len(), 1_000);
    leases.delete_one(doc! { "_id": "lease-7" }).await.unwrap();
    events
        .until("the deletion", |events, _| {
            !events.documents.contains_key("lease-7")
        })
        .await;
}

#[tokio::test]
async fn the_page_is_stale_while_mongodb_is_unreachable() {
    let stage = stage_of(ReplicaSet::start().await);
    let (proxy, _) = stage.proxied();
    let _a = stage.candidate("a").leading(LONG).await;
    let lease = stage.lease();
    let uri = stage.set().proxied_uri(&proxy);
    let server = Server::start_with(&stage, &uri, &[]).await;
    let mut events = server.events().await;
    events.until_holder(lease, "a").await;
    let state = |event: &Value, state: &str| event["store"]["state"] == *state;
    events
        .until("current", |_, event| state(event, "current"))
        .await;
    proxy.cut();
    let lost = events.until("lost", |_, event| state(event, "lost")).await;
    assert!(lost["store"]["old_ms"].is_u64(), "{lost}");
    assert!(!lost["store"]["why"].as_str().unwrap().is_empty(), "{lost}");
    let later = events
        .until("it gets older", |_, event| {
            event["store"]["old_ms"].as_u64() > lost["store"]["old_ms"].as_u64()
        })
        .await;
    assert!(state(&later, "lost"));
    proxy.resume();
    events
        .until("current again", |_, event| state(event, "current"))
        .await;
}

#[tokio::test]
async fn a_quiet_server_is_current_and_a_hanging_one_is_lost_since_its_last_answer() {
    const SECOND: Duration = Duration::from_secs(1);
    let stage = stage_of(ReplicaSet::builder().members(1).start().await);
    let server = Server::start(&stage, &[]).await;
    server.wait_ready().await;
    let mut events = server.events().await;
    let state = |event: &Value, state: &str| event["store"]["state"] == *state;
    events
        .until("current", |_, event| state(event, "current"))
        .await;
    let connected = "ok; connected to MongoDB";
    server.get("/readyz").await.expect(200, connected);
    // Nothing changes for longer than two heartbeats and a timeout.
    let quiet = Instant::now();
    while quiet.elapsed() < 12 * SECOND {
        let event = events.next().await.expect("a heartbeat");
        assert!(state(&event, "current"), "{event}");
    }
    stage.set().stop(0);
    let stopped = Instant::now();
    let age = |event: &Value| Duration::from_millis(event["store"]["old_ms"].as_u64().unwrap());
    let lost = events.until("lost", |_, event| state(event, "lost")).await;
    let since_stop = stopped.elapsed();
    assert!(since_stop < 12 * SECOND, "noticed after {since_stop:?}");
    assert!(age(&lost) + SECOND > since_stop, "{since_stop:?}: {lost}");
    assert!(
        age(&lost) < since_stop + 4 * SECOND,
        "{since_stop:?}: {lost}"
    );
    assert_eq!(lost["store"]["why"], "no answer", "{lost}");
    let lost = "ok; not connected to MongoDB since 20";
    server
        .get("/readyz")
        .await
        .expect(200, lost)
        .expect(200, "s ago): no answer");
    // By then, a read failure has been reported.
    let later = events
        .until("it gets older", |_, event| {
            event["store"]["old_ms"].as_u64() > Some(16_000)
        })
        .await;
    assert!(state(&later, "lost"), "{later}");
    assert!(age(&later) + SECOND > stopped.elapsed(), "{later}");
    stage.set().cont(0);
    events
        .until("current again", |_, event| state(event, "current"))
        .await;
    server.get("/readyz").await.expect(200, connected);
}

#[tokio::test]
async fn another_replica_set_is_named_with_the_remedy() {
    let first = ReplicaSet::builder().members(1).start().await;
    let second = ReplicaSet::builder().members(1).start().await;
    let stage = stage_of(first);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("uri");
    std::fs::write(&file, stage.set().uri()).unwrap();
    let flags = ["--mongodb-uri-file", file.to_str().unwrap()];
    let server = Server::start_with(&stage, "", &flags).await;
    server.wait_ready().await;
    let mut events = server.events().await;
    std::fs::write(&file, second.uri()).unwrap();
    stage.set().kill(0);
    let remedy = "another replica set answers: restart leasehold web (id ";
    events
        .until("the remedy", |_, event| {
            let why = event["store"]["why"].as_str().unwrap_or_default();
            why.starts_with(&format!("MongoDB URI refused: {remedy}"))
        })
        .await;
    server.get("/readyz").await.expect(200, remedy);
}

#[tokio::test]
async fn a_stop_ends_the_streams_with_a_last_event() {
    let stage = shared_stage().await;
    let mut server = Server::start(&stage, &[]).await;
    server.wait_ready().await;
    let mut events = server.events().await;
    events.next().await;
    let pid = i32::try_from(server.child.id().unwrap()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
    events
        .until("the end", |_, event| event["stopped"] == true)
        .await;
    assert_eq!(events.next().await, None);
    let exited = tokio::time::timeout(Duration::from_secs(10), server.child.wait()).await;
    assert_eq!(exited.expect("it exits").unwrap().code(), Some(0));
}

#[tokio::test]
async fn a_user_who_may_only_find_and_follow_suffices_and_cannot_act() {
    let stage = stage_of(ReplicaSet::builder().auth().start().await);
    let _a = stage.candidate("a").leading(LONG).await;
    let lease = stage.lease();
    let actions = ["find", "changeStream"];
    let (database, collection) = (stage.database(), stage.collection());
    let set = stage.set();
    let user = set
        .add_user_with_actions("web", database, collection, &actions)
        .await;
    let server = Server::start_with(&stage, &set.uri_for(&user), &["--allow-actions"]).await;
    let mut events = server.events().await;
    events.until_holder(lease, "a").await;
    events
        .until("changes are reported", |_, event| {
            event["store"]["state"] == "current"
        })
        .await;
    let refused = server.act(crate::server::action(lease, "pause", 1)).await;
    refused.expect(502, "not authorized");
    assert_eq!(stage.stored().holder().await.as_deref(), Some("a"));
}
