//! Goal: a daemon refuses a new connection string that names another replica set, because two
//! daemons could then lead, one on each set. Method: write the connection string of another set to
//! one daemon's URI file, and make the daemon's calls fail, so that the daemon rereads the file.
//! A restart on a status directory that records the old replica set is another test's subject.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Instant;

use leasehold_testbed::{Daemon, DaemonTimings, LeaderMonitor, ReplicaSet, Stage, StoredLease};
use mongodb::bson::doc;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::cast::{FREE, ran};
use crate::fixture::{LONG, eventually, monitored_pair, set_of_one, stage_on};

async fn refuses(daemon: &Daemon) {
    daemon
        .wait_logged("MongoDB URI refused: the connection string leads to ", LONG)
        .await;
}

/// Asserts, for longer than a takeover takes, that no other candidate leads and that no candidate
/// writes to the other set. Returns the lease on the other set.
async fn leads_alone(
    leader: &Daemon,
    monitor: &LeaderMonitor,
    stage: &Stage,
    elsewhere: &ReplicaSet,
) -> StoredLease {
    let lease = DaemonTimings::SHORT.lease_duration;
    let end = Instant::now() + lease * 3;
    while Instant::now() < end {
        leader.wait_renewal(LONG).await;
    }
    assert_eq!(monitor.leaders(), [leader.identity()]);
    let there = StoredLease::new(
        &elsewhere.client(),
        stage.database(),
        stage.collection(),
        "orders",
    );
    assert_eq!(there.try_get().await, None, "nothing was written there");
    there
}

#[tokio::test]
async fn i1_a_changed_connection_string_that_leads_to_another_set_is_refused() {
    let (set, elsewhere) = (set_of_one().await, set_of_one().await);
    let stage = stage_on(&set);
    let (a, b, monitor) = monitored_pair(&stage).await;
    std::fs::write(b.directory().join("uri"), elsewhere.uri()).expect("writable");
    let (reads, how) = (["find", "getMore"], doc! { "closeConnection": true });
    set.fail_commands_of((0, "leasehold/b"), &reads, "alwaysOn", how)
        .await;
    refuses(&b).await;
    set.clear_fail_point(0).await;
    leads_alone(&a, &monitor, &stage, &elsewhere).await;
    // `b` keeps using the set on which it started.
    a.kill();
    b.wait_leads(LONG).await;
    assert_eq!(b.token(), Some(2));
    assert_eq!(stage.stored().holder().await.as_deref(), Some("b"));
}

#[tokio::test]
async fn i1_a_restart_does_not_follow_a_connection_string_to_another_set() {
    let (set, elsewhere) = (set_of_one().await, set_of_one().await);
    let stage = stage_on(&set);
    let (a, mut b, monitor) = monitored_pair(&stage).await;
    let known = b.status_directory().join("deployment");
    eventually("the deployment is recorded", async || known.exists()).await;
    b.replace_uri(&elsewhere.uri());
    b.restart_same_directory();
    refuses(&b).await;
    let detail = format!("remove {} of each", known.display());
    let records = b.log_records();
    assert!(
        records.iter().any(|r| r.to_string().contains(&detail)),
        "{detail} in {records:?}"
    );
    let there = leads_alone(&a, &monitor, &stage, &elsewhere).await;
    // Move as the log message says: stop all daemons and remove the file. Stop the monitor first,
    // because tokens start at 1 again on the new set.
    drop(monitor);
    a.kill();
    b.kill();
    std::fs::remove_file(&known).expect("removed");
    b.restart_same_directory();
    b.wait_leads(LONG).await;
    assert_eq!(there.holder().await.as_deref(), Some("b"));
}

/// Returns the port of an address that can be switched to another server, like a DNS name or a
/// Service. A switch closes all connections.
async fn address(target: watch::Receiver<u16>) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut target = target.clone();
            tokio::spawn(async move {
                let port = *target.borrow_and_update();
                let server = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await;
                let Ok(mut server) = server else { return };
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                    _ = target.changed() => {}
                }
            });
        }
    });
    port
}

#[tokio::test]
async fn i1_a_host_name_that_moves_to_another_set_is_refused() {
    refuses_a_move_to(set_of_one().await).await;
}

#[tokio::test]
async fn i1_a_host_name_that_moves_from_a_set_to_a_standalone_server_is_refused() {
    let standalone = ReplicaSet::builder().standalone().start().await;
    refuses_a_move_to(Arc::new(standalone)).await;
}

async fn refuses_a_move_to(elsewhere: Arc<ReplicaSet>) {
    let set = set_of_one().await;
    let (name, target) = watch::channel(set.node(0).port());
    let port = address(target).await;
    let stage = stage_on(&set);
    let a = stage.candidate("a").leading(LONG).await;
    let uri = format!("mongodb://127.0.0.1:{port}/?directConnection=true");
    let b = stage.candidate("b").uri(&uri).following("a", LONG).await;
    let monitor = LeaderMonitor::of([&a, &b]);
    name.send_replace(elsewhere.node(0).port());
    refuses(&b).await;
    leads_alone(&a, &monitor, &stage, &elsewhere).await;
    // `b` contends as before once its own set is reachable again.
    name.send_replace(set.node(0).port());
    a.kill();
    b.wait_leads(LONG).await;
    assert_eq!(stage.stored().holder().await.as_deref(), Some("b"));
}

#[tokio::test]
async fn a_string_that_was_mistaken_from_the_start_can_be_corrected() {
    let (set, elsewhere) = (set_of_one().await, set_of_one().await);
    let stage = stage_on(&set);
    // The driver rejects the server, because its replica set has another name.
    let mistaken = elsewhere.uri().replace("replicaSet=", "replicaSet=other-");
    let mut a = stage.candidate("a").uri(&mistaken).start();
    a.wait_logged("correct replicaSet or the hosts in the MongoDB URI", LONG)
        .await;
    assert!(!a.status_directory().join("deployment").exists());
    a.replace_uri(&set.uri());
    a.wait_leads(LONG).await;
    a.restart_same_directory();
    a.wait_leads(LONG).await;
}

#[tokio::test]
async fn a_direct_connection_to_a_secondary_can_be_corrected() {
    let set = Arc::new(ReplicaSet::start().await);
    let stage = stage_on(&set);
    let secondary = (set.primary().await + 1) % set.member_count();
    let direct = set.direct_uri(secondary);
    let remedy = "remove directConnection from the MongoDB URI";
    let job = ran(stage.command(&direct, &["lock", FREE, "--", "true"])).await;
    assert_eq!(job.code, Some(69), "{}", job.error);
    assert!(job.last().contains(remedy), "{}", job.error);
    let a = stage.candidate("a").uri(&direct).start();
    a.wait_logged(remedy, LONG).await;
    a.replace_uri(&set.uri());
    a.wait_leads(LONG).await;
}
