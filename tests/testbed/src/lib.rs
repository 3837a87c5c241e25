//! Real components for leasehold's own tests: mongod replica sets, Kubernetes control planes,
//! daemon processes, and faults between them.
//!
//! Only the [`Router`] is simulated, because `mongos` is not available to the tests. A
//! [`ReplicaSet`] consists of mongod processes, a [`Kubernetes`] has an API server and controllers,
//! a [`Daemon`] is the shipped binary, and a [`Proxy`] forwards real connections. If a component is
//! missing, the test fails and names the command that installs it.
//!
//! Every component listens on 127.0.0.1, keeps its data in a temporary directory, and ends with the
//! process that started it, even if that process is killed.

// A broken fixture must fail the test and name the reason.
#![allow(clippy::unwrap_used)]
// The testbed measures the daemon from outside, so it reads clocks directly.
#![allow(clippy::disallowed_methods)]

pub mod certificates;
mod cgroup;
pub mod changes;
pub mod container;
#[path = "../../corpus/mod.rs"]
pub mod corpus;
pub mod daemon;
pub mod documented;
pub mod etcd;
pub mod events;
pub mod faketime;
mod fetch;
pub mod forwarder;
mod freezable_disk;
pub mod hostile;
mod http;
mod hung_disk;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
pub mod leader_monitor;
mod mount;
mod mutator;
pub mod nameserver;
pub mod network;
pub mod pid;
mod ports;
pub mod process;
pub mod proxy;
pub mod replica_set;
pub mod router;
mod scratch;
pub mod shared;
pub mod stage;
pub mod stored;
mod systemd;
pub mod timeline;
pub mod trace;
pub mod wait;

pub use certificates::Certificates;
pub use cgroup::Cgroup;
pub use changes::Changes;
pub use container::GuardContainer;
pub use daemon::{Daemon, DaemonBuilder, DaemonTimings};
pub use etcd::Etcd;
pub use events::EventStream;
pub use faketime::{FakeClock, JumpingClock};
pub use fetch::{etcdctl_binary, kubernetes_programs, mongod_binary};
pub use freezable_disk::{FreezableDisk, Frozen};
pub use hung_disk::HungDisk;
#[cfg(feature = "kubernetes")]
pub use kubernetes::{Credentials, Kubernetes};
pub use leader_monitor::{LeaderMonitor, Reign, leader_of};
pub use mount::{Mount, without_boot_id};
pub use mutator::Mutator;
pub use ports::ReservedPort;
pub use process::{Launch, Lifetime, Process};
pub use proxy::Proxy;
pub use replica_set::{Host, ReplicaSet, ReplicaSetBuilder, User};
pub use router::Router;
pub use scratch::{Scratch, Storage};
pub use shared::{SharedSet, run};
pub use stage::Stage;
pub use stored::StoredLease;
pub use systemd::Systemd;
pub use trace::CheckedTrace;
pub use wait::{eventually, throughout};

/// Reports that a test cannot run on this machine.
///
/// # Panics
/// In CI, because CI must run every test.
#[allow(clippy::print_stderr, reason = "the output is for humans")]
pub fn skip(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "{why}");
    eprintln!("skipped: {why}");
}

/// Marks a failure that proves a violated invariant. The suite never reruns a test whose output
/// contains this text, because even a rare violation is a bug.
pub const INVARIANT_VIOLATED: &str = "invariant violated";

/// Fails the test because of a violation. If the test has already failed, only prints the
/// violation, because a panic during unwinding would abort the process.
///
/// # Panics
/// Unless the thread is already panicking.
#[allow(clippy::print_stderr, reason = "the output of the test")]
pub fn report_violation(what: &str) {
    let text = format!("{INVARIANT_VIOLATED}: {what}");
    assert!(std::thread::panicking(), "{text}");
    eprintln!("{text}");
}

/// Asserts that a text contains another text.
#[track_caller]
pub fn assert_contains(text: &str, part: &str) {
    assert!(text.contains(part), "no {part:?} in: {text}");
}

/// A component that is not available, or a condition that was not met.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Failure(String);

impl Failure {
    /// Creates a failure from its reason and, if any, its remedy.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl From<mongodb::error::Error> for Failure {
    fn from(error: mongodb::error::Error) -> Self {
        Self(format!("mongodb: {error}"))
    }
}
