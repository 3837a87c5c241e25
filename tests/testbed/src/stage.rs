//! Gives each test its own database, so that tests on one replica set neither contend for each
//! other's lease nor drop each other's collection.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::process::Command;

use crate::{Daemon, DaemonBuilder, DaemonTimings, Proxy, ReplicaSet, Scratch, StoredLease};

const LEASE: &str = "orders";
const COLLECTION: &str = "leases";

/// A database of a replica set, and the candidates' common settings.
#[derive(Debug, Clone)]
pub struct Stage {
    program: PathBuf,
    set: Arc<ReplicaSet>,
    uri: String,
    database: String,
    timings: DaemonTimings,
    /// XDG_RUNTIME_DIR of the operator's commands.
    runtime: Arc<Scratch>,
}

impl Stage {
    /// Creates a stage in a new database of `set`, for daemons from the binary at `program`, with
    /// short timings and without a handoff delay.
    pub fn new(program: impl Into<PathBuf>, set: Arc<ReplicaSet>) -> Self {
        static STAGES: AtomicUsize = AtomicUsize::new(1);
        Self {
            program: program.into(),
            uri: set.uri(),
            set,
            database: format!("stage_{}", STAGES.fetch_add(1, Ordering::Relaxed)),
            timings: DaemonTimings::SHORT,
            runtime: Arc::new(Scratch::new()),
        }
    }

    /// Sets the candidates' timings.
    pub fn timings(mut self, timings: DaemonTimings) -> Self {
        self.timings = timings;
        self
    }

    /// Uses this database, which must not be in use.
    pub fn in_database(mut self, name: &str) -> Self {
        self.database = name.to_owned();
        self
    }

    /// Sets the candidates' connection string.
    pub fn uri(mut self, uri: String) -> Self {
        self.uri = uri;
        self
    }

    /// Returns a new proxy, and a copy of this stage whose candidates reach the set through the
    /// proxy.
    pub fn proxied(&self) -> (Proxy, Self) {
        let proxy = self.set.proxy();
        let stage = self.clone().uri(self.set.proxied_uri(&proxy));
        (proxy, stage)
    }

    /// Returns the set.
    pub fn set(&self) -> &ReplicaSet {
        &self.set
    }

    /// Returns the name of the database.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// Returns the name of the collection.
    pub fn collection(&self) -> &str {
        COLLECTION
    }

    /// Returns a builder for a candidate. It follows a change stream, because by default its choice
    /// would depend on the writes of other tests to a shared set.
    pub fn candidate(&self, identity: &str) -> DaemonBuilder {
        Daemon::builder(&self.program)
            .lease(LEASE)
            .identity(identity)
            .uri(&self.uri)
            .timings(self.timings)
            .handoff_delay("0s")
            .flag("--log-level=debug")
            .flag(&format!("--mongodb-database={}", self.database))
            .flag("--mongodb-watch=stream")
    }

    /// Returns the name of the lease.
    pub fn lease(&self) -> &str {
        LEASE
    }

    /// Returns an operator's command for the collection, with this connection string. The process
    /// ends on drop.
    pub fn command(&self, uri: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("LEASEHOLD_MONGODB__URI", uri)
            .env("LEASEHOLD_MONGODB__DATABASE", &self.database)
            .env("LEASEHOLD_MONGODB__COLLECTION", COLLECTION)
            .env("USER", "olga")
            .env("XDG_RUNTIME_DIR", self.runtime.path())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// Returns the document of the lease.
    pub fn stored(&self) -> StoredLease {
        StoredLease::new(&self.set.client(), &self.database, COLLECTION, LEASE)
    }
}
