//! A step-down: authority has been given up, and the release waits for the files, for the pod's
//! label and for the workload.
//!
//! This module does not release. Renewals continue meanwhile, so that no other candidate takes over
//! before.

use std::time::Duration;

use super::effect::Notice;
use super::lease::{Reservation, Token};
use super::status::Reason;
use super::tenure::Tenure;
use super::time::BootTime;

/// Maximum time that a step-down waits for the files, and for the pod's label; after it the files
/// count as stuck. Files in memory or on a local disk take well under a millisecond. This wait and
/// the release fit into the 1.5 s that a terminating pod may have.
const DEMOTE_WAIT: Duration = Duration::from_millis(500);

/// A claim that is being given up, without authority.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Stopping {
    pub(super) tenure: Tenure,
    reason: Reason,
    reserved_for: Option<Reservation>,
    files: Files,
    /// Latest instant to wait for the pod's label, which may still say leader.
    label_until: Option<BootTime>,
    /// The deadline that the files named when authority was given up.
    published_until: BootTime,
    stuck_reported: bool,
    /// When the workload counts as drained; zero once it has confirmed.
    drained_at: BootTime,
    /// Time that the workload has to notice; zero once it has confirmed.
    delay: Duration,
}

/// State of the status files during a step-down; a stuck file still names the published deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Files {
    Asked { until: BootTime },
    Demoted,
    Stuck,
}

#[derive(Debug)]
pub(super) struct Stopped {
    pub(super) tenure: Tenure,
    pub(super) reason: Reason,
    pub(super) reserved_for: Option<Reservation>,
    /// Instant at which the workload has noticed if leadership is lost now.
    pub(super) noticed_at: BootTime,
    /// When the last status file ceases to say "leader".
    pub(super) shown_until: BootTime,
}

impl Stopping {
    /// Begins to give up a claim that leads. The workload has `delay` to notice.
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

    /// Handles the answer of the files, and whether the label takes longer.
    pub(super) fn demoted(&mut self, shown: bool, label_pending: bool, now: BootTime) {
        if let Files::Asked { until } = self.files {
            self.label_until = label_pending.then_some(until);
        }
        if shown && self.files != Files::Demoted {
            // Readers of the file can notice from now on.
            self.drained_at = self.drained_at.max(now + self.delay);
        }
        self.files = match self.files {
            Files::Asked { .. } if !shown => Files::Stuck,
            // A late demotion counts too, because the old file can no longer be read.
            Files::Asked { .. } | Files::Stuck if shown => Files::Demoted,
            unchanged @ (Files::Asked { .. } | Files::Stuck | Files::Demoted) => unchanged,
        };
    }

    pub(super) fn label_demoted(&mut self) {
        self.label_until = None;
    }

    /// Handles the confirmation that the workload stopped all work under `token`.
    pub(super) fn workload_done(&mut self, token: Token) {
        if self.tenure.token == token {
            self.shorten_drain(BootTime::default(), Duration::ZERO);
        }
    }

    /// Lets the workload notice for `delay`, and until `until` at the latest.
    pub(super) fn shorten_drain(&mut self, until: BootTime, delay: Duration) {
        self.drained_at = self.drained_at.min(until);
        self.delay = self.delay.min(delay);
    }

    /// Returns the notice, once, that the release must wait for readers of a stuck file.
    pub(super) fn report_stuck_files(&mut self, now: BootTime) -> Option<Notice> {
        let stuck = self.files == Files::Stuck;
        let report = stuck && !std::mem::replace(&mut self.stuck_reported, true);
        report.then(|| Notice::NotDemoted {
            wait: self.published_until.since(now),
        })
    }

    /// Returns the instant of the next check, and true if the release is due.
    pub(super) fn progress(
        &mut self,
        shutting_down: bool,
        now: BootTime,
    ) -> (Option<BootTime>, bool) {
        if planted!(ReleaseBeforeFiles) {
            self.files = Files::Demoted;
        }
        if let Files::Asked { until } = self.files {
            if until > now {
                return (Some(until), false);
            }
            self.files = Files::Stuck;
        }
        // A reader of a stuck file trusts it until the deadline that it names, and notices within
        // the delay. A process that exits does not wait for that reader; it leaves the lease to
        // expire.
        let at = match self.files {
            Files::Stuck if !shutting_down => {
                (self.drained_at).max(self.published_until + self.delay)
            }
            Files::Asked { .. } | Files::Demoted | Files::Stuck => self.drained_at,
        };
        let at = at.max(self.label_until.unwrap_or_default());
        if at > now {
            (Some(at), false)
        } else {
            (None, true)
        }
    }

    /// Ends the step-down, with the release or by a loss of leadership.
    pub(super) fn end(self, now: BootTime) -> Stopped {
        let (noticed_at, shown_until) = match self.files {
            Files::Demoted => (self.drained_at, BootTime::default()),
            Files::Asked { .. } | Files::Stuck => {
                let until = now.max(self.published_until);
                let noticed_at = self.drained_at.max(until + self.delay);
                (noticed_at, self.published_until)
            }
        };
        Stopped {
            tenure: self.tenure,
            reason: self.reason,
            reserved_for: self.reserved_for,
            noticed_at,
            shown_until,
        }
    }
}
