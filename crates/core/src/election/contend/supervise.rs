//! The workload of a candidate. Before a claim is released or another one is acquired, the previous
//! claim's supervised workload is confirmed gone, and an unsupervised workload has had time to
//! notice the end of its leadership (I6).

use std::time::Duration;

use crate::deadline_policy::Terms;
use crate::election::state::{CandidateState, LostClaim};
use crate::election::{BootTime, Effect, Order, OrderKind, Tenure, Timings, Token};

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(in crate::election) struct WorkloadState {
    supervises: bool,
    running: Option<Running>,
    /// Cooldown after the last exit. It doubles with each exit soon after a start.
    back_off: Duration,
    /// The last lost leadership, until an unsupervised workload has had time to notice the loss.
    pub(in crate::election) drain: Option<DrainAfterLoss>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Running {
    token: Token,
    since: BootTime,
    /// True if the workload was killed and its end could not be confirmed in time.
    stuck: bool,
}

impl WorkloadState {
    pub(in crate::election) fn new(supervises: bool) -> Self {
        Self {
            supervises,
            ..Self::default()
        }
    }

    /// Returns true if a workload may still be running, under any claim.
    pub(in crate::election) fn runs(&self) -> bool {
        self.running.is_some()
    }

    pub(in crate::election) fn runs_under(&self, token: Token) -> bool {
        self.running.is_some_and(|running| running.token == token)
    }

    pub(in crate::election) fn is_stuck(&self) -> bool {
        self.running.is_some_and(|running| running.stuck)
    }

    pub(in crate::election) fn start(&mut self, tenure: &Tenure, now: BootTime) -> Option<Effect> {
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

    pub(in crate::election) fn extend(&self, tenure: &Tenure) -> Option<Effect> {
        self.order(OrderKind::Extend(terms(tenure)))
            .filter(|_| self.runs_under(tenure.token))
    }

    pub(in crate::election) fn stop(&self) -> Option<Effect> {
        self.order(OrderKind::Stop)
    }

    /// Stops the workload immediately, with a deadline for the kill. An unsupervised workload has
    /// `delay` to notice the loss; during a step-down it has the rest of that delay.
    pub(in crate::election) fn lose(
        &mut self,
        lost: &LostClaim,
        delay: Duration,
        now: BootTime,
    ) -> Option<Effect> {
        let (tenure, noticed_at, shown_until) = match lost {
            LostClaim::Leading(tenure) => (tenure, now + delay, BootTime::default()),
            LostClaim::Stopping(it) => (&it.tenure, it.noticed_at(now), it.shown_until()),
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
    pub(in crate::election) fn done(&mut self, token: Token) {
        if let Some(lost) = self.drain.as_mut().filter(|lost| lost.token == token) {
            lost.shorten(BootTime::default());
        }
    }

    /// Ends the time of an unsupervised workload to notice a loss at `until` at the latest.
    pub(in crate::election) fn shorten_drain(&mut self, until: BootTime) {
        if let Some(lost) = &mut self.drain {
            lost.shorten(until);
        }
    }

    /// Handles an unrequested exit of the leader's workload. Returns this candidate's back-off.
    /// Other candidates contend immediately, because the release wakes them.
    pub(in crate::election) fn ended(
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

    /// Handles a workload that survived its kill; returns false if it was known to be stuck.
    pub(in crate::election) fn stuck(&mut self, token: Token) -> bool {
        let running = self.running.as_mut();
        let running = running.filter(|running| running.token == token && !running.stuck);
        running.map(|running| running.stuck = true).is_some()
    }

    pub(in crate::election) fn check_invariants(&self, state: &CandidateState) {
        if let (true, Some(tenure)) = (self.supervises, state.leading()) {
            let runs = self.runs_under(tenure.token);
            assert!(runs, "a leader whose workload is gone");
        }
    }

    /// Handles the exit of the last process; returns false if no workload runs under this token.
    pub(in crate::election) fn gone(&mut self, token: Token) -> bool {
        let gone = self.running.take_if(|running| running.token == token);
        gone.is_some()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::election) struct DrainAfterLoss {
    pub(in crate::election) token: Token,
    /// End of the time that the workload has to notice.
    pub(in crate::election) until: BootTime,
    /// Deadline in a stuck status file, before which this process must not lead (I1).
    pub(in crate::election) shown_until: BootTime,
    /// Instant at which other candidates consider the claim expired, so that they need no release.
    expired_at: BootTime,
}

impl DrainAfterLoss {
    /// Returns until when an exiting process delays its release.
    pub(in crate::election) fn worth_waiting_until(self) -> BootTime {
        self.until.min(self.expired_at)
    }

    /// Shortens the wait to `until`, but not below the deadline in a stuck status file.
    fn shorten(&mut self, until: BootTime) {
        self.until = self.until.min(until.max(self.shown_until));
    }
}

fn terms(tenure: &Tenure) -> Terms {
    Terms::new(tenure.valid_until(), &tenure.timings)
}
