//! The time that an unsupervised workload has to notice the end of its leadership. No claim of this
//! candidate is released before that time has passed (I6).
//!
//! This module does not give up authority. Code that gives up or loses authority reports it here.

use std::time::Duration;

use super::lease::Token;
use super::tenure::Tenure;
use super::time::BootTime;
use super::{Election, State, Turn};

/// Maximum wait at a shutdown with `workload.ends_first`, which promises that the workload ends
/// first. A kubelet that restarts only the sidecar breaks that promise, so there is always a wait.
/// A terminating pod may leave the sidecar two seconds, and this wait, the label and the release
/// fit into them.
const ENDS_FIRST_WAIT_MAX: Duration = Duration::from_secs(1);

/// A lost leadership that an unsupervised workload may not have noticed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Unnoticed {
    pub(super) token: Token,
    /// End of the time that the workload has to notice.
    pub(super) until: BootTime,
    /// End of the time that a status file may name the lost leadership.
    shown_until: BootTime,
    /// Instant at which the claim has expired, so that other candidates no longer need a release.
    expired_at: BootTime,
}

impl Election {
    /// Returns the time that a workload has to notice the end of leadership.
    pub(super) fn notice_delay(&self) -> Duration {
        let delay = self.me.tunables.handoff_delay;
        if self.shutdown.is_none() || !self.me.tunables.workload_ends_first {
            delay
        } else {
            delay.min(ENDS_FIRST_WAIT_MAX)
        }
    }

    /// Records a loss of leadership. If a step-down had already begun, `stopping` has the instants
    /// when the workload has noticed and when all status files have ceased to say "leader".
    pub(super) fn lost_unnoticed(
        &mut self,
        tenure: &Tenure,
        stopping: Option<(BootTime, BootTime)>,
        turn: &Turn<'_>,
    ) {
        let (noticed_at, shown_until) = stopping.unzip();
        let until = noticed_at.unwrap_or_else(|| turn.now + self.notice_delay());
        self.unnoticed = (until > turn.now).then_some(Unnoticed {
            token: tenure.token,
            until,
            shown_until: shown_until.unwrap_or_default(),
            expired_at: tenure.expires_at(),
        });
    }

    /// Handles the confirmation that the workload stopped all work under `token`, possibly after
    /// that claim was lost.
    pub(super) fn workload_done(&mut self, token: Token) {
        if let Some(lost) = self.unnoticed.as_mut().filter(|lost| lost.token == token) {
            // Other readers may trust a status file that could not be replaced.
            lost.until = lost.until.min(lost.shown_until);
        }
        if let State::Stopping(stopping) = &mut self.state
            && stopping.tenure.token == token
        {
            stopping.drained_at = BootTime::default();
            stopping.delay = Duration::ZERO;
        }
    }

    /// Shortens a wait for the workload that is in progress when a shutdown is requested, if the
    /// new delay is shorter.
    pub(super) fn hurry_drain(&mut self, now: BootTime) {
        let delay = self.notice_delay();
        let until = now + delay;
        if let Some(lost) = &mut self.unnoticed {
            lost.until = lost.until.min(until.max(lost.shown_until));
        }
        if let State::Stopping(stopping) = &mut self.state {
            stopping.drained_at = stopping.drained_at.min(until);
            stopping.delay = stopping.delay.min(delay);
        }
    }

    /// Returns how long a process that shuts down waits before it releases. The wait
    /// ends at the latest when the claim expires, because a later release has no use.
    pub(super) fn worth_waiting_until(&self) -> BootTime {
        let worth = self.unnoticed.map(|lost| lost.until.min(lost.expired_at));
        worth.unwrap_or_default()
    }

    /// Returns how long a status file that could not be replaced names the lost leadership. This
    /// process must not lead again earlier (I1).
    pub(super) fn shown_until(&self) -> Option<BootTime> {
        self.unnoticed.map(|lost| lost.shown_until)
    }

    /// Returns the earliest instant of a release, unless the workload confirms before. After a
    /// rollback of the store, another candidate may still lead, and those that have not noticed the
    /// rollback would acquire a lease that is released.
    pub(super) fn release_from(&self) -> BootTime {
        let noticed = self.unnoticed.map(|lost| lost.until);
        noticed.max(self.quarantine).unwrap_or_default()
    }
}
