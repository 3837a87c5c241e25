//! While this candidate leads, removes stale `leader` labels, for example from pods on a lost node.

use std::io;
use std::sync::Arc;

use tokio::sync::watch;

use super::REPAIR_INTERVAL;
use super::api::{ApiError, ApiRetry};
use super::error_log::RequestErrorLog;
use super::labels::random;
use super::reconciler::LANDS_WITHIN;
use super::request::{PODS_MAX, Requests};
use super::retry::pause;
use leasehold_clock::{BootTimer, boot_now};
use leasehold_core::election::{BootTime, Status, Token};
use leasehold_metrics::Metrics;
use leasehold_status::Surface;

/// Maximum lists per round. A round ends after a list without other pods. A conflict, or more than
/// [`PODS_MAX`] pods, requires further lists.
const LISTS_MAX: usize = 5;

pub(super) struct StaleLabels {
    requests: Arc<Requests>,
    status: watch::Receiver<Status>,
    timer: BootTimer,
    errors: RequestErrorLog,
    rounds: Rounds,
}

/// Schedules a round when leadership starts, and when the predecessor's requests have expired.
#[derive(Debug, Default)]
struct Rounds {
    token: Option<Token>,
    done: u32,
    failures: u32,
    next: Option<BootTime>,
}

impl Rounds {
    fn due(&mut self, token: Option<Token>, now: BootTime) -> Option<BootTime> {
        if token.is_some() && token != self.token {
            *self = Self {
                token,
                next: Some(now),
                ..Self::default()
            };
        }
        self.next.filter(|_| token.is_some())
    }

    fn succeeded(&mut self, now: BootTime) {
        self.done += 1;
        self.failures = 0;
        self.next = (self.done == 1).then(|| now + LANDS_WITHIN);
    }

    fn failed(&mut self, error: &ApiError, now: BootTime, random: u8) {
        self.failures = self.failures.saturating_add(1);
        let wait = pause(error.retry, self.failures, random);
        self.next = Some(now + wait.unwrap_or(REPAIR_INTERVAL));
    }
}

impl StaleLabels {
    pub(super) fn new(
        requests: Arc<Requests>,
        status: watch::Receiver<Status>,
        metrics: Metrics,
    ) -> io::Result<Self> {
        let subject = format!("label {} of other pods", requests.label_key);
        let right = "list pods and patch pods/status";
        let errors = RequestErrorLog::new(Surface::Label, subject, right, &requests.api, metrics);
        Ok(Self {
            requests,
            status,
            timer: BootTimer::new()?,
            errors,
            rounds: Rounds::default(),
        })
    }

    pub(super) async fn run(mut self) -> io::Result<()> {
        let mut candidate_runs = true;
        loop {
            let now = boot_now();
            let status = self.status.borrow_and_update().at(now);
            let token = status.authority.map(|a| a.token);
            let due = self.rounds.due(token, now);
            if let (Some(token), Some(at)) = (token, due)
                && at <= now
            {
                if let Err(error) = self.round(token).await {
                    self.errors.failed(&error, boot_now());
                    self.rounds.failed(&error, boot_now(), random());
                } else {
                    self.errors.over();
                    self.rounds.succeeded(boot_now());
                }
                continue;
            }
            self.timer.arm(due)?;
            tokio::select! {
                fired = self.timer.fired() => fired?,
                changed = self.status.changed(), if candidate_runs => {
                    candidate_runs = changed.is_ok();
                }
            }
        }
    }

    /// Lists the pods that are labeled leader and demotes all except this pod, until the list has
    /// no other pod or this candidate no longer leads under `token`. Fails after [`LISTS_MAX`]
    /// lists.
    async fn round(&self, token: Token) -> Result<(), ApiError> {
        let (requests, api) = (&self.requests, &self.requests.api);
        for _ in 0..LISTS_MAX {
            let list = api.send_in_time(requests.leaders()).await?;
            let others = requests.others(&list).ok_or(ApiError {
                what: "invalid list of pods",
                ..ApiError::NO_ANSWER
            })?;
            if others.is_empty() {
                return Ok(());
            }
            let mut refused = None;
            for other in others.into_iter().take(PODS_MAX) {
                // The listed pod may have become the leader in the meantime.
                let status = self.status.borrow().at(boot_now());
                if status.authority.map(|a| a.token) != Some(token) {
                    return Ok(());
                }
                match api.send_in_time(requests.demotion(&other)).await {
                    Ok(_) => {
                        let (pod, label) = (other.name.as_str(), &requests.label_key);
                        tracing::info!(pod, label, "removed a stale leader label from another pod");
                    }
                    // The pod changed after it was listed. The next list is up to date.
                    Err(ApiError {
                        status: Some(409), ..
                    }) => {}
                    Err(error) if error.retry == ApiRetry::NewPod => {}
                    // A policy may refuse the change of only this pod.
                    Err(error) if error.retry == ApiRetry::Person => refused = Some(error),
                    Err(error) => return Err(error),
                }
            }
            if let Some(error) = refused {
                return Err(error);
            }
        }
        Err(ApiError {
            what: "other pods' labels keep changing",
            ..ApiError::NO_ANSWER
        })
    }
}

#[cfg(test)]
mod tests;
