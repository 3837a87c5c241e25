//! Configuration of the workload: its stop, its health check and its hooks.

use std::ffi::OsString;
use std::time::Duration;

use super::choice::{OnExit, StopScope, StopSignal};
use super::schema::ValueType;
use super::validate::Checked;
use super::value;

/// Section `[workload]`; its `loss_grace` is one of the
/// [`Timings`](leasehold_core::election::Timings).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadConfig {
    /// Stop signal of a supervised workload.
    pub stop_signal: StopSignal,
    /// Recipients of the stop signal.
    pub stop_scope: StopScope,
    /// Grace of a supervised workload before SIGKILL at a graceful step-down.
    pub stop_grace: Duration,
    /// Time that descendants have to end by themselves after a supervised workload has exited.
    pub linger: Duration,
    /// Action when the workload exits by itself.
    pub on_exit: OnExit,
    /// True if the workload stops before this daemon receives SIGTERM.
    pub ends_first: bool,
    /// Health check; `None` if there is none.
    pub health: Option<HealthConfig>,
}

/// Section `[workload.health]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthConfig {
    /// The kind of health check.
    pub check: HealthCheck,
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

/// Section `[hooks]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HooksConfig {
    /// Run when this replica becomes the leader; empty if there is none.
    pub on_lead: Vec<OsString>,
    /// Run when this replica has stopped leading; empty if there is none.
    pub on_step_down: Vec<OsString>,
    /// True if the workload has stopped once `on_step_down` has exited 0.
    pub on_step_down_stops_workload: bool,
    /// Timeout of each hook.
    pub timeout: Duration,
}

impl Checked {
    /// Checks the relations between the keys of `[workload.health]`.
    pub(super) fn health(&mut self) {
        self.one_of("workload.health.url", "workload.health.command");
        if let (Some(period), Some(most)) = (
            self.duration("workload.health.period"),
            self.duration("workload.health.timeout"),
        ) && most > period
        {
            let period = humantime::format_duration(period);
            let expected =
                format!("expected at most workload.health.period, {period}: checks would overlap");
            self.reject("workload.health.timeout", expected);
        }
    }

    pub(super) fn workload(&self) -> Option<WorkloadConfig> {
        let check = match self.text("workload.health.url") {
            Some(url) => Some(HealthCheck::Url(url.to_owned())),
            None => {
                let command = self.command("workload.health.command")?;
                (!command.is_empty()).then_some(HealthCheck::Command(command))
            }
        };
        let period = self.duration("workload.health.period")?;
        let timeout = self.duration("workload.health.timeout")?;
        let failures = self.count("workload.health.failures")?;
        Some(WorkloadConfig {
            stop_signal: StopSignal::from_word(self.text("workload.stop_signal")?)?,
            stop_scope: StopScope::from_word(self.text("workload.stop_scope")?)?,
            stop_grace: self.duration("workload.stop_grace")?,
            linger: self.duration("workload.linger")?,
            on_exit: OnExit::from_word(self.text("workload.on_exit")?)?,
            ends_first: self.flag("workload.ends_first")?,
            health: check.map(|check| HealthConfig {
                check,
                period,
                timeout,
                failures,
            }),
        })
    }

    pub(super) fn hooks(&self) -> Option<HooksConfig> {
        Some(HooksConfig {
            on_lead: self.command("hooks.on_lead")?,
            on_step_down: self.command("hooks.on_step_down")?,
            on_step_down_stops_workload: self.flag("hooks.on_step_down_stops_workload")?,
            timeout: self.duration("hooks.timeout")?,
        })
    }

    fn command(&self, path: &str) -> Option<Vec<OsString>> {
        value::command(self.text(path).unwrap_or_default()).ok()
    }

    pub(super) fn count(&self, path: &str) -> Option<u32> {
        match self.setting(path).key.kind {
            ValueType::Count { min, max } => value::count(self.text(path)?, min, max).ok(),
            _ => None,
        }
    }
}
