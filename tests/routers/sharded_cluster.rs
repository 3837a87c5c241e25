//! Goal: leasehold works behind the real routers of a sharded cluster, as docs/mongodb.md says: one
//! leader, handoffs within a renewal interval, takeovers without a delay, and no lost leadership in
//! an election of the shard. Method: a config server, one shard of three members, and two routers
//! from the program that `MONGOS` names.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_testbed::process::exit_code;
use leasehold_testbed::{DaemonTimings, Launch, LeaderMonitor, Process, ReplicaSet, ReservedPort};
use leasehold_testbed::{Scratch, Stage};
use mongodb::Client;
use mongodb::bson::doc;
use serde_json::Value;

use crate::fixture::{self, LONG, PROGRAM, eventually};

/// Allowance for round trips, the acquisition, and a busy machine.
const MARGIN: Duration = Duration::from_secs(4);

struct ShardedCluster {
    stage: Stage,
    uri: String,
    shard: Arc<ReplicaSet>,
    _config: ReplicaSet,
    _routers: Vec<(Process, ReservedPort)>,
    _logs: Scratch,
}

impl ShardedCluster {
    async fn start(mongos: &Path) -> Self {
        let config = ReplicaSet::builder().name("config").members(1);
        let shard = ReplicaSet::builder().flags(["--shardsvr"]);
        let (config, shard) = tokio::join!(config.config_server().start(), shard.start());
        let logs = Scratch::new();
        let named = |name: &str, set: &ReplicaSet| {
            let members = (0..set.member_count()).map(|index| set.node(index).address());
            format!("{name}/{}", members.collect::<Vec<_>>().join(","))
        };
        let config_address = named("config", &config);
        let start = |name: &str| {
            let port = ReservedPort::new();
            let router = Launch::new(mongos)
                .arguments(["--configdb", &config_address, "--bind_ip", "127.0.0.1"])
                .arguments(["--port", &port.number().to_string(), "--nounixsocket"])
                .arguments(["--logpath".as_ref(), logs.path().join(name).as_os_str()])
                .start();
            (router.expect("start mongos"), port)
        };
        let routers = vec![start("first.log"), start("second.log")];
        let addresses = routers
            .iter()
            .map(|(_, port)| format!("127.0.0.1:{}", port.number()));
        let uri = format!("mongodb://{}/", addresses.collect::<Vec<_>>().join(","));
        let client = Client::with_uri_str(&uri)
            .await
            .expect("a connection string");
        let admin = client.database("admin");
        let added = admin
            .run_command(
                doc! { "addShard": named(leasehold_testbed::replica_set::SET_NAME, &shard) },
            )
            .await;
        added.unwrap_or_else(|error| {
            let log = std::fs::read_to_string(logs.path().join("first.log"));
            panic!("addShard: {error}\n{}", log.unwrap_or_default());
        });
        let shard = Arc::new(shard);
        let stage = Stage::new(PROGRAM, Arc::clone(&shard)).uri(uri.clone());
        Self {
            stage,
            uri,
            shard,
            _config: config,
            _routers: routers,
            _logs: logs,
        }
    }

    /// Runs `leasehold lock` with a command that prints, and returns the exit code and the output.
    async fn lock(&self) -> (i32, String) {
        let words = ["lock", "nightly", "--", "echo", "ran"];
        let output = self.stage.command(&self.uri, &words).output().await;
        let output = output.expect("it runs");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        (exit_code(output.status), printed)
    }
}

/// Returns the program that `MONGOS` names.
#[allow(clippy::print_stdout, reason = "says why the test is skipped")]
fn mongos() -> Option<PathBuf> {
    let Some(path) = std::env::var_os("MONGOS").map(PathBuf::from) else {
        println!("skipped: MONGOS names no mongos");
        return None;
    };
    let trial = Command::new(&path).arg("--version").output();
    let trial = trial.unwrap_or_else(|error| panic!("MONGOS is {}: {error}", path.display()));
    assert!(
        trial.status.success(),
        "MONGOS is {}: {trial:?}",
        path.display()
    );
    Some(path)
}

#[tokio::test]
async fn real_routers_have_one_leader_at_a_time() {
    let Some(mongos) = mongos() else { return };
    let mut cluster = ShardedCluster::start(&mongos).await;
    let timings = DaemonTimings::DEFAULT;
    cluster.stage = cluster.stage.timings(timings);
    let (check, code, failed) = fixture::check(&cluster.stage, &cluster.uri).await;
    let detail = check["detail"].as_str().unwrap_or_default();
    assert!(
        detail.starts_with("sharded cluster through routers"),
        "{detail}"
    );
    assert_eq!((code, failed), (1, Vec::<Value>::new()), "only warnings");

    let (a, b) = fixture::pair(&cluster.stage).await;
    let monitor = LeaderMonitor::of([&a, &b]);
    cluster.shard.step_down_primary().await;
    a.wait_renewal(LONG).await;
    a.wait_renewal(LONG).await;
    assert_eq!(
        (monitor.leaders(), a.token()),
        (vec!["a".to_owned()], Some(1)),
        "{}",
        a.logs()
    );

    let asked = Instant::now();
    a.term();
    b.wait_leads(LONG).await;
    let took = asked.elapsed();
    assert!(
        took <= timings.renew_interval + MARGIN,
        "handoff: {took:?}: {}",
        b.logs()
    );
    assert_eq!(monitor.leaders(), ["a", "b"]);

    let c = cluster.stage.candidate("c").following("b", LONG).await;
    let monitor = LeaderMonitor::of([&b, &c]);
    b.kill();
    let killed = Instant::now();
    c.wait_leads(LONG).await;
    let took = killed.elapsed();
    assert!(
        took <= timings.lease_duration + MARGIN,
        "takeover: {took:?}: {}",
        c.logs()
    );
    assert_eq!(monitor.leaders(), ["b", "c"]);

    eventually("the lock is granted", async || {
        cluster.lock().await == (0, "ran\n".to_owned())
    })
    .await;
}
