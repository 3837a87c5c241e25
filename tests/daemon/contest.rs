//! A separate lease for each test, on a shared replica set.

use std::sync::{Arc, OnceLock, Weak, mpsc};
use std::time::Duration;

use leasehold_testbed::{Daemon, DaemonBuilder, DaemonTimings, ReplicaSet};
use mongodb::Client;
use mongodb::bson::{Document, doc};
use serde_json::Value;
use tokio::runtime::{Builder, Handle};
use tokio::sync::Mutex;

/// The shipped binary.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_leasehold");
/// Timeout for what takes milliseconds on an idle machine and longer on a busy one.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// A lease and the replica set that stores it.
pub(crate) struct Contest {
    set: Arc<ReplicaSet>,
    client: Client,
    lease: String,
}

impl Contest {
    /// Tests that run concurrently use different names.
    pub(crate) async fn new(lease: &str) -> Self {
        let set = shared_set().await;
        let client = Client::with_uri_str(set.uri()).await.unwrap();
        Self {
            set,
            client,
            lease: lease.to_owned(),
        }
    }

    pub(crate) fn set(&self) -> &ReplicaSet {
        &self.set
    }

    /// Builds a daemon with a lease of 6 s and an immediate handoff.
    pub(crate) fn candidate(&self, identity: &str) -> DaemonBuilder {
        self.candidate_with(identity, DaemonTimings::DEMO, "0s")
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

    /// Returns the stored lease document.
    pub(crate) async fn document(&self) -> Document {
        let leases = self.client.database("leasehold").collection("leases");
        let found = leases.find_one(doc! { "_id": &self.lease }).await;
        found.unwrap().expect("the lease has a document")
    }

    /// Stores a document under the lease's name.
    pub(crate) async fn insert(&self, document: Document) {
        let leases = self.client.database("leasehold").collection("leases");
        leases.insert_one(document).await.unwrap();
    }

    /// The newest entry of the history.
    pub(crate) async fn last_ended(&self) -> Ended {
        let document = self.document().await;
        let history = document.get_array("history").unwrap();
        let entry = history.last().unwrap().as_document().unwrap();
        Ended {
            token: entry.get_i64("token").unwrap(),
            identity: entry.get_str("identity").unwrap().to_owned(),
            reason: entry.get_str("reason").unwrap().to_owned(),
        }
    }
}

/// A past leadership, as recorded in the history.
pub(crate) struct Ended {
    pub(crate) token: i64,
    pub(crate) identity: String,
    pub(crate) reason: String,
}

/// Waits until `daemon` follows the holder `identity`.
pub(crate) async fn wait_follows(daemon: &Daemon, identity: &str) -> Value {
    daemon
        .wait_until(
            |status| status["role"] == "follower" && status["holder"]["identity"] == identity,
            LONG,
        )
        .await
}

/// Waits until a renewal later than the current one is published.
pub(crate) async fn renews(daemon: &Daemon) {
    let until = |status: &Value| status["valid_until_boottime_ns"].as_u64();
    let before = until(&daemon.status());
    daemon
        .wait_until(|status| until(status) > before, LONG)
        .await;
}

/// Polls until `condition` holds.
pub(crate) async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(LONG, async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("not so: {what}"));
}

/// Instant on CLOCK_BOOTTIME at which the renewal or acquisition was sent that determines the
/// deadline in a leader's `status`.
pub(crate) fn sent_ns(status: &Value, timings: DaemonTimings) -> u64 {
    let until = status["valid_until_boottime_ns"].as_u64().unwrap();
    until - nanos(timings.renew_deadline)
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap()
}

pub(crate) fn token(status: &Value) -> i64 {
    status["token"]
        .as_i64()
        .unwrap_or_else(|| panic!("no token in {status}"))
}

/// Returns the shared set, which lives while a test uses it, so that its files are removed with the
/// last test. The driver's tasks need a runtime that outlives the first test.
async fn shared_set() -> Arc<ReplicaSet> {
    static SET: Mutex<Weak<ReplicaSet>> = Mutex::const_new(Weak::new());
    let mut shared = SET.lock().await;
    if let Some(set) = shared.upgrade() {
        return set;
    }
    let started = lasting_runtime().spawn(ReplicaSet::start());
    let set = Arc::new(started.await.expect("the replica set starts"));
    *shared = Arc::downgrade(&set);
    set
}

fn lasting_runtime() -> &'static Handle {
    static HANDLE: OnceLock<Handle> = OnceLock::new();
    HANDLE.get_or_init(|| {
        let (sender, handle) = mpsc::channel();
        std::thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            sender.send(runtime.handle().clone()).unwrap();
            runtime.block_on(std::future::pending::<()>());
        });
        handle.recv().unwrap()
    })
}
