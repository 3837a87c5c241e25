//! Health checks of the workload. The election is notified of changes, and leaves the lease to
//! other candidates while the workload is unhealthy.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Empty;
use hyper::Uri;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tracing::{debug, info, warn};

use super::program::LeftoverProcess;
use super::{CommandRun, HealthCheck, HealthConfig, Program, Readiness};
use leasehold_clock as clock;
use leasehold_core::election::{BootTime, Timings, Token};

/// Monitors the workload's health.
pub struct Health {
    check: HealthCheck,
    config: HealthConfig,
    program: Program,
    /// While the workload is not running, the last failed check counts for one lease duration.
    timings: watch::Receiver<Timings>,
    /// State of the command; `None` if the workload is external.
    runs: Option<watch::Receiver<CommandRun>>,
    left: LeftoverProcess,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum ProbeOutcome {
    Healthy,
    Unhealthy(String),
    /// This process is not running the workload, so a refused connection is not a failure.
    NotRunning,
}

#[derive(Debug)]
struct HealthState {
    failures_max: u32,
    retry_after: Duration,
    healthy: bool,
    failures: u32,
    failed_at: Option<BootTime>,
}

impl HealthState {
    fn record(&mut self, outcome: &ProbeOutcome, now: BootTime) -> bool {
        let before = self.healthy;
        match outcome {
            ProbeOutcome::Healthy => {
                self.failures = 0;
                self.healthy = true;
            }
            ProbeOutcome::Unhealthy(_) => {
                self.failures = self.failures.saturating_add(1);
                self.failed_at = Some(now);
                self.healthy &= self.failures < self.failures_max;
            }
            ProbeOutcome::NotRunning => {
                self.failures = 0;
                let waited = |at| now.since(at) >= self.retry_after;
                self.healthy |= self.failed_at.is_none_or(waited);
            }
        }
        self.healthy != before
    }
}

impl Health {
    /// Creates a monitor of an external workload or, with `runs`, of a workload of this process.
    pub fn new(
        check: HealthCheck,
        config: HealthConfig,
        program: Program,
        timings: watch::Receiver<Timings>,
        runs: Option<watch::Receiver<CommandRun>>,
    ) -> Self {
        Self {
            check,
            config,
            program,
            timings,
            runs,
            left: LeftoverProcess::default(),
        }
    }

    /// Runs checks and reports each change, until a report fails because the election has ended.
    pub async fn watch(mut self, readiness: Arc<Readiness>) {
        let mut state = HealthState {
            failures_max: self.config.failures,
            retry_after: Duration::ZERO,
            healthy: self.check.passes_at_first(self.runs.is_none()),
            failures: 0,
            failed_at: None,
        };
        let mut period = tokio::time::interval(self.config.period);
        period.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut run = CommandRun::None;
        let mut first = true;
        loop {
            period.tick().await;
            let before = std::mem::replace(&mut run, self.run());
            if run != before {
                state.failures = 0;
            }
            let token = match run {
                CommandRun::None => None,
                CommandRun::Running(token) => Some(token),
                // A command that stops may refuse requests.
                CommandRun::Stopping => continue,
            };
            let outcome = self.probe(token).await;
            if self.run() != run {
                continue;
            }
            state.retry_after = self.timings.borrow().lease_duration();
            let changed = state.record(&outcome, clock::boot_now());
            let (lease, healthy) = (&self.program.lease, state.healthy);
            let worth_a_line = changed || std::mem::take(&mut first) && !healthy;
            match &outcome {
                ProbeOutcome::Unhealthy(why) if worth_a_line => {
                    warn!(%lease, why, "workload unhealthy; not contending for the lease");
                }
                ProbeOutcome::Unhealthy(why) => debug!(%lease, why, "health check failed"),
                _ if changed && healthy => {
                    info!(%lease, "workload healthy; contending for the lease")
                }
                _ => {}
            }
            if changed && !readiness.set_healthy(healthy).await {
                return;
            }
        }
    }

    fn run(&self) -> CommandRun {
        let run = self.runs.as_ref().map(|runs| *runs.borrow());
        run.unwrap_or(CommandRun::None)
    }

