//! Logs a lasting failure: its start, each new kind, repeats at growing intervals, and its end.

use super::api::{Api, ApiError, ApiRetry};
use tracing::{error, info, warn};

use leasehold_clock::boot_now;
use leasehold_core::election::BootTime;
use leasehold_host::log::ErrorThrottle;
use leasehold_metrics::Metrics;
use leasehold_status::Surface;

#[derive(Debug)]
pub(super) struct RequestErrorLog {
    surface: Surface,
    /// Such as "label x of pod y".
    subject: String,
    /// The Role rule that permits the requests.
    right: &'static str,
    server: String,
    metrics: Metrics,
    throttle: ErrorThrottle,
}

impl RequestErrorLog {
    pub(super) fn new(
        surface: Surface,
        subject: String,
        right: &'static str,
        api: &Api,
        metrics: Metrics,
    ) -> Self {
        Self {
            surface,
            subject,
            right,
            server: api.server().to_owned(),
            metrics,
            throttle: ErrorThrottle::default(),
        }
    }

    pub(super) fn failed(&mut self, error: &ApiError, now: BootTime) {
        self.metrics.publish_failed(self.surface);
        let Some((_, failures)) = self.throttle.failed(error.what, None, now) else {
            return;
        };
        let surface = self.surface.as_str();
        let (subject, server) = (&self.subject, &self.server);
        match error.retry {
            _ if error.status == Some(403) => error!(
                surface,
                subject,
                server,
                failures,
                missing_rule = self.right,
                "forbidden by the API server: a Role of this pod's account must allow missing_rule"
            ),
            ApiRetry::Again | ApiRetry::After(_) => warn!(
                surface, subject, server, failures, why = %error,
                "write to the API server failed, retrying"
            ),
            ApiRetry::Person => error!(
                surface, subject, server, failures, why = %error,
                "rejected by the API server"
            ),
            ApiRetry::NewPod => warn!(
                surface, subject, server, failures, why = %error,
                "pod no longer exists in the API server"
            ),
        }
    }

    pub(super) fn over(&mut self) {
        if let Some((_, failures)) = self.throttle.over(boot_now()) {
            let (surface, subject) = (self.surface.as_str(), &self.subject);
            info!(
                surface,
                subject, failures, "writes to the API server succeed again"
            );
        }
    }
}

#[cfg(test)]
mod tests;
