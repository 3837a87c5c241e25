//! Goal: verify that the fixture's replica sets are real: they elect, fail over, log in and clean
//! up. Method: each test starts its own sets, so the tests run concurrently.

#![allow(clippy::unwrap_used)] // A failed unwrap fails the test.
#![allow(clippy::disallowed_methods)] // The test measures with its own clocks.
#![allow(clippy::print_stdout)] // The test prints its measurements.

use std::path::Path;
use std::time::{Duration, Instant};

use leasehold_testbed::{FakeClock, JumpingClock, ReplicaSet};
use mongodb::Client;
use mongodb::bson::{Document, doc};

async fn write(client: &Client) {
    let events = client.database("app").collection::<Document>("events");
    events.insert_one(doc! { "a": 1 }).await.unwrap();
}

#[tokio::test]
async fn a_set_elects_and_survives_the_death_of_its_primary() {
    let begin = Instant::now();
    let set = ReplicaSet::start().await;
    println!("started in {:?}", begin.elapsed());
    write(&set.client()).await;
    let old = set.primary().await;
    let begin = Instant::now();
    set.kill(old);
    let new = set.primary().await;
    println!("new primary after {:?}", begin.elapsed());
    assert_ne!(old, new);
    write(&set.client()).await;
    set.restart(old).await;
    let begin = Instant::now();
    let (before, after) = set.step_down_primary().await;
    println!("stepped down in {:?}", begin.elapsed());
    assert_eq!(before, new);
    assert_ne!(before, after);
    let pids = set.pids();
    assert_eq!(pids.len(), 3);
    let begin = Instant::now();
    drop(set);
    println!("ended in {:?}", begin.elapsed());
    assert!(
        pids.iter()
            .all(|pid| !Path::new(&format!("/proc/{pid}")).exists())
    );
}

#[tokio::test]
async fn a_frozen_primary_is_replaced() {
    let set = ReplicaSet::start().await;
    let old = set.primary().await;
    set.stop(old);
    assert_ne!(set.primary().await, old);
    set.cont(old);
    assert_eq!(set.pids().len(), 3);
}

#[tokio::test]
async fn a_set_with_default_elections_is_ready_soon() {
    let begin = Instant::now();
    let set = ReplicaSet::builder().default_election().start().await;
    println!("started in {:?}", begin.elapsed());
    let answer = set
        .command(0, doc! { "replSetGetConfig": 1 })
        .await
        .unwrap();
    let settings = answer
        .get_document("config")
        .unwrap()
        .get_document("settings")
        .unwrap();
    assert_eq!(settings.get_i32("electionTimeoutMillis").unwrap(), 10_000);
    assert_eq!(settings.get_i32("heartbeatIntervalMillis").unwrap(), 2_000);
}

#[tokio::test]
async fn a_standalone_has_no_set() {
    let set = ReplicaSet::builder().standalone().start().await;
    write(&set.client()).await;
    assert!(!set.uri().contains("replicaSet"));
    assert_eq!(set.primary().await, 0);
}

#[tokio::test]
async fn users_log_in_by_password_with_no_more_than_their_rights() {
    let set = ReplicaSet::builder().members(1).auth().start().await;
    write(&set.client()).await;
    let user = set
        .add_user_with_actions("narrow", "app", "events", &["find", "insert"])
        .await;
    let client = Client::with_uri_str(set.uri_for(&user)).await.unwrap();
    write(&client).await;
    let dropped = client
        .database("app")
        .collection::<Document>("events")
        .drop()
        .await;
    assert!(dropped.unwrap_err().to_string().contains("not authorized"));
    let nobody = Client::with_uri_str(set.uri_without_user()).await.unwrap();
    let read = nobody
        .database("app")
        .collection::<Document>("events")
        .find_one(doc! {})
        .await;
    assert!(read.is_err());
}

#[tokio::test]
async fn a_certificate_logs_in_over_tls() {
    let set = ReplicaSet::builder().tls().auth().start().await;
    write(&set.client()).await;
    let user = set
        .add_certificate_user(vec![doc! { "role": "readWrite", "db": "app" }.into()])
        .await;
    let uri = set.uri_for(&user);
    assert!(uri.contains("MONGODB-X509"), "{uri}");
    let client = Client::with_uri_str(uri).await.unwrap();
    write(&client).await;
    let status = client
        .database("admin")
        .run_command(doc! { "connectionStatus": 1 })
        .await
        .unwrap();
    assert!(status.to_string().contains(user.name()), "{status}");
}

#[tokio::test]
async fn fail_points_fail_commands() {
    let set = ReplicaSet::builder().members(1).start().await;
    let fault = doc! { "failCommands": ["insert"], "errorCode": 2 };
    set.fail_command(0, doc! { "mode": "alwaysOn", "data": fault })
        .await;
    let events = set
        .client()
        .database("app")
        .collection::<Document>("events");
    assert!(events.insert_one(doc! {}).await.is_err());
    set.clear_fail_point(0).await;
    events.insert_one(doc! {}).await.unwrap();
}

async fn server_time(set: &ReplicaSet, index: usize) -> i64 {
    let hello = set.command(index, doc! { "hello": 1 }).await.unwrap();
    hello.get_datetime("localTime").unwrap().timestamp_millis()
}

#[tokio::test]
async fn a_member_can_have_a_wrong_clock_and_one_that_jumps() {
    let ahead = FakeClock::offset("+1h").unwrap();
    let jumping = JumpingClock::new().unwrap();
    let set = ReplicaSet::builder()
        .clock(1, &ahead)
        .clock(2, jumping.clock())
        .start()
        .await;
    let hour = Duration::from_secs(3600).as_millis() as i64;
    let near = |a: i64, b: i64| (a - b).abs() < 60_000;
    let (right, wrong) = (server_time(&set, 0).await, server_time(&set, 1).await);
    assert!(near(wrong - right, hour), "{}", wrong - right);
    assert!(near(server_time(&set, 2).await, right));
    jumping.jump("-1h");
    assert!(near(server_time(&set, 2).await - right, -hour));
    write(&set.client()).await;
}
