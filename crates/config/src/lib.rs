//! The configuration: one table of keys, four layers, and all errors reported together.
//!
//! ```
//! use leasehold_config::{Sources, find};
//!
//! let flag = |path, value: &str| (find(path).expect("a key"), value.to_owned());
//! let sources = Sources {
//!     flags: vec![flag("lease.name", "orders"), flag("mongodb.uri", "mongodb://localhost")],
//!     ..Sources::default()
//! };
//! let config = sources.load().config()?;
//! assert_eq!(config.lease.name.as_str(), "orders");
//! # Ok::<(), leasehold_config::ConfigError>(())
//! ```

mod choice;
mod error;
mod load;
mod profile;
mod reload;
mod rendered_for;
mod schema;
mod secret;
mod unused;
mod validate;
mod value;
mod workload;
mod yaml;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error};
use tracing::level_filters::LevelFilter;

pub use choice::{
    Choice, KubernetesEnabled, LogFormat, OnExit, Prefer, Profile, ReadyWhen, SignalNumber,
};
pub use error::{ConfigError, Origin, PROBLEMS_SHOWN_MAX, Problem};
pub use load::{Loaded, Setting, Sources};
pub use rendered_for::{Placement, RENDER_AGAIN, RenderedFor};
pub use schema::{
    DEFAULT_TOML, KEYS, Key, Reload, ValueType, find, is_section, nearest, suggest, suggest_key,
};
pub use secret::{MASK, Secret, UriSource, looks_secret, shown, shown_path};
pub use value::duration;
pub use workload::{HealthCheck, HealthConfig, HooksConfig, WorkloadConfig};

use choice::choice;
use leasehold_core::election::{Identity, ResourceName, Timings};
use leasehold_mongodb::store::mongo::WatchMode;

/// The validated configuration of a daemon, with a field per section of the table of keys.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Config {
    /// The lease to contend for, and its durations.
    pub lease: LeaseConfig,
    /// This candidate.
    pub identity: IdentityConfig,
    /// The store.
    pub mongodb: MongoConfig,
    /// The status files.
    pub status: StatusConfig,
    /// HTTP and metrics.
    pub http: HttpConfig,
    /// The pod's label and Events.
    pub kubernetes: KubernetesConfig,
    /// The workload.
    pub workload: WorkloadConfig,
    /// Commands that are notified of leadership.
    pub hooks: HooksConfig,
    /// Logs.
    pub log: LogConfig,
    /// The values of all keys.
    #[serde(skip)]
    settings: Vec<Setting>,
}

/// Configuration of commands that use the store but are not a daemon.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct LockConfig {
    /// This process.
    pub identity: IdentityConfig,
    /// Durations of a claim.
    pub timings: Timings,
    /// The store.
    pub mongodb: MongoConfig,
    /// Settings for stopping commands.
    pub workload: WorkloadConfig,
    /// Namespace and service account of this pod, and as named in its manifests.
    #[serde(rename = "kubernetes")]
    pub placement: Placement,
    /// Logs.
    pub log: LogConfig,
}

/// Section `[lease]`, and the durations of other sections that belong to a claim.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct LeaseConfig {
    /// The lease.
    #[serde(deserialize_with = "lease_name")]
    pub name: ResourceName,
    /// The durations of a claim.
    pub timings: Timings,
    /// Time given to the workload at a graceful step-down.
    pub handoff_delay: Duration,
    /// Candidates that a leader hands over to without a request.
    #[serde(deserialize_with = "choice")]
    pub prefer: Prefer,
    /// Minimum time from an acquisition to a handover to a preferred standby.
    pub prefer_interval: Duration,
}

fn lease_name<'de, D: Deserializer<'de>>(name: D) -> Result<ResourceName, D::Error> {
    let name = ResourceName::new(String::deserialize(name)?);
    name.map_err(|error| D::Error::custom(error.expected))
}

/// Section `[identity]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct IdentityConfig {
    /// Name of this candidate.
    pub name: Identity,
    /// Priority of this candidate.
    pub priority: u32,
    /// Address of this candidate (informational).
    pub address: Option<String>,
}

/// Section `[mongodb]`; its `operation_timeout` is one of the [`Timings`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct MongoConfig {
    /// Source of the connection string.
    #[serde(skip)]
    pub uri: UriSource,
    /// The database.
    pub database: String,
    /// The collection of leases.
    pub collection: String,
    /// Heartbeat interval of the driver.
    pub heartbeat: Duration,
    /// How followers of a lease learn of changes.
    #[serde(deserialize_with = "choice")]
    pub watch: WatchMode,
}

/// Section `[status]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct StatusConfig {
    /// Status directory; `None` for the default of the lease.
    pub directory: Option<PathBuf>,
}

/// Section `[http]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct HttpConfig {
    /// Listen address; `None` if disabled.
    pub listen: Option<SocketAddr>,
    /// Condition for `/readyz` to return 200.
    #[serde(deserialize_with = "choice")]
    pub ready_when: ReadyWhen,
}

/// Section `[kubernetes]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct KubernetesConfig {
    /// Publication of labels and Events.
    #[serde(deserialize_with = "choice")]
    pub enabled: KubernetesEnabled,
    /// Name of this pod.
    pub pod_name: Option<String>,
    /// UID of this pod.
    pub pod_uid: Option<String>,
    /// Namespace and service account of this pod, and as named in its manifests.
    #[serde(flatten)]
    pub placement: Placement,
    /// The directory with `token` and `ca.crt`.
    #[serde(default)]
    pub credentials: PathBuf,
    /// Prefix of the label key, before the name of the lease.
    pub label_prefix: String,
    /// Maximum time that a step-down waits for the label update.
    pub label_wait: Duration,
    /// True if a new leader removes stale leader labels from other pods.
    pub demote_others: bool,
    /// True if Events are reported.
    pub events: bool,
}

/// Section `[log]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct LogConfig {
    /// Minimum log level.
    #[serde(deserialize_with = "choice")]
    pub level: LevelFilter,
    /// Format of log lines.
    #[serde(deserialize_with = "choice")]
    pub format: LogFormat,
}
