//! The workload of a candidate, from the start of a claim's leadership to the end of the processes.
//!
//! An unsupervised workload has some time to notice the end of its leadership instead.
//!
//! This module only returns orders; it does not start or end processes. A claim is released, and
//! another one acquired, only after the workload of the previous claim is confirmed gone (I6).

use std::time::Duration;

use super::effect::{Effect, Order, OrderKind};
use super::input::Tunables;
use super::lease::Token;
use super::state::{CandidateState, LostClaim};
use super::tenure::Tenure;
use super::time::BootTime;
use super::timings::Timings;
use crate::deadline_policy::Terms;

/// Maximum wait at a shutdown with `workload.ends_first`, which promises that the workload ends
/// first. A kubelet that restarts only the sidecar breaks that promise, so there is always a wait.
/// A terminating pod may leave the sidecar two seconds, and this wait, the label and the release
/// fit into them.
const ENDS_FIRST_WAIT_MAX: Duration = Duration::from_secs(1);

/// State of the workload. An unsupervised workload only gets time to notice a loss.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct WorkloadState {
    supervises: bool,
    /// The workload that may still be running.
    running: Option<Running>,
    /// Cooldown after the last exit; doubles with each exit soon after a start.
    back_off: Duration,
    /// The leadership that was lost last, kept until an unsupervised workload has had its time to
    /// notice.
    pub(super) drain: Option<DrainAfterLoss>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Running {
    token: Token,
    since: BootTime,
    /// True if it was killed and its end could not be confirmed in time.
    stuck: bool,
}

impl WorkloadState {
    pub(super) fn new(supervises: bool) -> Self {
        Self {
            supervises,
            running: None,
            back_off: Duration::ZERO,
            drain: None,
        }
    }

    /// Returns true if a workload may still be running, under any claim.
    pub(super) fn runs(&self) -> bool {
        self.running.is_some()
    }

    /// Returns true if the workload of this claim may still be running.
    pub(super) fn runs_under(&self, token: Token) -> bool {
        self.running.is_some_and(|running| running.token == token)
    }

    /// Returns true if the workload was killed and its end could not be confirmed in time.
    pub(super) fn is_stuck(&self) -> bool {
        self.running.is_some_and(|running| running.stuck)
    }

    /// Starts the workload when a claim begins to lead.
    pub(super) fn start(&mut self, tenure: &Tenure, now: BootTime) -> Option<Effect> {
        self.drain = None;
        if !self.supervises {
            return None;
        }
        self.running = Some(Running {
            token: tenure.token,
            since: now,
            stuck: false,
        });
        self.order(OrderKind::Start(terms(tenure)))
    }

    /// Extends the deadlines of a running or stopping workload after an acknowledged renewal.
    pub(super) fn extend(&self, tenure: &Tenure) -> Option<Effect> {
        self.order(OrderKind::Extend(terms(tenure)))
            .filter(|_| self.runs_under(tenure.token))
    }

    /// Stops the workload gracefully when leadership is given up.
    pub(super) fn stop(&self) -> Option<Effect> {
        self.order(OrderKind::Stop)
    }

    /// Stops the workload immediately, with a deadline for the kill, after a loss of leadership. An
    /// unsupervised workload has `delay` to notice, or what is left of the step-down.
    pub(super) fn lose(
        &mut self,
        lost: &LostClaim,
        delay: Duration,
        now: BootTime,
    ) -> Option<Effect> {
        let (tenure, noticed_at, shown_until) = match lost {
            LostClaim::Leading(tenure) => (tenure, now + delay, BootTime::default()),
            LostClaim::Stopping(it) => (&it.tenure, it.noticed_at, it.shown_until),
        };
        self.drain = (noticed_at > now).then(|| DrainAfterLoss {
            token: tenure.token,
            until: noticed_at,
            shown_until,
            expired_at: tenure.expires_at(),
        });
        let kill_at = terms(tenure).kill_at_after_loss(now, &tenure.timings);
        self.order(OrderKind::Lost { kill_at })
    }

    fn order(&self, kind: OrderKind) -> Option<Effect> {
        let token = self.running?.token;
        Some(Effect::Workload(Order { token, kind }))
    }

    /// Handles the confirmation that the workload stopped all work under the lost claim.
    pub(super) fn done(&mut self, token: Token) {
        if let Some(lost) = self.drain.as_mut().filter(|lost| lost.token == token) {
            lost.shorten(BootTime::default());
        }
    }

    /// Lets an unsupervised workload notice a loss until `until` at the latest.
    pub(super) fn shorten_drain(&mut self, until: BootTime) {
        if let Some(lost) = &mut self.drain {
            lost.shorten(until);
        }
    }

    /// Handles an unrequested exit of the leader's workload. Returns the back-off of this candidate,
    /// which doubles while the workload keeps exiting soon after its start. Other candidates try
    /// immediately, because the release wakes them.
    pub(super) fn ended(
        &mut self,
        token: Token,
        timings: &Timings,
        now: BootTime,
    ) -> Option<Duration> {
        let running = self.running.filter(|running| running.token == token)?;
        let before = if now.since(running.since) < timings.lease_duration() {
            self.back_off
        } else {
            Duration::ZERO
        };
        self.back_off = (before * 2).clamp(timings.retry_interval(), timings.lease_duration());
        Some(self.back_off)
    }

    /// Handles a workload that survived its kill; returns false if this is known already.
    pub(super) fn stuck(&mut self, token: Token) -> bool {
        let running = self.running.as_mut();
        match running.filter(|running| running.token == token && !running.stuck) {
            Some(running) => {
                running.stuck = true;
                true
            }
            None => false,
        }
    }

    /// Checks that the workload of the leading claim was started.
    pub(super) fn check_invariants(&self, state: &CandidateState) {
        if let (true, Some(tenure)) = (self.supervises, state.leading()) {
            let runs = self.runs_under(tenure.token);
            assert!(runs, "a leader whose workload is gone");
        }
    }

    /// Handles the end of the last process; returns false if it is known already.
    pub(super) fn gone(&mut self, token: Token) -> bool {
        let gone = self.running.take_if(|running| running.token == token);
        gone.is_some()
    }
}

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
    pub(super) token: Token,
    /// End of the time that the workload has to notice.
    pub(super) until: BootTime,
    /// End of the time that a status file that could not be replaced names the lost leadership. This
    /// process must not lead again earlier (I1).
    pub(super) shown_until: BootTime,
    /// Instant at which the claim has expired, so that other candidates no longer need a release.
    expired_at: BootTime,
}

impl DrainAfterLoss {
    /// Returns until when a process that shuts down delays its release: at most until the claim
    /// expires.
    pub(super) fn worth_waiting_until(self) -> BootTime {
        self.until.min(self.expired_at)
    }

    /// Ends at `until`, but not before the last reader of a status file that could not be replaced
    /// may have noticed.
    pub(super) fn shorten(&mut self, until: BootTime) {
        self.until = self.until.min(until.max(self.shown_until));
    }
}

/// Returns the deadlines of the workload of a claim.
fn terms(tenure: &Tenure) -> Terms {
    Terms::new(tenure.valid_until(), &tenure.timings)
}
