//! The workload that a candidate runs itself: exactly while its claim leads.
//!
//! Nothing here starts or ends a process. A claim is released, and another one
//! acquired, only when the workload of the one before is confirmed gone (I6).

use std::time::Duration;

use super::effect::{Order, OrderKind, Terms};
use super::lease::Token;
use super::status::Reason;
use super::tenure::Tenure;
use super::time::BootTime;
use super::{Effect, Election, State, StayOut, Turn};

/// The workload of a supervising candidate.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Supervised {
    supervises: bool,
    /// The workload that may still run.
    running: Option<Running>,
    /// How long to stay out after the next exit; doubles with each quick one.
    back_off: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Running {
    token: Token,
    since: BootTime,
}

impl Supervised {
    pub(super) fn new(supervises: bool) -> Self {
        Self {
            supervises,
            running: None,
            back_off: Duration::ZERO,
        }
    }

    /// Whether a workload may still run, under whatever claim.
    pub(super) fn runs(&self) -> bool {
        self.running.is_some()
    }

    /// Whether the workload of this claim may still run.
    pub(super) fn runs_under(&self, token: Token) -> bool {
        self.running.is_some_and(|running| running.token == token)
    }

    pub(super) fn supervises(&self) -> bool {
        self.supervises
    }
}

impl Election {
    /// A claim leads: its workload may run.
    pub(super) fn start_workload(&mut self, now: BootTime) {
        if let (true, State::Leading(tenure)) = (self.workload.supervises, &self.state) {
            let (token, terms) = (tenure.token, terms(tenure));
            self.workload.running = Some(Running { token, since: now });
            self.order(token, OrderKind::Start(terms));
        }
    }

    /// A renewal was acknowledged: the workload may go on, or go on ending.
    pub(super) fn extend_workload(&mut self) {
        if let (Some(running), Some(tenure)) = (self.workload.running, self.tenure())
            && running.token == tenure.token
            && !(planted!(DrainNotExtended) && matches!(self.state, State::Stopping(_)))
        {
            let terms = terms(tenure);
            self.order(running.token, OrderKind::Extend(terms));
        }
    }

    /// Leadership is given up: the workload has its time to end.
    pub(super) fn stop_workload(&mut self) {
        if let Some(running) = self.workload.running {
            self.order(running.token, OrderKind::Stop);
        }
    }

    /// Leadership is gone. Where its end came before the deadline, another may
    /// lead already: the workload has no more than its grace from now.
    pub(super) fn kill_workload(&mut self, tenure: &Tenure, now: BootTime) {
        if let Some(running) = self.workload.running {
            let grace = tenure.timings.loss_grace();
            let kill_at = terms(tenure).kill_at.min(now + grace);
            self.order(running.token, OrderKind::Lost { kill_at });
        }
    }

    fn order(&mut self, token: Token, kind: OrderKind) {
        self.effects
            .push_back(Effect::Workload(Order { token, kind }));
    }

    /// It ended by itself: whoever cannot keep it running lets others try.
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

    /// A workload that ends soon after each start is tried again ever more
    /// seldom here, and at once by the others, who are woken by the release.
    fn back_off_after_exit(&mut self, running: Running, now: BootTime) {
        let timings = self.tunables.timings;
        let lasted = now.since(running.since);
        let before = if lasted < timings.lease_duration() {
            self.workload.back_off
        } else {
            Duration::ZERO
        };
        let wait = (before * 2).clamp(timings.retry_interval(), timings.lease_duration());
        self.workload.back_off = wait;
        if !planted!(ExitNotBackedOff) {
            self.stay_out = Some(StayOut {
                until: now + wait,
                // No leader in between makes the workload any better.
                token: Token::MAX,
                session: self.session,
            });
        }
    }

    pub(super) fn workload_gone(&mut self, token: Token, turn: &mut Turn<'_>) {
        if self.workload.running.is_none_or(|r| r.token != token) {
            return;
        }
        // Without a word before, it ended by itself as well.
        self.workload_ended(token, turn);
        self.workload.running = None;
        if matches!(self.state, State::Contending(_)) {
            // Its claim has waited for this; the document may have changed.
            self.fall_behind(turn.now);
        }
    }
}

/// Until when the workload of a claim may run.
fn terms(tenure: &Tenure) -> Terms {
    let valid_until = tenure.valid_until();
    Terms {
        valid_until,
        kill_at: valid_until + tenure.timings.loss_grace(),
    }
}
