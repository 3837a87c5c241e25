//! The configuration by section. Each field is deserialized from the section of the same name.
#![allow(
    missing_docs,
    reason = "a field without a comment is a key, which the table describes"
)]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error};
use tracing::level_filters::LevelFilter;

use super::choice::{
    KubernetesEnabled, LogFormat, OnDaemonRestart, OnExit, Prefer, ReadyWhen, SignalNumber, choice,
};
use super::error::{ConfigError, Origin};
use super::load::{Loaded, Setting, Sources};
use super::rendered_for::Placement;
use super::schema::{Key, Reload};
use super::secret::UriSource;
use leasehold_core::election::{Identity, ResourceName, Timings};
use leasehold_guard::StopScope;
use leasehold_mongodb::store::mongo::WatchMode;
use leasehold_supervisor::{HealthConfig, HooksConfig};

/// The validated configuration of a daemon.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Config {
    pub lease: LeaseConfig,
    pub identity: IdentityConfig,
    pub mongodb: MongoConfig,
    pub status: StatusConfig,
    pub http: HttpConfig,
    pub kubernetes: KubernetesConfig,
    pub workload: WorkloadConfig,
    pub hooks: HooksConfig,
    pub log: LogConfig,
    #[serde(skip)]
    pub(super) settings: Vec<Setting>,
}

impl Config {
    /// Returns the origin of the inline connection string.
    pub fn uri_origin(&self) -> Option<&Origin> {
        let mut settings = self.settings.iter();
        let uri = settings.find(|setting| setting.key.path() == "mongodb.uri");
        uri.map(|setting| &setting.origin)
    }

    /// Reads the sources again. Returns the configuration that applies from now on, and the keys
    /// whose values in the sources have changed. Keys that require a restart keep their values. The
    /// contents of a `uri_file` are not compared, because the file is read for each connection.
    ///
    /// # Errors
    /// If the new configuration is invalid by itself, or in combination with the old values that
    /// apply until a restart.
    pub fn reload(&self, sources: &Sources) -> Result<(Self, Vec<&'static Key>), ConfigError> {
        let new = sources.load().config()?;
        let pairs = || self.settings.iter().zip(&new.settings);
        let differences = pairs().filter(|(old, new)| old != new);
        let differences = differences.map(|(old, _)| old.key).collect();
        let kept = pairs().map(|(old, new)| match old.key.reload {
            Reload::Restart => old.clone(),
            Reload::Now | Reload::NextClaim | Reload::Reconnect => new.clone(),
        });
        let applied = Loaded {
            settings: kept.collect(),
            started_with: sources.started_with.clone(),
            ..Loaded::default()
        };
        let applied = applied.config().map_err(|mut error| {
            for problem in &mut error.problems {
                problem.text += " (together with the values that require a restart)";
            }
            error
        })?;
        Ok((applied, differences))
    }
}

/// Configuration of commands that use the store without running a daemon.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct LockConfig {
    pub identity: IdentityConfig,
    pub timings: Timings,
    pub mongodb: MongoConfig,
    pub workload: WorkloadConfig,
    #[serde(rename = "kubernetes")]
    pub placement: Placement,
    pub log: LogConfig,
}

/// Section `[lease]`, and a claim's durations from other sections.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct LeaseConfig {
    #[serde(deserialize_with = "lease_name")]
    pub name: ResourceName,
    pub timings: Timings,
    pub handoff_delay: Duration,
    #[serde(deserialize_with = "choice")]
    pub prefer: Prefer,
    pub prefer_interval: Duration,
}

fn lease_name<'de, D: Deserializer<'de>>(name: D) -> Result<ResourceName, D::Error> {
    let name = ResourceName::new(String::deserialize(name)?);
    name.map_err(|error| D::Error::custom(error.expected))
}

/// Section `[identity]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct IdentityConfig {
    pub name: Identity,
    pub priority: u32,
    pub address: Option<String>,
}

/// Section `[mongodb]`; its `operation_timeout` is one of the [`Timings`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct MongoConfig {
    /// Set by `uri` or `uri_file`.
    #[serde(skip)]
    pub uri: UriSource,
    pub database: String,
    pub collection: String,
    pub heartbeat: Duration,
    #[serde(deserialize_with = "choice")]
    pub watch: WatchMode,
}

/// Section `[status]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct StatusConfig {
    /// `None` for the default directory of the lease.
    pub directory: Option<PathBuf>,
}

