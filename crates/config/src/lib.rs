//! The configuration: one table of keys, four layers, and all errors reported together.
//!
//! Nothing here opens a port, creates a directory or contacts MongoDB. The components that do so
//! report their own errors.
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

pub use choice::{
    KubernetesEnabled, LogFormat, LogLevel, OnExit, Prefer, Profile, ReadyWhen, StopScope,
    StopSignal, Watch,
};
pub use error::{ConfigError, Origin, PROBLEMS_SHOWN_MAX, Problem};
pub use load::{Loaded, Setting, Sources};
pub use rendered_for::{Contended, Misplaced, Placement, RENDER_AGAIN, RenderedFor};
pub use schema::{
    DEFAULT_TOML, KEYS, Key, Reload, ValueType, find, is_section, nearest, suggest, suggest_key,
};
pub use secret::{MASK, Secret, UriError, UriSource, looks_secret, shown, shown_path};

pub use value::duration;
pub use workload::{HealthCheck, HealthConfig, HooksConfig, WorkloadConfig};

use leasehold_core::election::{Identity, LeaseName, Timings};

/// The validated configuration of a daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The lease to contend for, and its durations.
    pub lease: LeaseConfig,
    /// Name of this candidate.
    pub identity: Identity,
    /// Priority of this candidate.
    pub priority: u32,
    /// Address of this candidate (informational).
    pub address: Option<String>,
    /// The store.
    pub mongodb: MongoConfig,
    /// Status directory; `None` for the default of the lease.
    pub status_directory: Option<PathBuf>,
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
}

/// Configuration of commands that use the store but are not a daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockConfig {
    /// Name of this process.
    pub identity: Identity,
    /// Durations of a claim.
    pub timings: Timings,
    /// The store.
    pub mongodb: MongoConfig,
    /// Settings for stopping commands.
    pub workload: WorkloadConfig,
    /// Namespace and service account of this pod, and as named in its manifests.
    pub placement: Placement,
    /// Logs.
    pub log: LogConfig,
}

/// Section `[lease]`, and the durations of other sections that belong to a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseConfig {
    /// The lease.
    pub name: LeaseName,
    /// The durations of the next claim.
    pub timings: Timings,
    /// Time given to the workload at a graceful step-down.
    pub handoff_delay: Duration,
    /// Candidates that a leader hands over to without a request.
    pub prefer: Prefer,
    /// Minimum time from an acquisition to a handover to a preferred standby.
    pub prefer_interval: Duration,
    /// Set of defaults for durations that are not configured.
    pub profile: Profile,
}

/// Section `[mongodb]`; its `operation_timeout` is one of the [`Timings`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MongoConfig {
    /// Source of the connection string.
    pub uri: UriSource,
    /// The database.
    pub database: String,
    /// The collection of leases.
    pub collection: String,
    /// Heartbeat interval of the driver.
    pub heartbeat: Duration,
    /// Source of changes for followers of a lease.
    pub watch: Watch,
}

/// Section `[http]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpConfig {
    /// Listen address; `None` if disabled.
    pub listen: Option<SocketAddr>,
    /// Condition for `/readyz` to return 200.
    pub ready_when: ReadyWhen,
}

/// Section `[kubernetes]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubernetesConfig {
    /// Publication of labels and Events.
    pub enabled: KubernetesEnabled,
    /// Name of this pod.
    pub pod_name: Option<String>,
    /// UID of this pod.
    pub pod_uid: Option<String>,
    /// Namespace and service account of this pod, and as named in its manifests.
    pub placement: Placement,
    /// The directory with `token` and `ca.crt`.
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// Minimum log level.
    pub level: LogLevel,
    /// Format of log lines.
    pub format: LogFormat,
}

/// A key whose value differs between two configurations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Difference {
    /// The key.
    pub key: &'static Key,
    /// Effect of a reload on it.
    pub reload: Reload,
}

impl Config {
    /// Returns the keys that a reload to `new` would change, in the order of the documentation. The
    /// contents of a `uri_file` are not compared, because the file is read at each connection.
    pub fn differences(&self, new: &Self) -> Vec<Difference> {
        let (old_values, new_values) = (self.comparable(), new.comparable());
        KEYS.iter()
            .filter(|key| {
                let of = |values: &[(&str, String)]| {
                    values
                        .iter()
                        .find(|(path, _)| *path == key.path())
                        .map(|(_, value)| value.clone())
                };
                of(&old_values) != of(&new_values)
            })
            .map(|key| Difference {
                key,
                reload: key.reload,
            })
            .collect()
    }

