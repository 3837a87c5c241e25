//! Logs whether the candidate follows changes through a change stream or hints.

use std::mem;

use tracing::{info, warn};

use crate::clock;
use crate::election::ResourceName;
use crate::log::{ErrorThrottle, millis};
use crate::store::{Failure, RetryPolicy};

pub(super) struct StreamLog {
    lease: ResourceName,
    failures: ErrorThrottle,
    outage: StreamOutage,
    /// True if the newest call succeeded.
    store_answers: bool,
    /// Kind of the last logged failure of hints; `None` while hints work.
    no_hints: Option<&'static str>,
    follows_hints: bool,
    /// True if the candidate polls without hints.
    pub(super) wants_hints: bool,
}

/// Decides whether a failed change stream is logged. While other store calls fail as well, only the
/// failures of those calls are logged.
#[derive(Default)]
struct StreamOutage {
    failing: bool,
    /// True if a call has succeeded since the last failure of the stream.
    answered_since: bool,
    /// Failure of the stream, to be logged as soon as a call succeeds.
    held_back: Option<Failure>,
}

impl StreamLog {
    pub(super) fn new(lease: ResourceName) -> Self {
        Self {
            lease,
            failures: ErrorThrottle::default(),
            outage: StreamOutage::default(),
            store_answers: false,
            no_hints: None,
            follows_hints: false,
            wants_hints: false,
        }
    }

    pub(super) fn call_failed(&mut self) {
        self.store_answers = false;
    }

    pub(super) fn call_answered(&mut self) {
        self.store_answers = true;
        self.outage.answered_since = self.outage.failing;
        if let Some(failure) = self.outage.held_back.take() {
            self.no_stream(&failure);
        }
    }

    pub(super) fn hints_opened(&mut self) {
        self.opened();
        info!(lease = %self.lease, "following hints");
        (self.no_hints, self.follows_hints) = (None, true);
    }

    pub(super) fn hints_failed(&mut self, failure: &Failure) {
        if self.no_hints == Some(failure.kind) {
            return;
        }
        let lease = &self.lease;
        match failure.retry {
            RetryPolicy::Reconfigure if self.wants_hints => {
                warn!(%lease, why = %failure, "hints unavailable, polling");
            }
            _ if self.wants_hints => info!(%lease, why = %failure, "hints unavailable, polling"),
            _ => info!(%lease, why = %failure, "hints unavailable, following a change stream"),
        }
        self.no_hints = Some(failure.kind);
    }

    pub(super) fn stream_opened(&mut self) {
        self.opened();
        if mem::take(&mut self.follows_hints) {
            info!(lease = %self.lease, "following a change stream instead of hints");
        }
    }

    pub(super) fn stream_failed(&mut self, failure: &Failure) {
        let answered = mem::take(&mut self.outage.answered_since);
        self.outage.failing = true;
        let worth_a_line = match failure.retry {
            RetryPolicy::WaitForServer => answered,
            _ => self.store_answers,
        };
        if worth_a_line {
            self.no_stream(failure);
        } else if failure.retry != RetryPolicy::WaitForServer {
            self.outage.held_back = Some(failure.clone());
        }
    }

    fn no_stream(&mut self, failure: &Failure) {
        let now = clock::boot_now();
        if let Some((_, failures)) = self.failures.failed(failure.kind, failure.code, now) {
            warn!(lease = %self.lease, why = %failure, failures, "no change stream, polling");
        }
    }

    fn opened(&mut self) {
        self.outage = StreamOutage::default();
        if let Some((lasted, failures)) = self.failures.over(clock::boot_now()) {
            let after_ms = millis(lasted);
            info!(lease = %self.lease, after_ms, failures, "change stream reopened");
        }
    }
}