/// Section `[http]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct HttpConfig {
    /// `None` if the endpoints are disabled.
    pub listen: Option<SocketAddr>,
    #[serde(deserialize_with = "choice")]
    pub ready_when: ReadyWhen,
}

/// Section `[kubernetes]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct KubernetesConfig {
    #[serde(deserialize_with = "choice")]
    pub enabled: KubernetesEnabled,
    pub pod_name: Option<String>,
    pub pod_uid: Option<String>,
    #[serde(flatten)]
    pub placement: Placement,
    /// Empty if not set; then no credentials are found.
    #[serde(default)]
    pub credentials: PathBuf,
    pub label_prefix: String,
    pub label_wait: Duration,
    pub demote_others: bool,
    pub events: bool,
}

/// Section `[log]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct LogConfig {
    #[serde(deserialize_with = "choice")]
    pub level: LevelFilter,
    #[serde(deserialize_with = "choice")]
    pub format: LogFormat,
}

/// Section `[workload]`; its `loss_grace` is one of the [`Timings`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct WorkloadConfig {
    #[serde(deserialize_with = "choice")]
    pub stop_signal: SignalNumber,
    #[serde(deserialize_with = "choice")]
    pub stop_scope: StopScope,
    pub stop_grace: Duration,
    pub linger: Duration,
    #[serde(deserialize_with = "choice")]
    pub on_exit: OnExit,
    #[serde(deserialize_with = "choice")]
    pub on_daemon_restart: OnDaemonRestart,
    pub socket: Option<PathBuf>,
    pub ends_first: bool,
    pub health: HealthConfig,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find;

    fn sources(changes: &[(&str, &str)]) -> Sources {
        let base = [
            ("lease.name", "orders"),
            ("mongodb.uri", "mongodb://h"),
            ("identity.name", "a"),
        ];
        let flags = base.iter().chain(changes);
        let flag = |(path, value): &(&str, &str)| (find(path).expect("a key"), (*value).to_owned());
        Sources {
            flags: flags.map(flag).collect(),
            ..Sources::default()
        }
    }

    fn with(changes: &[(&str, &str)]) -> Config {
        sources(changes).load().config().expect("valid")
    }

    fn reloaded(current: &Config, changes: &[(&str, &str)]) -> (Config, Vec<String>) {
        let (config, differences) = current.reload(&sources(changes)).expect("valid");
        (config, differences.into_iter().map(Key::path).collect())
    }

    #[test]
    fn different_notations_of_a_value_are_equal() {
        let minute = with(&[("workload.stop_grace", "60s"), ("http.listen", ":9402")]);
        let same = [
            ("workload.stop_grace", "1m"),
            ("http.listen", "0.0.0.0:9402"),
        ];
        assert_eq!(reloaded(&minute, &same), (minute, Vec::new()));
    }

    #[test]
    fn a_change_that_needs_a_restart_is_reported_by_each_reload() {
        let new = [("log.level", "debug"), ("http.listen", "")];
        let (current, differences) = reloaded(&with(&[]), &new);
        assert_eq!(differences, ["http.listen", "log.level"]);
        assert_eq!(current, with(&new[..1]));
        let (current, differences) = reloaded(&current, &new);
        assert_eq!(differences, ["http.listen"]);
        assert_eq!(current, with(&new[..1]));
    }

    #[test]
    fn new_values_apply_unless_they_need_a_restart() {
        let new = [
            ("log.level", "debug"),
            ("lease.lease_duration", "30s"),
            ("mongodb.uri", "mongodb://other"),
            ("lease.handoff_delay", "5s"),
        ];
        let restart = [("http.listen", ""), ("mongodb.heartbeat", "5s")];
        let (current, differences) = reloaded(&with(&[]), &[&new[..], &restart].concat());
        assert_eq!(current, with(&new));
        assert_eq!(differences.len(), new.len() + restart.len());
    }

    #[test]
    fn durations_that_fit_only_after_a_restart_are_refused() {
        let new = [
            ("lease.renew_deadline", "7s"),
            ("mongodb.operation_timeout", "1s"),
        ];
        let refused = with(&[]).reload(&sources(&new)).expect_err("a conflict");
        let text = refused.to_string();
        assert!(text.contains("mongodb.operation_timeout 3s"), "{text}");
        assert!(text.contains("require a restart"), "{text}");
        assert_eq!(with(&new).lease.timings.renew_deadline().as_secs(), 7);
    }
}
