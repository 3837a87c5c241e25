//! A step-down. After the end of authority, the release waits for the status files, the pod's label
//! and the workload. Until the release, renewals continue, so that no other candidate takes over.

use std::time::Duration;

use super::{BootTime, Notice, Reason, Reservation, Tenure, Token};

/// Maximum wait until the files and the label say "not leader". A terminating pod may have only two
/// seconds until its kubelet kills the daemon.
const DEMOTE_WAIT: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Stopping {
    pub(super) tenure: Tenure,
    pub(super) reason: Reason,
    pub(super) reserved_for: Option<Reservation>,
    files: Files,
    /// Latest instant at which the release waits for the pod's label, which may still say "leader".
    pub(super) label_until: Option<BootTime>,
    /// The deadline that the files named when authority was given up.
    published_until: BootTime,
    stuck_reported: bool,
    /// Instant at which the workload counts as drained; zero once the workload has confirmed its
    /// stop.
    drained_at: BootTime,
    /// Time that the workload has to notice the step-down; zero once the workload has confirmed its
    /// stop.
    delay: Duration,
}

/// State of the status files during a step-down. Files are stuck if a disk blocks their update, so
/// they still contain the published deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Files {
    Asked { until: BootTime },
    Demoted,
    Stuck,
}

impl Stopping {
    pub(super) fn begin(
        tenure: Tenure,
        reason: Reason,
        reserved_for: Option<Reservation>,
        delay: Duration,
        now: BootTime,
    ) -> Self {
        Self {
            reason,
            reserved_for,
            files: Files::Asked {
                until: now + DEMOTE_WAIT,
            },
            label_until: None,
            published_until: tenure.valid_until(),
            stuck_reported: false,
            drained_at: now + delay,
            delay,
            tenure,
        }
    }

    pub(super) fn demoted(&mut self, shown: bool, label_pending: bool, now: BootTime) {
        if let Files::Asked { until } = self.files {
            self.label_until = label_pending.then_some(until);
        }
        if self.files == Files::Demoted {
            return;
        }
        self.files = Files::Stuck;
        if shown {
            // From now on, readers of the files can notice the step-down.
            self.files = Files::Demoted;
            self.drained_at = self.drained_at.max(now + self.delay);
        }
    }

    pub(super) fn workload_done(&mut self, token: Token) {
        if self.tenure.token == token {
            self.shorten_drain(BootTime::default(), Duration::ZERO);
        }
    }

    pub(super) fn shorten_drain(&mut self, until: BootTime, delay: Duration) {
        self.drained_at = self.drained_at.min(until);
        self.delay = self.delay.min(delay);
    }

    /// If the release must wait for readers of a stuck file, returns a notice, but only once.
    pub(super) fn report_stuck_files(&mut self, now: BootTime) -> Option<Notice> {
        let stuck = self.files == Files::Stuck;
        let report = stuck && !std::mem::replace(&mut self.stuck_reported, true);
        report.then(|| Notice::NotDemoted {
            wait: self.published_until.since(now),
        })
    }

    pub(super) fn release_due(&mut self, shutting_down: bool, now: BootTime) -> BootTime {
        if planted!(ReleaseBeforeFiles) {
            self.files = Files::Demoted;
        }
        if let Files::Asked { until } = self.files {
            if until > now {
                return until;
            }
            self.files = Files::Stuck;
        }
        let at = self.drained_at.max(self.label_until.unwrap_or_default());
        // A process that shuts down does not wait for the readers of a stuck file, and lets the
        // lease expire.
        match shutting_down {
            true => at,
            false => at.max(self.stuck_noticed_at()),
        }
    }

    /// Returns the latest instant at which a reader of a stuck file may notice the step-down. A
    /// reader trusts the file until the file's deadline, and then notices within the delay.
    pub(super) fn stuck_noticed_at(&self) -> BootTime {
        match self.files {
            Files::Demoted => BootTime::default(),
            Files::Asked { .. } | Files::Stuck => self.published_until + self.delay,
        }
    }

    pub(super) fn noticed_at(&self, now: BootTime) -> BootTime {
        let readable_until = now.max(self.published_until);
        match self.files {
            Files::Demoted => self.drained_at,
            Files::Asked { .. } | Files::Stuck => self.drained_at.max(readable_until + self.delay),
        }
    }

    pub(super) fn shown_until(&self) -> BootTime {
        match self.files {
            Files::Demoted => BootTime::default(),
            Files::Asked { .. } | Files::Stuck => self.published_until,
        }
    }
}
