//! Goal: an unreachable server neither stops the other checks nor makes the command exceed its time
//! limit. The command names the server and the cause. A deployment with weaker guarantees causes a
//! warning.

use std::time::{Duration, Instant};

use leasehold_testbed::{ReplicaSet, ReservedPort};
use mongodb::bson::doc;

use crate::scene::Scene;

const TIMEOUT: &str = "--timeout=3s";
/// Much longer than the sum of the time limits of the sequential checks: name resolution, primary
/// discovery, member states and HTTP port.
const BOUND: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_host_that_does_not_resolve_is_named_and_the_local_checks_still_run() {
    let scene = Scene::new().await;
    let began = Instant::now();
    let uri = "mongodb://no-such-host.invalid/?replicaSet=rs0";
    let answer = scene.check(uri).flag(TIMEOUT).run().await;
    assert!(began.elapsed() < BOUND, "{:?}", began.elapsed());
    assert_eq!(answer.code, 2);
    answer.says("name-resolution", "failed", "does not know the host");
    answer.says("server", "failed", "cannot resolve the host name");
    answer.says("status-directory", "ok", "can be created");
    answer.says("http-port", "ok", "is free");
    for name in [
        "find",
        "insert",
        "update",
        "change-stream",
        "majority-write",
        "clock-rate",
    ] {
        answer.says(name, "skipped", "the primary was not reached");
    }
}

#[tokio::test]
async fn a_port_without_a_server_is_named() {
    let scene = Scene::new().await;
    let closed = ReservedPort::new();
    let uri = format!("mongodb://127.0.0.1:{}/?replicaSet=rs0", closed.number());
    let answer = scene.check(&uri).flag(TIMEOUT).run().await;
    answer.says("name-resolution", "ok", "127.0.0.1");
    answer.says("server", "failed", "connection refused");
    answer.says("server", "failed", "check host and port");
    answer.says("deployment", "failed", "no primary");
    answer.says("credentials", "skipped", "not reached");
    assert_eq!(answer.code, 2);
}

#[tokio::test]
async fn members_that_are_down_are_named_and_without_a_majority_there_is_no_primary() {
    let scene = Scene::new().await;
    let set = ReplicaSet::start().await;
    let primary = set.primary().await;
    let [down, frozen] = [(primary + 1) % 3, (primary + 2) % 3];
    set.kill(down);
    let uri = set.uri();
    let answer = scene.check(&uri).run().await;
    assert_eq!(answer.troubles()[0], "server failed", "{}", answer.stdout);
    let servers = answer.all("server");
    for server in &servers {
        let is_down = server["subject"] == set.node(down).address();
        assert_eq!(server["result"] == "failed", is_down, "{server:#}");
    }
    answer.says("deployment", "ok", "data-bearing members: 3");
    answer.says("linearizable-read", "ok", "");

    set.stop(frozen);
    let began = Instant::now();
    // The primary steps down as soon as it notices the loss of the majority. Until then, its writes
    // time out.
    let answer = scene.check(&uri).flag(TIMEOUT).run().await;
    set.cont(frozen);
    assert!(began.elapsed() < 2 * BOUND, "{:?}", began.elapsed());
    assert_eq!(answer.code, 2);
    let shown = answer.all("server");
    let of_frozen = shown
        .iter()
        .find(|s| s["subject"] == set.node(frozen).address());
    assert_eq!(of_frozen.unwrap()["result"], "failed", "{}", answer.stdout);
}

#[tokio::test]
async fn a_set_without_a_primary_fails_although_its_servers_answer() {
    let scene = Scene::new().await;
    let set = ReplicaSet::builder().members(1).start().await;
    let step_down = doc! { "replSetStepDown": 600, "force": true };
    // The server may close the connection before it answers.
    let _ = set.command(0, step_down).await;
    let answer = scene.check(&set.uri()).flag(TIMEOUT).run().await;
    answer.says("server", "ok", "is a secondary");
    answer.says("deployment", "failed", "no primary");
    assert_eq!(
        answer.troubles(),
        ["deployment failed"],
        "{}",
        answer.stdout
    );
    assert_eq!(answer.code, 2);
}

