//! What the tests of this binary begin with and wait for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_testbed::{Daemon, DaemonTimings, ReplicaSet, SharedSet, Stage};
use mongodb::bson::Bson;
use serde_json::Value;

/// Ends as soon as what is waited for is so; this long only when it never is.
pub(crate) const LONG: Duration = Duration::from_secs(60);

const PROGRAM: &str = env!("CARGO_BIN_EXE_leasehold");
pub(crate) const POLL: Duration = Duration::from_millis(5);

/// For tests that leave the set itself alone.
static SHARED: SharedSet = SharedSet::new(ReplicaSet::builder);

/// A database of the shared set.
pub(crate) async fn shared_stage() -> Stage {
    Stage::new(PROGRAM, SHARED.get().await)
}

/// A stage on a set of one's own.
pub(crate) fn stage_on(set: &Arc<ReplicaSet>) -> Stage {
    Stage::new(PROGRAM, Arc::clone(set))
}

/// `a` leads and `b` follows it.
pub(crate) async fn pair(stage: &Stage) -> (Daemon, Daemon) {
    let a = stage.candidate("a").start();
    a.wait_leads(LONG).await;
    let b = stage.candidate("b").start();
    follows(&b, "a").await;
    (a, b)
}

/// Waits until `daemon` says that `leader` leads.
pub(crate) async fn follows(daemon: &Daemon, leader: &str) {
    let follower = |status: &Value| {
        status["role"] == "follower" && status["holder"]["identity"].as_str() == Some(leader)
    };
    daemon.wait_until(follower, LONG).await;
}

/// Waits until one of them leads; which.
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

/// Proves an absence, the one use of a fixed time: `condition` holds throughout.
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

/// Nobody but the holder of `claim` writes itself into the document for a while.
pub(crate) async fn undisturbed(stage: &Stage, claim: &Option<Bson>, time: Duration) {
    let stored = stage.stored();
    throughout(time, "the same claim holds the lease", async || {
        stored.claim().await == *claim
    })
    .await;
}

/// The end of the authority that the file shows; `None` while it shows none.
pub(crate) fn valid_until_ns(daemon: &Daemon) -> Option<u64> {
    daemon.status()["valid_until_boottime_ns"].as_u64()
}

/// Waits until a renewal later than those so far is acknowledged.
pub(crate) async fn renews(daemon: &Daemon) {
    let before = valid_until_ns(daemon);
    let later = |status: &Value| status["valid_until_boottime_ns"].as_u64() > before;
    daemon.wait_until(later, LONG).await;
}

/// The token that a daemon leads with.
pub(crate) fn token(daemon: &Daemon) -> Option<i64> {
    daemon.status()["token"].as_i64()
}

/// How many store calls of a kind ended so.
pub(crate) async fn operations(daemon: &Daemon, operation: &str, outcome: &str) -> f64 {
    let labels = [
        format!("operation=\"{operation}\""),
        format!("outcome=\"{outcome}\""),
    ];
    sum(daemon, "leasehold_store_operations_total", &labels).await
}

/// How many changes of role had this reason.
pub(crate) async fn transitions(daemon: &Daemon, reason: &str) -> f64 {
    let labels = [format!("reason=\"{reason}\"")];
    sum(daemon, "leasehold_transitions_total", &labels).await
}

async fn sum(daemon: &Daemon, name: &str, labels: &[String]) -> f64 {
    let mut page = String::new();
    // It listens a few milliseconds after its start.
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

/// Waits until so many changes of role had this reason. The file says "not
/// leader" at the deadline by itself, and may be ahead of the change.
pub(crate) async fn transitioned(daemon: &Daemon, reason: &str, times: u32) {
    eventually("the change of role is counted", async || {
        transitions(daemon, reason).await >= f64::from(times)
    })
    .await;
    assert_eq!(transitions(daemon, reason).await, f64::from(times));
}

/// The instant on CLOCK_BOOTTIME at which the renewal or acquisition was sent
/// that the file of a leader shows, which may have ended since.
pub(crate) fn sent_ns(daemon: &Daemon, timings: DaemonTimings) -> u64 {
    let until = valid_until_ns(daemon).expect("it leads");
    until - nanos(timings.renew_deadline)
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).expect("short")
}

/// How often the log has a line with this text.
pub(crate) fn said(daemon: &Daemon, text: &str) -> usize {
    daemon
        .logs()
        .lines()
        .filter(|line| line.contains(text))
        .count()
}
