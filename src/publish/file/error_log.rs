use std::io;
use std::path::Path;
use std::time::Duration;

use tracing::{info, warn};

use crate::clock::boot_now;
use crate::log::{ErrorThrottle, millis};
use crate::publish::Surface;
use crate::publish::metrics::Metrics;

const INTERVAL_MIN: Duration = Duration::from_secs(10);

/// Logs a lasting failure when it begins, then at growing intervals, and when it ends.
#[derive(Debug)]
pub(super) struct ErrorLog {
    what: &'static str,
    throttle: ErrorThrottle,
}

impl ErrorLog {
    pub(super) fn of(what: &'static str) -> Self {
        Self {
            what,
            throttle: ErrorThrottle::starting_with(INTERVAL_MIN),
        }
    }

    pub(super) fn failed(&mut self, path: &Path, error: &io::Error, metrics: &Metrics) {
        metrics.publish_failed(Surface::File);
        if let Some((failing_for, failures)) = self.throttle.failed("", None, boot_now()) {
            warn!(
                surface = Surface::File.as_str(),
                path = %path.display(),
                why = %error,
                failures,
                failing_for_ms = millis(failing_for),
                "failed to write the {}, retrying",
                self.what
            );
        }
    }

    pub(super) fn over(&mut self, path: &Path) {
        if let Some((_, failures)) = self.throttle.over(boot_now()) {
            info!(
                surface = Surface::File.as_str(),
                path = %path.display(),
                failures,
                "{} written again",
                self.what
            );
        }
    }
}
