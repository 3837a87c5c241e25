//! Goal: no candidate leads if its connection string names servers of two deployments, because
//! otherwise one candidate could lead on each. Method: name two servers in one string: from two
//! replica sets with equal names, from two with different names, and from a set and a copy of its
//! data. The candidates have new status directories and use the primary that answers first.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use leasehold_testbed::{Daemon, DaemonTimings, LeaderMonitor, ReplicaSet, Stage, StoredLease};
use mongodb::bson::doc;
use tokio::net::TcpListener;

use crate::cast::{FREE, ran};
use crate::fixture::{LONG, SURVIVING, eventually, set_of_one, stage_on, throughout};

/// Start of the log line of a refusal, which is logged once, and then at growing intervals.
const REFUSED: &str = "MongoDB URI refused: ";

fn string_of(servers: &[String], options: &str) -> String {
    format!("mongodb://{}/?{options}", servers.join(","))
}

async fn other_name() -> ReplicaSet {
    let other = ReplicaSet::builder().name("other").members(1);
    other.start().await
}

fn stored_in(set: &ReplicaSet, stage: &Stage) -> StoredLease {
    StoredLease::new(
        &set.client(),
        stage.database(),
        stage.collection(),
        stage.lease(),
    )
}

/// Asserts that candidates refuse a string with the two servers in either order, write nothing, and
/// log the text `names`, which identifies the server of the other set.
async fn nobody_leads(stage: &Stage, servers: [String; 2], options: &str, names: &str) {
    let [first, second] = servers;
    let stage = stage.clone().timings(DaemonTimings::DEMO);
    let start = |identity, servers: &[String]| {
        let uri = string_of(servers, options);
        stage.candidate(identity).uri(&uri).start()
    };
    let candidates = [
        start("a", &[first.clone(), second.clone()]),
        start("b", &[second, first]),
    ];
    for candidate in &candidates {
        candidate.wait_logged(REFUSED, LONG).await;
        candidate.wait_logged(names, LONG).await;
    }
    let time = DaemonTimings::DEMO.lease_duration * 2;
    throughout(time, "no candidate leads", async || {
        candidates.iter().all(|candidate| !candidate.leads())
    })
    .await;
    for candidate in &candidates {
        let led = candidate.log_records();
        let led = led.iter().any(|record| record["to"] == "leader");
        assert!(!led && candidate.token().is_none(), "{}", candidate.logs());
    }
}

#[tokio::test]
async fn i1_a_string_that_names_two_sets_of_one_name_has_no_leader() {
    let (set, elsewhere) = (set_of_one().await, set_of_one().await);
    let stage = stage_on(&set);
    let servers = || [set.node(0).address(), elsewhere.node(0).address()];
    for options in ["", "replicaSet=testbed"] {
        nobody_leads(
            &stage,
            servers(),
            options,
            "part of another replica set testbed",
        )
        .await;
    }
    assert_eq!(stage.stored().try_get().await, None);
    assert_eq!(stored_in(&elsewhere, &stage).try_get().await, None);
}

#[tokio::test]
async fn i1_a_string_that_names_two_sets_of_different_names_has_a_leader_only_with_the_name() {
    let (set, elsewhere) = (set_of_one().await, other_name().await);
    let stage = stage_on(&set).timings(DaemonTimings::DEMO);
    let servers = || [elsewhere.node(0).address(), set.node(0).address()];
    nobody_leads(&stage, servers(), "", "is part of replica set").await;
    assert_eq!(stored_in(&elsewhere, &stage).try_get().await, None);
    // With replicaSet in the string, all candidates use the named replica set.
    let named = string_of(&servers(), "replicaSet=testbed");
    let a = stage.candidate("a").uri(&named).leading(LONG).await;
    assert_eq!(stage.stored().holder().await.as_deref(), Some("a"));
    drop(a);
}

#[tokio::test]
async fn i1_a_string_that_names_a_set_and_a_copy_of_its_data_has_no_leader() {
    let set = set_of_one().await;
    let stage = stage_on(&set);
    let copy = set.copy(0).await;
    set.primary().await;
    let servers = [set.node(0).address(), copy.address()];
    nobody_leads(&stage, servers, "", "part of another replica set testbed").await;
    assert_eq!(stage.stored().try_get().await, None);
}

#[tokio::test]
async fn i1_a_server_that_comes_back_as_part_of_another_set_ends_the_leadership() {
    let (set, elsewhere) = (set_of_one().await, set_of_one().await);
    let stage = stage_on(&set).timings(DaemonTimings::DEMO);
    elsewhere.kill(0);
    let both = [set.node(0).address(), elsewhere.node(0).address()];
    let uri = string_of(&both, "replicaSet=testbed");
    let a = stage.candidate("a").uri(&uri).leading(LONG).await;
    let monitor = LeaderMonitor::of([&a]);
    elsewhere.restart(0).await;
    a.wait_logged(REFUSED, LONG).await;
    a.wait_not_leader(LONG).await;
    stays_out(&a).await;
    // Correct the string without a restart.
    a.replace_uri(&set.uri());
    a.wait_leads(LONG).await;
    assert_eq!(stored_in(&elsewhere, &stage).try_get().await, None);
    assert_eq!(monitor.reigns().len(), 2);
}

