//! The time that an unsupervised workload has to notice the end of its leadership. No claim of this
//! candidate is released before that time has passed (I6).

use std::time::Duration;

use super::input::Tunables;
use super::lease::Token;
use super::tenure::Tenure;
use super::time::BootTime;

/// Maximum wait at a shutdown with `workload.ends_first`, which promises that the workload ends
/// first. A kubelet that restarts only the sidecar breaks that promise, so there is always a wait.
/// A terminating pod may leave the sidecar two seconds, and this wait, the label and the release
/// fit into them.
const ENDS_FIRST_WAIT_MAX: Duration = Duration::from_secs(1);

/// Returns the time that a workload has to notice the end of leadership.
pub(super) fn drain_time(tunables: &Tunables, shutting_down: bool) -> Duration {
    let delay = tunables.handoff_delay;
    if shutting_down && tunables.workload_ends_first {
        delay.min(ENDS_FIRST_WAIT_MAX)
    } else {
        delay
    }
}

/// A lost leadership that an unsupervised workload may not have noticed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct DrainAfterLoss {
    token: Token,
    /// End of the time that the workload has to notice.
    until: BootTime,
    /// End of the time that a status file may name the lost leadership.
    shown_until: BootTime,
    /// Instant at which the claim has expired, so that other candidates no longer need a release.
    expired_at: BootTime,
}

impl DrainAfterLoss {
    /// Begins at the loss of a claim. If a step-down had already begun, `stopping` has the instants
    /// when the workload has noticed and when all status files have ceased to say "leader".
    pub(super) fn begin(
        tenure: &Tenure,
        stopping: Option<(BootTime, BootTime)>,
        delay: Duration,
        now: BootTime,
    ) -> Option<Self> {
        let (noticed_at, shown_until) = stopping.unzip();
        let until = noticed_at.unwrap_or(now + delay);
        (until > now).then_some(Self {
            token: tenure.token,
            until,
            shown_until: shown_until.unwrap_or_default(),
            expired_at: tenure.expires_at(),
        })
    }

    pub(super) fn token(&self) -> Token {
        self.token
    }

    pub(super) fn until(&self) -> BootTime {
        self.until
    }

    /// Returns how long a status file that could not be replaced names the lost leadership. This
    /// process must not lead again earlier (I1).
    pub(super) fn shown_until(&self) -> BootTime {
        self.shown_until
    }

    /// Returns how long a process that shuts down waits before it releases. The wait
    /// ends at the latest when the claim expires, because a later release has no use.
    pub(super) fn worth_waiting_until(&self) -> BootTime {
        self.until.min(self.expired_at)
    }

    /// Ends at `until`, but not before the last reader of a status file that could not be replaced
    /// may have noticed.
    pub(super) fn shorten(&mut self, until: BootTime) {
        self.until = self.until.min(until.max(self.shown_until));
    }
}
