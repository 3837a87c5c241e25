//! Goal: `leasehold replicas` succeeds only if every replica answers, exactly one leads, and all
//! contend for one lease in one collection. Otherwise the command reports each problem.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use leasehold_testbed::{Daemon, ReplicaSet, Stage, skip};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

use crate::command::{Answer, LONG, run, shared_stage};

async fn replicas(daemons: &[&Daemon], more: &[&str]) -> Answer {
    let places = daemons
        .iter()
        .map(|daemon| format!("127.0.0.1:{}", daemon.port()));
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.arg("replicas").args(places).args(more).env_clear();
    run(command).await
}

#[tokio::test]
async fn one_leader_on_one_store_passes_and_each_deviation_is_reported() {
    let stage = shared_stage().await;
    let a = stage.candidate("a").leading(LONG).await;
    let b = stage.candidate("b").start();
    let lease = stage.lease();
    let expected = ["--lease", lease, "--expect", "2", "--wait", "1m"];
    // The command waits until the second daemon is connected to MongoDB.
    replicas(&[&a, &b], &expected).await.expect(
        0,
        &[
            "a  leader token 1",
            "b  follower",
            "ok: 2 replicas, one leader: a",
        ],
    );
    let answer = replicas(&[&a, &b], &["-o", "json"])
        .await
        .expect(0, &[])
        .json();
    assert_eq!(answer["ok"], true);
    let states: Vec<_> = answer["replicas"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| &r["state"])
        .collect();
    assert_eq!(states.len(), 2);
    for state in states {
        assert_eq!(state["lease"], lease);
        assert_eq!(state["store"]["collection"], stage.collection());
    }

    replicas(&[&b], &[]).await.expect(
        1,
        &["failed: no replica leads", "to fix: give a's address too"],
    );
    replicas(&[&a, &b], &["--expect", "3"])
        .await
        .expect(1, &["failed: 2 replicas found, 3 expected"]);
    replicas(&[&a, &b], &["--lease", "else"])
        .await
        .expect(1, &["failed: not all contend for else"]);

    // The other database has a lease of the same name, so both `a` and `c` lead.
    let elsewhere = shared_stage().await;
    let c = elsewhere.candidate("c").lease(lease).leading(LONG).await;
    let answer = replicas(&[&a, &b, &c], &["-o", "json"])
        .await
        .expect(1, &[])
        .json();
    let problems = answer["problems"].as_array().unwrap();
    assert_eq!(problems.len(), 2, "{answer}");
    let different = problems[0].as_str().unwrap();
    assert!(different.starts_with("different stores"), "{answer}");
    assert_eq!(problems[1], json!("2 replicas lead: a, c"));

    b.kill();
    replicas(&[&a, &b], &[])
        .await
        .expect(1, &["no answer: ", "failed: 1 replica without an answer"]);
}

/// Listens on `from`, and forwards each connection to this port of 127.0.0.1 until the test ends.
async fn forward(from: (&str, u16), to: u16) {
    let listener = TcpListener::bind(from).await.expect("a free port");
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            // Drops the client's connection if the daemon is not listening yet.
            let Ok(mut daemon) = TcpStream::connect(("127.0.0.1", to)).await else {
                continue;
            };
            tokio::spawn(
                async move { tokio::io::copy_bidirectional(&mut client, &mut daemon).await },
            );
        }
    });
}

/// Runs the command in a mount namespace with another /etc/hosts, which replaces the DNS records of
/// a headless Service.
fn resolving(hosts: &Path, arguments: &[&str]) -> Command {
    let script = "mount --bind \"$0\" /etc/hosts && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).arg(hosts);
    command.arg(env!("CARGO_BIN_EXE_leasehold")).args(arguments);
    command
}

#[tokio::test]
async fn replicas_on_a_store_that_is_not_a_replica_set_are_compared() {
    let server = ReplicaSet::builder().members(1).standalone().start().await;
    let stage = Stage::new(env!("CARGO_BIN_EXE_leasehold"), Arc::new(server));
    let a = stage.candidate("a").leading(LONG).await;
    let b = stage.candidate("b").following("a", LONG).await;
    let store = format!("{}.{}, standalone", stage.database(), stage.collection());
    replicas(&[&a, &b], &["--expect", "2", "--wait", "1m"])
        .await
        .expect(0, &[&store, "ok: 2 replicas, one leader: a"]);
}

