//! Starts replica sets and daemons, and waits for their states, for all tests of this binary.

use std::sync::Arc;
use std::time::Duration;

use leasehold::election::{Identity, ResourceName, TimingSettings, Timings};
use leasehold::store::mongo::{MongoStore, StoreOptions};
pub(crate) use leasehold_testbed::leader_of;
pub(crate) use leasehold_testbed::wait::{LONG, eventually, found, throughout};
use leasehold_testbed::{
    Daemon, DaemonTimings, LeaderMonitor, Proxy, ReplicaSet, SharedSet, Stage,
};
use mongodb::bson::Bson;
use tokio::sync::mpsc;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_leasehold");
pub(crate) const POLL: Duration = Duration::from_millis(5);

/// Timings for leaderships that must survive a fault. Candidates notice faults as quickly as they
/// do with [`DaemonTimings::DEMO`], but a leadership survives a delay of several seconds on a busy
/// machine.
pub(crate) const SURVIVING: DaemonTimings = DaemonTimings {
    lease_duration: DaemonTimings::DEFAULT.lease_duration,
    renew_deadline: DaemonTimings::DEFAULT.renew_deadline,
    ..DaemonTimings::DEMO
};

/// The replica set for tests that do not disturb each other.
static SHARED: SharedSet = SharedSet::new(ReplicaSet::builder);

pub(crate) async fn shared_stage() -> Stage {
    Stage::new(PROGRAM, SHARED.get().await)
}

pub(crate) fn stage_on(set: &Arc<ReplicaSet>) -> Stage {
    Stage::new(PROGRAM, Arc::clone(set))
}

/// Starts `a`, which leads, and `b`, which follows.
pub(crate) async fn pair(stage: &Stage) -> (Daemon, Daemon) {
    let a = stage.candidate("a").leading(LONG).await;
    (a, stage.candidate("b").following("a", LONG).await)
}

/// Like [`pair`], with a monitor that records both daemons' leaderships.
pub(crate) async fn monitored_pair(stage: &Stage) -> (Daemon, Daemon, LeaderMonitor) {
    let (a, b) = pair(stage).await;
    let monitor = LeaderMonitor::of([&a, &b]);
    (a, b, monitor)
}

pub(crate) async fn set_of_one() -> Arc<ReplicaSet> {
    Arc::new(ReplicaSet::builder().members(1).start().await)
}

/// Returns a stage whose candidates cannot open a change stream as long as the proxy exists.
pub(crate) fn without_change_stream(stage: &Stage) -> (Proxy, Stage) {
    let (proxy, behind) = stage.proxied();
    proxy.hold_requests_containing("$changeStream");
    (proxy, behind)
}

/// Asserts that only the holder of `claim` holds the lease during this time.
pub(crate) async fn undisturbed(stage: &Stage, claim: &Option<Bson>, time: Duration) {
    let stored = stage.stored();
    throughout(time, "the same claim holds the lease", async || {
        stored.claim().await == *claim
    })
    .await;
}

/// Waits until the daemon's role has changed this many times for this reason. The status file says
/// "not leader" from the deadline on, possibly before the role changes.
pub(crate) async fn transitioned(daemon: &Daemon, reason: &str, times: u32) {
    eventually("the change of role is counted", async || {
        daemon.transitions(reason).await >= f64::from(times)
    })
    .await;
    assert_eq!(daemon.transitions(reason).await, f64::from(times));
}

/// Returns a store with generous timeouts, for a lease that no candidate contends for.
pub(crate) fn patient_store(
    stage: &Stage,
    lease: &str,
    identity: &str,
    timeout: Duration,
) -> MongoStore {
    let identity = Identity::new(identity).expect("legal");
    let mut options = StoreOptions::new(stage.set().uri(), identity);
    options.database = stage.database().to_owned();
    options.collection = stage.collection().to_owned();
    let timings = Timings::new(TimingSettings {
        lease_duration: Duration::from_secs(120),
        renew_deadline: Duration::from_secs(90),
        operation_timeout: timeout,
        ..TimingSettings::default()
    });
    options.timings = timings.expect("the durations satisfy the rules");
    let lease = ResourceName::new(lease).expect("legal");
    MongoStore::new(options, lease, mpsc::channel(1).0).0
}
