//! What the log says of a file that cannot be written.

use std::io;
use std::path::Path;

use tracing::{info, warn};

use crate::election::BootTime;
use crate::log::Repeat;
use crate::publish::Surface;

/// A failure that lasts: a line when it begins, at growing intervals, and when
/// it is over.
#[derive(Debug)]
pub(super) struct Trouble {
    what: &'static str,
    failures: u64,
    since: BootTime,
    repeat: Repeat,
}

impl Trouble {
    pub(super) fn of(what: &'static str) -> Self {
        Self {
            what,
            failures: 0,
            since: BootTime::default(),
            repeat: Repeat::default(),
        }
    }

    pub(super) fn goes_on(&mut self, path: &Path, error: &io::Error, now: BootTime) {
        if self.failures == 0 {
            self.since = now;
        }
        self.failures += 1;
        if self.repeat.is_due(now) {
            warn!(
                surface = Surface::File.as_str(),
                path = %path.display(),
                why = %error,
                failures = self.failures,
                for_ms = u64::try_from(now.since(self.since).as_millis()).unwrap_or(u64::MAX),
                "failed to write the {}, retrying",
                self.what
            );
        }
    }

    pub(super) fn over(&mut self, path: &Path) {
        let failures = std::mem::take(&mut self.failures);
        if self.repeat.reset() {
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
