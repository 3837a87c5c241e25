//! Starts two routers in front of a replica set.

use std::sync::Arc;

use leasehold_testbed::process::exit_code;
use leasehold_testbed::{Daemon, ReplicaSet, Router, SharedSet, Stage};
use serde_json::Value;

pub(crate) use leasehold_testbed::wait::{LONG, eventually};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_leasehold");

static SHARED: SharedSet = SharedSet::new(ReplicaSet::builder);

/// Two routers in front of a replica set. Candidates reach the set only through the routers.
pub(crate) struct Cluster {
    pub(crate) stage: Stage,
    pub(crate) routers: [Router; 2],
}

impl Cluster {
    pub(crate) async fn shared() -> Self {
        Self::on(SHARED.get().await)
    }

    pub(crate) fn on(set: Arc<ReplicaSet>) -> Self {
        let routers = [Router::start(&set), Router::start(&set)];
        let stage = Stage::new(PROGRAM, set).uri(Router::uri(&routers));
        Self { stage, routers }
    }

    pub(crate) async fn pair(&self) -> (Daemon, Daemon) {
        pair(&self.stage).await
    }

    pub(crate) async fn check(&self) -> (Value, i32, Vec<Value>) {
        check(&self.stage, &Router::uri(&self.routers)).await
    }
}

/// Starts `a`, which leads, and then its follower `b`.
pub(crate) async fn pair(stage: &Stage) -> (Daemon, Daemon) {
    let a = stage.candidate("a").leading(LONG).await;
    (a, stage.candidate("b").following("a", LONG).await)
}

/// Runs `leasehold check`. Returns the result of the check `deployment`, the exit code, and the
/// failed checks.
pub(crate) async fn check(stage: &Stage, uri: &str) -> (Value, i32, Vec<Value>) {
    let arguments = [
        "check",
        "--output=json",
        "--http-listen=127.0.0.1:0",
        "--timeout=30s",
    ];
    let lease = format!("--lease={}", stage.lease());
    let directory = tempfile::tempdir().expect("a directory");
    let status = format!(
        "--status-directory={}",
        directory.path().join("s").display()
    );
    let words: Vec<_> = arguments.into_iter().chain([&*lease, &*status]).collect();
    let mut command = stage.command(uri, &words);
    let output = command.output().await.expect("it runs");
    let shown: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let checks = shown["checks"].as_array().expect("a list");
    let found = checks.iter().find(|check| check["name"] == "deployment");
    let found = found.expect("the check is in the output").clone();
    let failed = checks.iter().filter(|check| check["result"] == "failed");
    (found, exit_code(output.status), failed.cloned().collect())
}
