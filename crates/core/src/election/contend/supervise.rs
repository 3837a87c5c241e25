//! The workload of a candidate. Before a claim is released or another claim is acquired, a
//! supervised workload is confirmed gone, and an unsupervised workload has had time to notice (I6).

use std::time::Duration;

use super::Contender;
use crate::deadline_policy::Terms;
use crate::election::state::{CandidateState, LostClaim};
use crate::election::{BootTime, Effect, Order, OrderKind, Tenure, Token};

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct WorkloadState {
    supervises: bool,
    running: Option<Running>,
    /// Cooldown after the last exit. It doubles each time the workload exits soon after its start.
    back_off: Duration,
    /// The last loss of leadership, until an unsupervised workload has had time to notice it.
    pub(super) drain: Option<DrainAfterLoss>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Running {
    token: Token,
    since: BootTime,
    stuck: bool,
}

impl WorkloadState {
    pub(super) fn new(supervises: bool) -> Self {
        Self {
            supervises,
            ..Self::default()
        }
    }

    pub(crate) fn runs(&self) -> bool {
        self.running.is_some()
    }

    pub(super) fn runs_under(&self, token: Token) -> bool {
        self.running.is_some_and(|running| running.token == token)
    }

    pub(super) fn is_stuck(&self) -> bool {
        self.running.is_some_and(|running| running.stuck)
    }

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

    pub(super) fn extend(&self, tenure: &Tenure) -> Option<Effect> {
        self.order(OrderKind::Extend(terms(tenure)))
            .filter(|_| self.runs_under(tenure.token))
    }

    /// Stops the workload immediately. An unsupervised workload gets `delay` to notice the loss,
    /// or, during a step-down, the rest of the delay that has already begun.
    pub(super) fn lose(
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

    pub(crate) fn order(&self, kind: OrderKind) -> Option<Effect> {
        let token = self.running?.token;
        Some(Effect::Workload(Order { token, kind }))
    }

    /// Ends the drain at `until` if this is earlier, but not before the deadline in a stuck status
    /// file.
    pub(super) fn shorten_drain(&mut self, until: BootTime) {
        if let Some(lost) = &mut self.drain {
            lost.until = lost.until.min(until.max(lost.shown_until));
        }
    }

    /// Returns the token of a lost leadership that the workload may not have noticed.
    pub(crate) fn draining(&self, now: BootTime) -> Option<Token> {
        let drain = self.drain.filter(|drain| drain.until > now);
        drain.map(|drain| drain.token)
    }

    /// Returns the instant at which a shutdown no longer delays its release: the workload has then
    /// had time to notice the loss, or the claim has expired.
    pub(super) fn worth_waiting_until(&self) -> Option<BootTime> {
        self.drain.map(|drain| drain.until.min(drain.expired_at))
    }

    pub(super) fn check_invariants(&self, state: &CandidateState) {
        if let (true, Some(tenure)) = (self.supervises, state.leading()) {
            let runs = self.runs_under(tenure.token);
            assert!(runs, "a leader whose workload is gone");
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct DrainAfterLoss {
    token: Token,
    pub(super) until: BootTime,
    /// Deadline in a stuck status file, before which this process must not lead (I1).
    pub(super) shown_until: BootTime,
    /// Instant at which the claim expires for other candidates, which then need no release.
    expired_at: BootTime,
}

impl Contender {
    pub(crate) fn workload_done(&mut self, token: Token) {
        let lost = self.workload.drain;
        if lost.is_some_and(|lost| lost.token == token) {
            self.workload.shorten_drain(BootTime::default());
        }
    }

    /// Begins the back-off after the workload ended on its own. Returns false if no running
    /// workload has this token.
    pub(crate) fn workload_ended(&mut self, token: Token, now: BootTime) -> bool {
        let (timings, workload) = (self.me.timings(), &mut self.workload);
        let running = workload.running.filter(|running| running.token == token);
        let Some(running) = running else {
            return false;
        };
        let before = if now.since(running.since) < timings.lease_duration() {
            workload.back_off
        } else {
            Duration::ZERO
        };
        workload.back_off = (before * 2).clamp(timings.retry_interval(), timings.lease_duration());
        let until = now + workload.back_off;
        self.waits.back_off(until);
        true
    }

    pub(crate) fn workload_stuck(&mut self, token: Token) -> bool {
        let running = self.workload.running.as_mut();
        let running = running.filter(|running| running.token == token && !running.stuck);
        running.map(|running| running.stuck = true).is_some()
    }

    pub(crate) fn workload_gone(&mut self, token: Token, contends: bool, now: BootTime) {
        let running = &mut self.workload.running;
        let gone = running.take_if(|running| running.token == token);
        if gone.is_some() && contends {
            // The document may have changed while the workload ran.
            self.reads.fall_behind(now);
        }
    }
}

fn terms(tenure: &Tenure) -> Terms {
    Terms::new(tenure.valid_until(), &tenure.timings)
}
