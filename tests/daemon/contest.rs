//! Gives each test its own lease on a shared replica set.

use std::sync::Arc;
use std::time::Duration;

use leasehold_testbed::{
    Daemon, DaemonBuilder, DaemonTimings, Proxy, ReplicaSet, SharedSet, StoredLease, wait,
};
use mongodb::bson::Document;
use serde_json::Value;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_leasehold");
/// Timeout of waits that take milliseconds on an idle machine, but much longer on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

static SET: SharedSet = SharedSet::new(ReplicaSet::builder);

pub(crate) struct Contest {
    set: Arc<ReplicaSet>,
    lease: String,
}

impl Contest {
    /// `lease` must be unique among all tests, because all tests share one set.
    pub(crate) async fn new(lease: &str) -> Self {
        Self {
            set: SET.get().await,
            lease: lease.to_owned(),
        }
    }

    pub(crate) fn set(&self) -> &ReplicaSet {
        &self.set
    }

    /// Builds a daemon with a lease of 6 s and an immediate handoff.
    pub(crate) fn candidate(&self, identity: &str) -> DaemonBuilder {
        self.candidate_at(identity, DaemonTimings::DEMO)
    }

    pub(crate) fn candidate_at(&self, identity: &str, timings: DaemonTimings) -> DaemonBuilder {
        self.candidate_with(identity, timings, "0s")
    }

    pub(crate) fn candidate_with(
        &self,
        identity: &str,
        timings: DaemonTimings,
        handoff_delay: &str,
    ) -> DaemonBuilder {
        Daemon::builder(PROGRAM)
            .lease(&self.lease)
            .identity(identity)
            .uri(&self.set.uri())
            .timings(timings)
            .handoff_delay(handoff_delay)
    }

    /// Returns a proxy, and a builder of a daemon that connects through the proxy and hands over
    /// immediately.
    pub(crate) fn behind_proxy(&self, timings: DaemonTimings) -> (Proxy, DaemonBuilder) {
        let proxy = self.set.proxy();
        let uri = self.set.proxied_uri(&proxy);
        (proxy, self.candidate_at("a", timings).uri(&uri))
    }

    pub(crate) fn stored(&self) -> StoredLease {
        StoredLease::new(&self.set.client(), "leasehold", "leases", &self.lease)
    }

    pub(crate) async fn document(&self) -> Document {
        self.stored().get().await
    }

    pub(crate) async fn last_ended(&self) -> Ended {
        let history = self.stored().history().await;
        let entry = history.last().unwrap();
        Ended {
            token: entry.get_i64("token").unwrap(),
            identity: entry.get_str("identity").unwrap().to_owned(),
            reason: entry.get_str("reason").unwrap().to_owned(),
        }
    }
}

pub(crate) struct Ended {
    pub(crate) token: i64,
    pub(crate) identity: String,
    pub(crate) reason: String,
}

pub(crate) async fn eventually(what: &str, condition: impl AsyncFnMut() -> bool) {
    wait::within(LONG, what, condition).await;
}

pub(crate) fn token(status: &Value) -> i64 {
    status["token"]
        .as_i64()
        .unwrap_or_else(|| panic!("no token in {status}"))
}

pub(crate) fn records(daemon: &Daemon, message: &str) -> Vec<Value> {
    let mut records = daemon.log_records();
    records.retain(|line| {
        let said = line["message"].as_str();
        said.is_some_and(|said| said.contains(message))
    });
    records
}
