//! The workload that a candidate supervises, from the start of a claim's leadership to the end of
//! the processes.
//!
//! This module only emits orders; it does not start or end processes. A claim is released, and
//! another one acquired, only after the workload of the previous claim is confirmed gone (I6).

use std::time::Duration;

use super::effect::{Notice, Order, OrderKind};
use super::lead::Loss;
use super::lease::Token;
use super::status::Reason;
use super::tenure::Tenure;
use super::time::BootTime;
use super::{Effect, Election, State, StayOut, Turn};
use crate::deadline_policy::Terms;

/// The supervised workload of a candidate.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Supervised {
    supervises: bool,
    /// The workload that may still be running.
    running: Option<Running>,
    /// Cooldown after the last exit; doubles with each exit soon after a start.
    back_off: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Running {
    token: Token,
    since: BootTime,
    /// True if it was killed and its end could not be confirmed in time.
    stuck: bool,
}

impl Supervised {
    pub(super) fn new(supervises: bool) -> Self {
        Self {
            supervises,
            running: None,
            back_off: Duration::ZERO,
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

    pub(super) fn supervises(&self) -> bool {
        self.supervises
    }
}

impl Election {
    /// Orders the start of the workload when a claim begins to lead.
    pub(super) fn start_workload(&mut self, now: BootTime) {
        if let (true, State::Leading(tenure)) = (self.workload.supervises, &self.state) {
            let (token, terms) = (tenure.token, terms(tenure));
            self.workload.running = Some(Running {
                token,
                since: now,
                stuck: false,
            });
            self.order(token, OrderKind::Start(terms));
        }
    }

    /// Extends the deadlines of a running or stopping workload after an acknowledged renewal.
    pub(super) fn extend_workload(&mut self) {
        if let (Some(running), Some(tenure)) = (self.workload.running, self.state.tenure())
            && running.token == tenure.token
        {
            let terms = terms(tenure);
            self.order(running.token, OrderKind::Extend(terms));
        }
    }

    /// Orders a graceful stop when leadership is given up.
    pub(super) fn stop_workload(&mut self) {
        if let Some(running) = self.workload.running {
            self.order(running.token, OrderKind::Stop);
        }
    }

    /// Orders an immediate stop, and a deadline for the kill, after a loss of leadership.
    pub(super) fn kill_workload(&mut self, tenure: &Tenure, now: BootTime) {
        if let Some(running) = self.workload.running {
            let kill_at = terms(tenure).kill_at_after_loss(now, &tenure.timings);
            self.order(running.token, OrderKind::Lost { kill_at });
        }
    }

    fn order(&mut self, token: Token, kind: OrderKind) {
        self.outbox.push(Effect::Workload(Order { token, kind }));
    }

    /// Handles an exit of the workload that was not requested. A candidate that cannot keep its
    /// workload running lets others try.
    pub(super) fn workload_ended(&mut self, token: Token, turn: &mut Turn<'_>) {
        let Some(running) = self.workload.running.filter(|r| r.token == token) else {
            return;
        };
        if !matches!(self.state, State::Leading(_)) {
            return;
        }
        self.back_off_after_exit(running, turn.now);
        self.stop(Reason::WorkloadExit, None, turn);
    }

    /// Delays the next attempt of this candidate after an exit. The delay doubles while the
    /// workload keeps exiting soon after its start. Other candidates try immediately, because the
    /// release wakes them.
    fn back_off_after_exit(&mut self, running: Running, now: BootTime) {
        let timings = self.me.tunables.timings;
        let lasted = now.since(running.since);
        let before = if lasted < timings.lease_duration() {
            self.workload.back_off
        } else {
            Duration::ZERO
        };
        let wait = (before * 2).clamp(timings.retry_interval(), timings.lease_duration());
        self.workload.back_off = wait;
        self.stay_out = Some(StayOut {
            until: now + wait,
            // A leader in between does not improve the workload, so it does not end the cooldown.
            token: Token::MAX,
            session: self.me.session,
        });
    }

    /// Handles a workload that survived its kill. Waiting for its end would keep the lease from the
    /// other candidates without a bound, so the claim is lost instead.
    pub(super) fn workload_stuck(&mut self, token: Token, turn: &mut Turn<'_>) {
        let running = self.workload.running.as_mut();
        let Some(running) = running.filter(|r| r.token == token && !r.stuck) else {
            return;
        };
        running.stuck = true;
        let expires_at = self.state.tenure().map(Tenure::expires_at);
        let wait = expires_at.map_or(Duration::ZERO, |at| at.since(turn.now));
        self.outbox.notice(Notice::WorkloadStuck { token, wait });
        self.reason = Some(Reason::WorkloadStuck);
        self.lose(Loss::WorkloadStuck, turn);
    }

    pub(super) fn workload_gone(&mut self, token: Token, turn: &mut Turn<'_>) {
        if self.workload.running.is_none_or(|r| r.token != token) {
            return;
        }
        // If no `WorkloadEnded` came before, the workload exited on its own as well.
        self.workload_ended(token, turn);
        self.workload.running = None;
        if matches!(self.state, State::Contending(_)) {
            // The claim waited for this, and the document may have changed meanwhile.
            self.fall_behind(turn.now);
        }
    }
}

/// Returns the deadlines of the workload of a claim.
fn terms(tenure: &Tenure) -> Terms {
    Terms::new(tenure.valid_until(), &tenure.timings)
}
