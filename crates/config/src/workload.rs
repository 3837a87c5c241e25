//! The sections `[workload]`, `[workload.health]` and `[hooks]`.

use std::ffi::OsString;
use std::time::Duration;

use serde::{Deserialize, Deserializer};

use super::choice::{OnExit, SignalNumber, choice};
use leasehold_guard::StopScope;

/// Section `[workload]`; its `loss_grace` is one of the
/// [`Timings`](leasehold_core::election::Timings).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct WorkloadConfig {
    /// Stop signal of a supervised workload.
    #[serde(deserialize_with = "choice")]
    pub stop_signal: SignalNumber,
    /// Recipients of the stop signal.
    #[serde(deserialize_with = "choice")]
    pub stop_scope: StopScope,
    /// Grace of a supervised workload before SIGKILL at a graceful step-down.
    pub stop_grace: Duration,
    /// Time that descendants have to end by themselves after a supervised workload has exited.
    pub linger: Duration,
    /// Action when the workload exits by itself.
    #[serde(deserialize_with = "choice")]
    pub on_exit: OnExit,
    /// True if the workload stops before this daemon receives SIGTERM.
    pub ends_first: bool,
    /// Health check.
    pub health: HealthConfig,
}

/// Section `[workload.health]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct HealthConfig {
    url: Option<String>,
    #[serde(deserialize_with = "words")]
    command: Vec<OsString>,
    /// Interval between checks.
    pub period: Duration,
    /// Timeout of a single health check.
    pub timeout: Duration,
    /// Consecutive failed checks before the workload is considered unhealthy.
    pub failures: u32,
}

/// The kind of health check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HealthCheck {
    /// Healthy if a GET of this URL returns 2xx.
    Url(String),
    /// Healthy if this program with its arguments exits 0.
    Command(Vec<OsString>),
}

impl HealthConfig {
    /// Returns the health check, if one is configured.
    pub fn check(&self) -> Option<HealthCheck> {
        match &self.url {
            Some(url) => Some(HealthCheck::Url(url.clone())),
            None if self.command.is_empty() => None,
            None => Some(HealthCheck::Command(self.command.clone())),
        }
    }
}

/// Section `[hooks]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct HooksConfig {
    /// Run when this replica becomes the leader; empty if there is none.
    #[serde(deserialize_with = "words")]
    pub on_lead: Vec<OsString>,
    /// Run when this replica has stopped leading; empty if there is none.
    #[serde(deserialize_with = "words")]
    pub on_step_down: Vec<OsString>,
    /// True if the workload has stopped once `on_step_down` has exited 0.
    pub on_step_down_stops_workload: bool,
    /// Timeout of each hook.
    pub timeout: Duration,
}

fn words<'de, D: Deserializer<'de>>(words: D) -> Result<Vec<OsString>, D::Error> {
    let words = Vec::<String>::deserialize(words)?;
    Ok(words.into_iter().map(OsString::from).collect())
}
