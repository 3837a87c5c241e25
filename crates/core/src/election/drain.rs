//! The time that a workload which is not supervised has to notice that its
//! leadership ended: until then no claim of this candidate is released (I6).
//!
//! Nothing here gives up authority. Who gives it up or loses it says so here.

use std::time::Duration;

use super::lease::Token;
use super::tenure::Tenure;
use super::time::BootTime;
use super::{Election, State, Turn};

/// The longest wait at a shutdown where the workload is said to end first
/// (`workload.ends_first`). A kubelet that restarts the sidecar alone breaks
/// that promise, so there is always a wait; a terminating pod may leave the
/// sidecar two seconds, which this, the label and the release fit into.
const ENDS_FIRST_WAIT_MAX: Duration = Duration::from_secs(1);

/// A leadership that was lost. The workload next door may not have noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Unnoticed {
    pub(super) token: Token,
    /// From here on it has had its time.
    pub(super) until: BootTime,
    /// The others need no release any more: the claim has expired.
    expired_at: BootTime,
}

impl Election {
    /// How long a workload may take to notice that leadership ended.
    pub(super) fn notice_delay(&self) -> Duration {
        let delay = self.tunables.handoff_delay;
        if self.shutdown.is_none() || !self.tunables.workload_ends_first {
            delay
        } else if planted!(EndsFirstTrusted) {
            Duration::ZERO
        } else {
            delay.min(ENDS_FIRST_WAIT_MAX)
        }
    }

    /// Leadership is lost; `noticed_at` is known where a step-down had begun before.
    pub(super) fn lost_unnoticed(
        &mut self,
        tenure: &Tenure,
        noticed_at: Option<BootTime>,
        turn: &Turn<'_>,
    ) {
        let until = noticed_at.unwrap_or_else(|| turn.now + self.notice_delay());
        let waits = until > turn.now && !planted!(ReleaseAtDeadline);
        self.unnoticed = waits.then_some(Unnoticed {
            token: tenure.token,
            until,
            expired_at: tenure.renewed_at + tenure.timings.lease_duration(),
        });
    }

    /// The workload confirmed that it stopped what it did under `token`, maybe
    /// after that was lost.
    pub(super) fn workload_done(&mut self, token: Token) {
        self.unnoticed = self.unnoticed.filter(|lost| lost.token != token);
        if let State::Stopping(stopping) = &mut self.state
            && stopping.tenure.token == token
        {
            stopping.drained_at = BootTime::default();
            stopping.delay = Duration::ZERO;
        }
    }

    /// A shutdown was asked for while a workload is waited for: the wait may be
    /// shorter now.
    pub(super) fn hurry_drain(&mut self, now: BootTime) {
        let delay = self.notice_delay();
        let until = now + delay;
        if let Some(lost) = &mut self.unnoticed {
            lost.until = lost.until.min(until);
        }
        if let State::Stopping(stopping) = &mut self.state {
            stopping.drained_at = stopping.drained_at.min(until);
            stopping.delay = stopping.delay.min(delay);
        }
    }

    /// Until when a process that shuts down waits before it releases; later than
    /// the instant at which the claim expires it is not worth it.
    pub(super) fn worth_waiting_until(&self) -> BootTime {
        let worth = self.unnoticed.map(|lost| lost.until.min(lost.expired_at));
        worth.unwrap_or_default()
    }

    /// Before this instant nothing is released, unless the workload confirms.
    pub(super) fn release_from(&self) -> BootTime {
        self.unnoticed.map(|lost| lost.until).unwrap_or_default()
    }
}
