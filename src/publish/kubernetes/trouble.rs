//! Logging of lasting failures: a line at the first failure, at each new kind, at growing
//! intervals, and at the end.

use super::api::{Remedy, Trouble};
use tracing::{error, info, warn};

use crate::publish::Surface;
use crate::publish::metrics::Metrics;

/// Counts and logs the failures of one kind of request.
#[derive(Debug)]
pub(super) struct Troubles {
    surface: Surface,
    /// The object of the requests, such as "label x of pod y".
    subject: String,
    /// The rule that a Role needs to allow the requests.
    right: &'static str,
    metrics: Metrics,
    failures: u64,
    last: Option<&'static str>,
}

impl Troubles {
    pub(super) fn new(
        surface: Surface,
        subject: String,
        right: &'static str,
        metrics: Metrics,
    ) -> Self {
        Self {
            surface,
            subject,
            right,
            metrics,
            failures: 0,
            last: None,
        }
    }

    pub(super) fn goes_on(&mut self, trouble: &Trouble) {
        self.metrics.publish_failed(self.surface);
        self.failures += 1;
        let new_kind = self.last.replace(trouble.what) != Some(trouble.what);
        // Attempts are made at growing intervals, so the lines have growing intervals, too.
        if !new_kind && !self.failures.is_power_of_two() {
            return;
        }
        let (surface, failures) = (self.surface.as_str(), self.failures);
        let subject = &self.subject;
        if trouble.status == Some(403) {
            error!(
                surface,
                subject,
                failures,
                missing_rule = self.right,
                "forbidden by the API server: a Role bound to this pod's service account must \
                 allow missing_rule; retrying every minute"
            );
            return;
        }
        match trouble.remedy {
            Remedy::Again | Remedy::After(_) => warn!(
                surface, subject, failures, why = %trouble,
                "write to the API server failed, retrying"
            ),
            Remedy::Person => error!(
                surface, subject, failures, why = %trouble,
                "rejected by the API server; retrying every minute"
            ),
            Remedy::NewPod => warn!(
                surface, subject, failures, why = %trouble,
                "pod no longer exists in the API server"
            ),
        }
    }

    pub(super) fn over(&mut self) {
        let failures = std::mem::take(&mut self.failures);
        self.last = None;
        if failures > 0 {
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