    async fn probe(&mut self, token: Option<Token>) -> ProbeOutcome {
        match &self.check {
            HealthCheck::Url(url) => {
                let answer = tokio::time::timeout(self.config.timeout, get(url)).await;
                match answer {
                    Ok(Ok(status)) if status.is_success() => ProbeOutcome::Healthy,
                    Ok(Ok(status)) => {
                        ProbeOutcome::Unhealthy(format!("{url} answered {}", status.as_u16()))
                    }
                    Ok(Err(GetError::Refused)) if self.runs.is_some() && token.is_none() => {
                        ProbeOutcome::NotRunning
                    }
                    Ok(Err(error)) => ProbeOutcome::Unhealthy(format!("{url}: {error}")),
                    Err(_) => ProbeOutcome::Unhealthy(format!("{url} did not answer in time")),
                }
            }
            HealthCheck::Command(command) => {
                let (timeout, left) = (self.config.timeout, &mut self.left);
                match self
                    .program
                    .run_briefly(command, token, timeout, left)
                    .await
                {
                    Ok(()) => ProbeOutcome::Healthy,
                    Err(why) => ProbeOutcome::Unhealthy(format!("the health command: {why}")),
                }
            }
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum GetError {
    #[error("connection refused")]
    Refused,
    #[error("cannot connect: {}", .0.kind())]
    Connect(io::Error),
    #[error("the answer is not HTTP")]
    Http,
}

async fn get(url: &str) -> Result<hyper::StatusCode, GetError> {
    let url: Uri = url.parse().map_err(|_| GetError::Http)?;
    let host = url.host().unwrap_or_default();
    // Literal IPv6 addresses are in brackets.
    let name = host.trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((name, url.port_u16().unwrap_or(80)))
        .await
        .map_err(|error| match error.kind() {
            ErrorKind::ConnectionRefused => GetError::Refused,
            _ => GetError::Connect(error),
        })?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|_| GetError::Http)?;
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    let authority = url.authority().map_or(host, |a| a.as_str());
    let request = hyper::Request::get(path)
        .header(hyper::header::HOST, authority)
        .header(hyper::header::USER_AGENT, "leasehold")
        .header(hyper::header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|_| GetError::Http)?;
    // The connection serves only this check, and may close just when the response arrives. The
    // response then still counts.
    let (answer, connection) = (sender.send_request(request), connection);
    tokio::pin!(answer, connection);
    let answer = tokio::select! {
        biased;
        answer = &mut answer => answer,
        _ = &mut connection => answer.await,
    };
    Ok(answer.map_err(|_| GetError::Http)?.status())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(healthy: bool) -> HealthState {
        HealthState {
            failures_max: 3,
            retry_after: Duration::from_secs(20),
            healthy,
            failures: 0,
            failed_at: None,
        }
    }

    fn unhealthy() -> ProbeOutcome {
        ProbeOutcome::Unhealthy("x".to_owned())
    }

    #[test]
    fn all_failures_in_a_row_are_needed_and_one_success_suffices() {
        let (mut state, now) = (state(true), clock::boot_now());
        assert!(!state.record(&unhealthy(), now) && !state.record(&unhealthy(), now));
        assert!(!state.record(&ProbeOutcome::Healthy, now));
        assert!(!state.record(&unhealthy(), now) && !state.record(&unhealthy(), now));
        assert!(state.record(&unhealthy(), now) && !state.healthy);
        assert!(!state.record(&unhealthy(), now));
        assert!(state.record(&ProbeOutcome::Healthy, now) && state.healthy);
    }

    #[test]
    fn a_new_run_may_fail_as_often_as_the_first() {
        let (mut state, now) = (state(true), clock::boot_now());
        assert!(!state.record(&unhealthy(), now) && !state.record(&unhealthy(), now));
        state.failures = 0;
        assert!(!state.record(&unhealthy(), now) && state.healthy);
    }

    #[test]
    fn a_workload_stopped_as_unhealthy_is_retried_after_a_delay() {
        let (mut state, now) = (state(true), clock::boot_now());
        for _ in 0..3 {
            state.record(&unhealthy(), now);
        }
        let later = |seconds| now + Duration::from_secs(seconds);
        assert!(!state.record(&ProbeOutcome::NotRunning, later(19)) && !state.healthy);
        assert!(state.record(&ProbeOutcome::NotRunning, later(20)) && state.healthy);
    }

    #[test]
    fn a_workload_that_does_not_run_is_not_unhealthy() {
        let (mut state, now) = (state(true), clock::boot_now());
        for _ in 0..9 {
            assert!(!state.record(&ProbeOutcome::NotRunning, now));
        }
        assert!(state.healthy);
    }
}