#[tokio::test]
async fn i1_a_server_that_answers_late_as_part_of_another_set_ends_the_leadership() {
    let (set, elsewhere) = (set_of_one().await, set_of_one().await);
    let stage = stage_on(&set).timings(DaemonTimings::DEMO);
    let proxy = elsewhere.proxy();
    // The server accepts connections but does not answer.
    proxy.stall();
    let late = format!("127.0.0.1:{}", proxy.port(0));
    let uri = string_of(&[set.node(0).address(), late], "replicaSet=testbed");
    let a = stage.candidate("a").uri(&uri).leading(LONG).await;
    // By now the driver no longer monitors a server that is not a member.
    for _ in 0..10 {
        a.wait_renewal(LONG).await;
    }
    proxy.resume();
    a.wait_logged(REFUSED, LONG).await;
    a.wait_not_leader(LONG).await;
    stays_out(&a).await;
    assert_eq!(stored_in(&elsewhere, &stage).try_get().await, None);
}

async fn stays_out(a: &Daemon) {
    let time = DaemonTimings::DEMO.lease_duration * 2;
    throughout(time, "no candidate leads", async || !a.leads()).await;
}

/// Returns the address of a port that accepts connections but does not answer, and the number of
/// connections that it has accepted.
async fn counting_port() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("its address").to_string();
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&accepted);
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((connection, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::Relaxed);
            open.push(connection);
        }
    });
    (address, accepted)
}

#[tokio::test]
async fn short_losses_of_the_primary_do_not_multiply_the_comparisons() {
    const LOSSES: i32 = 6;
    let set = set_of_one().await;
    let stage = stage_on(&set).timings(DaemonTimings::DEMO);
    let (silent, accepted) = counting_port().await;
    let uri = string_of(&[set.node(0).address(), silent], "replicaSet=testbed");
    let a = stage.candidate("a").uri(&uri).leading(LONG).await;
    let accepted_in_a_while = async || {
        let before = accepted.load(Ordering::Relaxed);
        let end = Instant::now() + DaemonTimings::DEMO.lease_duration * 2;
        while Instant::now() < end {
            a.wait_renewal(LONG).await;
        }
        accepted.load(Ordering::Relaxed) - before
    };
    let usual = accepted_in_a_while().await;
    assert!(usual > 0, "the process repeats its comparison");
    let (renewals, how) = (["findAndModify"], doc! { "closeConnection": true });
    let mode = doc! { "times": LOSSES };
    set.fail_commands_of((0, "leasehold/a"), &renewals, mode, how)
        .await;
    a.wait_operations("renew", "unknown", f64::from(LOSSES))
        .await;
    a.wait_renewal(LONG).await;
    let later = accepted_in_a_while().await;
    // A lease duration may begin or end within the time.
    assert!(later <= usual * 2, "{later} connections instead of {usual}");
}

#[tokio::test]
async fn unlisted_names_of_a_set_do_not_count_as_another_set() {
    let set = set_of_one().await;
    let stage = stage_on(&set).timings(DaemonTimings::DEMO);
    let port = set.node(0).port();
    let names = [format!("localhost:{port}"), format!("127.0.0.1:{port}")];
    let uri = string_of(&names, "");
    let a = stage.candidate("a").uri(&uri).leading(LONG).await;
    a.wait_renewal(LONG).await;
    eventually("the deployment is recorded", async || {
        a.status_directory().join("deployment").exists()
    })
    .await;
    let record = std::fs::read_to_string(a.status_directory().join("deployment"));
    assert!(record.expect("readable").contains(r#""id":""#));
}

/// Asserts that commands with a new connection work if the string names all members and one
/// unrelated server.
async fn everyone_is_served(stage: &Stage, servers: &[String], silent: &str) {
    let uri = string_of(servers, "");
    let a = stage.candidate("a").uri(&uri).leading(LONG).await;
    // `prune` finds nothing to do; the lock to break does not exist.
    let commands: [(&[&str], i32); 5] = [
        (&["lock", FREE, "--no-wait", "--", "true"], 0),
        (&["lock", FREE, "--wait=3s", "--", "true"], 0),
        (&["locks"], 0),
        (&["locks", "prune", "--unused-for=1h"], 1),
        (&["locks", "break", "unused"], 78),
    ];
    for (command, code) in commands {
        let ran = ran(stage.command(&uri, command)).await;
        assert_eq!(ran.code, Some(code), "{silent}, {command:?}: {}", ran.error);
    }
    a.wait_renewal(LONG).await;
}

#[tokio::test]
async fn an_unresponsive_named_server_prevents_no_command() {
    let set = Arc::new(ReplicaSet::start().await);
    let members: Vec<_> = (0..3).map(|member| set.node(member).address()).collect();
    let stage = stage_on(&set).timings(SURVIVING);
    let secondary = (set.primary().await + 1) % 3;
    set.stop(secondary);
    everyone_is_served(&stage, &members, "a frozen member").await;
    set.cont(secondary);
    // No process listens on this port.
    let removed = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = removed.local_addr().expect("its address").to_string();
    drop(removed);
    let servers = [members, vec![address]].concat();
    everyone_is_served(&stage_on(&set).timings(SURVIVING), &servers, "removed").await;
}
