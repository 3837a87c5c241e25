//! Setup and waits that the tests of this binary share.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_testbed::{Daemon, DaemonTimings, ReplicaSet, SharedSet, Stage};
use mongodb::bson::Bson;
use serde_json::Value;

/// Timeout of waits, which end as soon as their condition holds.
pub(crate) const LONG: Duration = Duration::from_secs(60);

const PROGRAM: &str = env!("CARGO_BIN_EXE_leasehold");
pub(crate) const POLL: Duration = Duration::from_millis(5);

/// A set for tests that do not disturb it.
static SHARED: SharedSet = SharedSet::new(ReplicaSet::builder);

/// A database of the shared set.
pub(crate) async fn shared_stage() -> Stage {
    Stage::new(PROGRAM, SHARED.get().await)
}

/// A stage on a set of the test's own.
pub(crate) fn stage_on(set: &Arc<ReplicaSet>) -> Stage {
    Stage::new(PROGRAM, Arc::clone(set))
}

/// Starts `a`, which leads, and `b`, which follows it.
pub(crate) async fn pair(stage: &Stage) -> (Daemon, Daemon) {
    let a = stage.candidate("a").start();
    a.wait_leads(LONG).await;
    let b = stage.candidate("b").start();
    follows(&b, "a").await;
    (a, b)
}

/// Waits until `daemon` reports `leader` as the leader.
pub(crate) async fn follows(daemon: &Daemon, leader: &str) {
    let follower = |status: &Value| {
        status["role"] == "follower" && status["holder"]["identity"].as_str() == Some(leader)
    };
    daemon.wait_until(follower, LONG).await;
}

/// Waits until one of them leads, and returns it.
pub(crate) async fn leader_of<'a>(daemons: &[&'a Daemon]) -> &'a Daemon {
    let end = Instant::now() + LONG;
    loop {
        if let Some(leader) = daemons.iter().find(|daemon| daemon.leads()) {
            return leader;
        }
        let logs = || {
            daemons
                .iter()
                .map(|daemon| daemon.logs())
                .collect::<String>()
        };
        assert!(Instant::now() < end, "nobody leads:\n{}", logs());
        tokio::time::sleep(POLL).await;
    }
}

/// Waits until `condition` holds.
pub(crate) async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !condition().await {
        assert!(Instant::now() < end, "not so after {LONG:?}: {what}");
        tokio::time::sleep(POLL).await;
    }
}

/// Asserts that `condition` holds throughout. Proving an absence is the only use of a fixed time.
pub(crate) async fn throughout(
    time: Duration,
    what: &str,
    mut condition: impl AsyncFnMut() -> bool,
) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        assert!(condition().await, "not so throughout: {what}");
        tokio::time::sleep(POLL).await;
    }
}

/// Asserts that no process other than the holder of `claim` acquires the lease for this time.
pub(crate) async fn undisturbed(stage: &Stage, claim: &Option<Bson>, time: Duration) {
    let stored = stage.stored();
    throughout(time, "the same claim holds the lease", async || {
        stored.claim().await == *claim
    })
    .await;
}

/// Deadline of the authority in the status file. `None` if the file shows none.
pub(crate) fn valid_until_ns(daemon: &Daemon) -> Option<u64> {
    daemon.status()["valid_until_boottime_ns"].as_u64()
}

/// Waits until a renewal later than the current one is acknowledged.
pub(crate) async fn renews(daemon: &Daemon) {
    let before = valid_until_ns(daemon);
    let later = |status: &Value| status["valid_until_boottime_ns"].as_u64() > before;
    daemon.wait_until(later, LONG).await;
}

/// The token that a daemon leads with.
pub(crate) fn token(daemon: &Daemon) -> Option<i64> {
    daemon.status()["token"].as_i64()
}

/// Number of store calls of a kind with this outcome.
pub(crate) async fn operations(daemon: &Daemon, operation: &str, outcome: &str) -> f64 {
    let labels = [
        format!("operation=\"{operation}\""),
        format!("outcome=\"{outcome}\""),
    ];
    sum(daemon, "leasehold_store_operations_total", &labels).await
}

/// Number of role changes with this reason.
pub(crate) async fn transitions(daemon: &Daemon, reason: &str) -> f64 {
    let labels = [format!("reason=\"{reason}\"")];
    sum(daemon, "leasehold_transitions_total", &labels).await
}

async fn sum(daemon: &Daemon, name: &str, labels: &[String]) -> f64 {
    let mut page = String::new();
    // The daemon listens a few milliseconds after its start.
    eventually("there is a metrics page", async || {
        let answer = daemon.http("/metrics").await;
        page = answer.map(|(_, text)| text).unwrap_or_default();
        !page.is_empty()
    })
    .await;
    let series = page.lines().filter(|line| {
        line.starts_with(name) && labels.iter().all(|label| line.contains(label.as_str()))
    });
    series
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

/// Waits until this many role changes had this reason. The file says "not leader" at the deadline
/// on its own, and may be ahead of the role change.
pub(crate) async fn transitioned(daemon: &Daemon, reason: &str, times: u32) {
    eventually("the change of role is counted", async || {
        transitions(daemon, reason).await >= f64::from(times)
    })
    .await;
    assert_eq!(transitions(daemon, reason).await, f64::from(times));
}

/// Instant on CLOCK_BOOTTIME at which the renewal or acquisition in a leader's status file was
/// sent. Its authority may have ended since.
pub(crate) fn sent_ns(daemon: &Daemon, timings: DaemonTimings) -> u64 {
    let until = valid_until_ns(daemon).expect("it leads");
    until - nanos(timings.renew_deadline)
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).expect("short")
}

/// Number of log lines that contain this text.
pub(crate) fn said(daemon: &Daemon, text: &str) -> usize {
    daemon
        .logs()
        .lines()
        .filter(|line| line.contains(text))
        .count()
}
