//! Settings of hooks and health checks. The configuration deserializes its sections into these
//! types.

use std::ffi::OsString;
use std::time::Duration;

use serde::{Deserialize, Deserializer};

/// Section `[workload.health]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct HealthConfig {
    url: Option<String>,
    #[serde(deserialize_with = "words")]
    command: Vec<OsString>,
    /// Interval between checks.
    pub period: Duration,
    /// Timeout of a single check.
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

impl HealthCheck {
    /// Returns true if the workload counts as healthy before the first check. A URL check cannot
    /// succeed before this process has started its workload, unless the workload is external.
    pub fn passes_at_first(&self, external: bool) -> bool {
        !external && matches!(self, Self::Url(_))
    }
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

/// Section `[hooks]`. An empty command means that the hook is not set.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct HooksConfig {
    /// Runs concurrently with the start of the command.
    #[serde(deserialize_with = "words")]
    pub on_lead: Vec<OsString>,
    /// Runs after the command is gone.
    #[serde(deserialize_with = "words")]
    pub on_step_down: Vec<OsString>,
    /// True if exit code 0 of the on_step_down hook means that the workload has stopped.
    pub on_step_down_stops_workload: bool,
    /// Timeout of a hook.
    pub timeout: Duration,
}

fn words<'de, D: Deserializer<'de>>(words: D) -> Result<Vec<OsString>, D::Error> {
    let words = Vec::<String>::deserialize(words)?;
    Ok(words.into_iter().map(OsString::from).collect())
}