    /// Returns every key with its value in a comparable form. The result contains the connection
    /// string, so it must not leave this module.
    fn comparable(&self) -> Vec<(&'static str, String)> {
        let Self {
            lease:
                LeaseConfig {
                    name,
                    timings,
                    handoff_delay,
                    prefer,
                    prefer_interval,
                    profile,
                },
            identity,
            priority,
            address,
            mongodb:
                MongoConfig {
                    uri,
                    database,
                    collection,
                    heartbeat,
                    watch,
                },
            status_directory,
            http: HttpConfig { listen, ready_when },
            kubernetes:
                KubernetesConfig {
                    enabled,
                    pod_name,
                    pod_uid,
                    placement:
                        Placement {
                            namespace: pod_namespace,
                            account: pod_account,
                            rendered_for,
                        },
                    credentials,
                    label_prefix,
                    label_wait,
                    demote_others,
                    events,
                },
            workload:
                WorkloadConfig {
                    stop_signal,
                    stop_scope,
                    stop_grace,
                    linger,
                    on_exit,
                    ends_first,
                    health,
                },
            hooks:
                HooksConfig {
                    on_lead,
                    on_step_down,
                    on_step_down_stops_workload,
                    timeout,
                },
            log: LogConfig { level, format },
        } = self;
        let looks = |of: fn(&HealthConfig) -> String| {
            // Without a check, the other keys have no effect.
            health.as_ref().map_or(String::new(), of)
        };
        let (inline, file) = match uri {
            UriSource::Inline(secret) => (secret.expose().to_owned(), String::new()),
            UriSource::File(path) | UriSource::Pipe(path, _) => {
                (String::new(), format!("{path:?}"))
            }
        };
        vec![
            ("lease.name", name.to_string()),
            ("lease.profile", profile.to_string()),
            (
                "lease.lease_duration",
                format!("{:?}", timings.lease_duration()),
            ),
            (
                "lease.renew_deadline",
                format!("{:?}", timings.renew_deadline()),
            ),
            (
                "lease.renew_interval",
                format!("{:?}", timings.renew_interval()),
            ),
            (
                "lease.retry_interval",
                format!("{:?}", timings.retry_interval()),
            ),
            ("lease.handoff_delay", format!("{handoff_delay:?}")),
            ("lease.prefer", prefer.to_string()),
            ("lease.prefer_interval", format!("{prefer_interval:?}")),
            ("identity.name", identity.to_string()),
            ("identity.priority", priority.to_string()),
            ("identity.address", format!("{address:?}")),
            ("mongodb.uri", inline),
            ("mongodb.uri_file", file),
            ("mongodb.database", database.clone()),
            ("mongodb.collection", collection.clone()),
            (
                "mongodb.operation_timeout",
                format!("{:?}", timings.operation_timeout()),
            ),
            ("mongodb.heartbeat", format!("{heartbeat:?}")),
            ("mongodb.watch", watch.to_string()),
            ("status.directory", format!("{status_directory:?}")),
            ("http.listen", format!("{listen:?}")),
            ("http.ready_when", ready_when.to_string()),
            ("kubernetes.enabled", enabled.to_string()),
            ("kubernetes.pod_name", format!("{pod_name:?}")),
            ("kubernetes.pod_namespace", format!("{pod_namespace:?}")),
            ("kubernetes.pod_uid", format!("{pod_uid:?}")),
            ("kubernetes.pod_account", format!("{pod_account:?}")),
            ("kubernetes.rendered_for", format!("{rendered_for:?}")),
            ("kubernetes.credentials", format!("{credentials:?}")),
            ("kubernetes.label_prefix", label_prefix.clone()),
            ("kubernetes.label_wait", format!("{label_wait:?}")),
            ("kubernetes.demote_others", demote_others.to_string()),
            ("kubernetes.events", events.to_string()),
            ("workload.stop_signal", stop_signal.to_string()),
            ("workload.stop_scope", stop_scope.to_string()),
            ("workload.stop_grace", format!("{stop_grace:?}")),
            ("workload.linger", format!("{linger:?}")),
            ("workload.loss_grace", format!("{:?}", timings.loss_grace())),
            ("workload.on_exit", on_exit.to_string()),
            ("workload.ends_first", ends_first.to_string()),
            (
                "workload.health.url",
                looks(|health| match &health.check {
                    HealthCheck::Url(url) => url.clone(),
                    HealthCheck::Command(_) => String::new(),
                }),
            ),
            (
                "workload.health.command",
                looks(|health| match &health.check {
                    HealthCheck::Url(_) => String::new(),
                    HealthCheck::Command(command) => format!("{command:?}"),
                }),
            ),
            (
                "workload.health.period",
                looks(|health| format!("{:?}", health.period)),
            ),
            (
                "workload.health.timeout",
                looks(|health| format!("{:?}", health.timeout)),
            ),
            (
                "workload.health.failures",
                looks(|health| health.failures.to_string()),
            ),
            ("hooks.on_lead", format!("{on_lead:?}")),
            ("hooks.on_step_down", format!("{on_step_down:?}")),
            (
                "hooks.on_step_down_stops_workload",
                on_step_down_stops_workload.to_string(),
            ),
            ("hooks.timeout", format!("{timeout:?}")),
            ("log.level", level.to_string()),
            ("log.format", format.to_string()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(changes: &[(&str, &str)]) -> Config {
        let base = [
            ("lease.name", "orders"),
            ("mongodb.uri", "mongodb://h"),
            ("identity.name", "a"),
        ];
        let flags = base
            .iter()
            .chain(changes)
            .map(|(path, value)| (find(path).expect("a key"), (*value).to_owned()))
            .collect();
        let sources = Sources {
            flags,
            ..Sources::default()
        };
        sources.load().config().expect("valid")
    }

    #[test]
    fn every_key_is_compared() {
        let config = with(&[]);
        let compared: Vec<_> = config
            .comparable()
            .into_iter()
            .map(|(path, _)| path)
            .collect();
        let keys: Vec<_> = KEYS.iter().map(Key::path).collect();
        assert_eq!(compared, keys);
        assert_eq!(config.differences(&config), []);
    }

    #[test]
    fn differences_say_what_a_reload_does() {
        let differences = |changes| -> Vec<_> {
            with(&[])
                .differences(&with(changes))
                .into_iter()
                .map(|d| (d.key.path(), d.reload))
                .collect()
        };
        let owned = |path: &str, reload| (path.to_owned(), reload);
        assert_eq!(
            differences(&[
                ("log.level", "debug"),
                ("lease.lease_duration", "30s"),
                ("http.listen", ""),
                ("mongodb.uri", "mongodb://other"),
            ]),
            [
                owned("lease.lease_duration", Reload::NextClaim),
                owned("mongodb.uri", Reload::Now),
                owned("http.listen", Reload::Restart),
                owned("log.level", Reload::Now),
            ]
        );
    }
}