#[tokio::test]
async fn a_standalone_server_causes_a_warning() {
    let scene = Scene::new().await;
    let set = ReplicaSet::builder().standalone().start().await;
    let answer = scene.check(&set.uri()).run().await;
    answer.says("deployment", "warning", "standalone server");
    answer.says(
        "deployment",
        "warning",
        "use a replica set of three members",
    );
    assert_eq!(
        answer.troubles(),
        ["deployment warning"],
        "{}",
        answer.stdout
    );
    answer.says("insert", "ok", "");
    answer.says("change-stream", "skipped", "no change streams");
    answer.says("majority-write", "skipped", "no majority");
    assert_eq!(answer.code, 1);

    let as_set = format!("{}replicaSet=rs0", set.uri());
    let answer = scene.check(&as_set).run().await;
    let what = "is a standalone server, not in replica set \"rs0\"";
    answer.says("server", "failed", what);
    answer.says("deployment", "failed", "correct replicaSet");
    assert_eq!(answer.code, 2);
}

#[tokio::test]
async fn a_set_other_than_the_set_of_the_status_directory_is_refused() {
    let scene = Scene::new().await;
    let directory = scene.path("status");
    std::fs::create_dir(&directory).unwrap();
    let record = r#"{"schema":1,"set":"rs9","members":["db:1"],"seeds":["db:1"]}"#;
    std::fs::write(directory.join("deployment"), record).unwrap();
    let answer = scene.check(&scene.set.uri()).run().await;
    answer.says(
        "deployment-record",
        "failed",
        "belongs to replica set rs9 (db:1)",
    );
    answer.says(
        "deployment-record",
        "failed",
        "leads to replica set testbed",
    );
    assert_eq!(answer.code, 2);
}

#[tokio::test]
async fn servers_of_other_sets_fail_and_a_missing_set_name_is_a_warning() {
    let scene = Scene::new().await;
    let [set, other] = [
        ReplicaSet::builder().members(1).start().await,
        ReplicaSet::builder().name("other").members(1).start().await,
    ];
    let servers = format!("{},{}", set.node(0).address(), other.node(0).address());
    // The driver ignores the server of the other set, but the command must report the wrong
    // connection string.
    let named = format!("mongodb://{servers}/?replicaSet=testbed");
    let answer = scene.check(&named).flag(TIMEOUT).run().await;
    let stranger = format!("{} is part of replica set other", other.node(0).address());
    answer.says("one-deployment", "failed", &stranger);
    answer.says("deployment", "warning", "replica set \"testbed\"");
    assert_eq!(answer.code, 2);
    let unnamed = format!("mongodb://{servers}/");
    let answer = scene.check(&unnamed).flag(TIMEOUT).run().await;
    answer.says("deployment", "failed", "MongoDB URI refused");
    answer.says("deployment", "failed", "two candidates can lead");
    assert_eq!(answer.code, 2);

    let port = set.node(0).port();
    let aliases = format!("mongodb://localhost:{port},127.0.0.1:{port}/");
    let answer = scene.check(&aliases).flag(TIMEOUT).run().await;
    answer.says("one-deployment", "warning", "does not name it");
    answer.says("one-deployment", "warning", "add replicaSet=testbed");
}

#[tokio::test]
async fn a_member_on_ipv6_is_recognized_by_its_address() {
    let scene = Scene::new().await;
    let set = ReplicaSet::builder()
        .members(1)
        .flags(["--ipv6"])
        .start()
        .await;
    let address = format!("[::1]:{}", set.node(0).port());
    let config = set.command(0, doc! { "replSetGetConfig": 1 }).await;
    let mut config = config.unwrap().get_document("config").unwrap().clone();
    config.insert("version", 1_000);
    config.insert("members", vec![doc! { "_id": 0, "host": &address }]);
    let moved = set.command(0, doc! { "replSetReconfig": config, "force": true });
    moved.await.unwrap();
    let began = Instant::now();
    let uri = format!("mongodb://{address}/?replicaSet=testbed");
    let answer = scene.check(&uri).run().await;
    // If the command could not match the member's state to its address, the check would run until
    // its time limit.
    assert!(began.elapsed() < BOUND, "{:?}", began.elapsed());
    answer.says("name-resolution", "ok", "::1");
    answer.says("server", "ok", "accepts writes");
    let server = answer.one("server");
    assert_eq!(server["subject"], address.as_str(), "{server:#}");
    answer.says("tls", "ok", "over loopback");
}