#[tokio::test]
async fn a_name_resolves_to_all_replicas() {
    let place = tempfile::tempdir().unwrap();
    let hosts = place.path().join("hosts");
    fs::write(
        &hosts,
        "127.0.0.1 orders-headless\n127.0.0.2 orders-headless\n",
    )
    .unwrap();
    let trial = run(resolving(&hosts, &["--version"])).await;
    if trial.code != 0 {
        skip("needs root, to mount another /etc/hosts");
        return;
    }
    let stage = shared_stage().await;
    let a = stage.candidate("a").leading(LONG).await;
    let b = stage.candidate("b").start();
    // Each pod of a Service has its own address and the Service's port.
    forward(("127.0.0.2", a.port()), b.port()).await;
    let service = format!("orders-headless:{}", a.port());
    let asking = ["replicas", &service, "--expect", "2", "--wait", "1m"];
    run(resolving(&hosts, &asking)).await.expect(
        0,
        &["127.0.0.1:", "127.0.0.2:", "ok: 2 replicas, one leader: a"],
    );
    a.kill();
    run(resolving(&hosts, &["replicas", &service]))
        .await
        .expect(1, &["failed: 1 replica without an answer"]);
}

#[tokio::test]
async fn a_replica_with_an_ipv4_and_an_ipv6_address_is_one() {
    let place = tempfile::tempdir().unwrap();
    let hosts = place.path().join("hosts");
    fs::write(&hosts, "127.0.0.1 orders-headless\n::1 orders-headless\n").unwrap();
    if run(resolving(&hosts, &["--version"])).await.code != 0 {
        skip("needs root, to mount another /etc/hosts");
        return;
    }
    let stage = shared_stage().await;
    let a = stage.candidate("a").leading(LONG).await;
    let (port, service) = (a.port(), format!("orders-headless:{}", a.port()));
    let asking = [
        "replicas",
        service.as_str(),
        "--expect",
        "1",
        "--wait",
        "1m",
    ];
    // At first, the daemon listens only on IPv4.
    let refused = format!("[::1]:{port}  not used by any replica: ");
    run(resolving(&hosts, &asking))
        .await
        .expect(0, &[&refused, "ok: 1 replica, one leader: a"]);
    forward(("::1", port), port).await;
    let both = format!("127.0.0.1:{port}, [::1]:{port}  a  leader");
    run(resolving(&hosts, &asking))
        .await
        .expect(0, &[&both, "ok: 1 replica, one leader: a"]);
}

#[tokio::test]
async fn another_program_is_named_with_the_remedy() {
    let stage = shared_stage().await;
    let uri = stage.set().uri();
    let servers = uri.strip_prefix("mongodb://").expect("a connection string");
    let server = servers.split([',', '/']).next().expect("a server");
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    let url = format!("http://{server}/status");
    command.args(["replicas", &url]).env_clear();
    run(command).await.expect(
        1,
        &[
            "not a leasehold daemon: it answered as a MongoDB server",
            "failed: 1 address is not a leasehold daemon's",
            "to fix: pass the host and port of the daemon's http.listen",
        ],
    );
}

#[tokio::test]
async fn an_unresponsive_address_is_named_while_it_is_awaited() {
    // The kernel accepts the connection, but no process reads the request.
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let silent = listener.local_addr().expect("its address").to_string();
    let ask = |address: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command.args(["replicas", address]).env_clear();
        command
    };
    let connecting = format!("connecting to {silent} (1s of 3s)\n");
    let answer = run(ask(&silent)).await;
    assert_eq!(answer.stderr, connecting, "{answer:?}");
    answer.expect(1, &["no answer: timed out\n"]);
    drop(listener);
    run(ask(&silent))
        .await
        .expect(1, &["no answer: connection refused\n"]);
}

#[tokio::test]
async fn an_invalid_address_is_refused_with_the_expected_format() {
    let name_alone = "localhost is a lease name; give at least one HOST:PORT after it";
    let second = "invalid value 'b' for '<HOST:PORT>...': expected HOST:PORT";
    for (wrong, refusal) in [
        (&["localhost"][..], name_alone),
        (&["localhost:0"], "expected HOST:PORT"),
        (&[":9402"], "expected HOST:PORT"),
        (&["::1:9402"], "expected HOST:PORT"),
        (&["localhost:port"], "expected HOST:PORT"),
        (&["localhost:1", "b"], second),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command.arg("replicas").args(wrong).env_clear();
        run(command).await.expect(64, &[refusal]);
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command
        .args(["replicas", "nowhere.invalid:9402"])
        .env_clear();
    run(command).await.expect(
        1,
        &[
            "cannot resolve nowhere.invalid:9402",
            "failed: no replica found",
        ],
    );
}
