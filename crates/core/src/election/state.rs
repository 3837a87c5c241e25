//! The states of a candidate, and which inputs move it from one to another.
//!
//! A claim that is lost, or whose release is sent, never leads again.

use std::time::Duration;

use super::effect::Effect;
use super::input::Found;
use super::lease::{Identity, Lease, RequestKind, Reservation};
use super::status::Reason;
use super::stopping::{Stopped, Stopping};
use super::supervise::WorkloadState;
use super::tenure::Tenure;
use super::time::BootTime;
use crate::claim::Turn;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum CandidateState {
    Contending,
    Leading(Tenure),
    Stopping(Stopping),
    Exited,
}

/// A claim whose leadership, or step-down, is lost.
pub(super) enum LostClaim {
    Leading(Tenure),
    Stopping(Stopped),
}

impl CandidateState {
    pub(super) fn contends(&self) -> bool {
        *self == Self::Contending
    }

    /// Returns the claim that leads.
    pub(super) fn leading(&self) -> Option<&Tenure> {
        match self {
            Self::Leading(tenure) => Some(tenure),
            Self::Stopping(_) | Self::Contending | Self::Exited => None,
        }
    }

    /// Returns the claim that leads, or that is being given up.
    pub(super) fn tenure(&self) -> Option<&Tenure> {
        match self {
            Self::Leading(tenure) => Some(tenure),
            Self::Stopping(stopping) => Some(&stopping.tenure),
            Self::Contending | Self::Exited => None,
        }
    }

    pub(super) fn tenure_mut(&mut self) -> Option<&mut Tenure> {
        match self {
            Self::Leading(tenure) => Some(tenure),
            Self::Stopping(stopping) => Some(&mut stopping.tenure),
            Self::Contending | Self::Exited => None,
        }
    }

    /// Returns why the document asks the leading claim to step down, if it does, and the
    /// reservation of a transfer.
    pub(super) fn demand(
        &self,
        lease: &Lease,
        identity: &Identity,
    ) -> Option<(Reason, Option<Reservation>)> {
        let tenure = self.leading()?;
        if lease.paused {
            return Some((Reason::Paused, None));
        }
        let request = lease.request.as_ref();
        let request = request.filter(|r| r.token == tenure.token)?;
        match &request.kind {
            RequestKind::StepDown => Some((Reason::Requested, None)),
            RequestKind::Transfer(to) if to.identity == *identity => None,
            RequestKind::Transfer(to) => Some((Reason::Transferred, Some(to.clone()))),
        }
    }

    /// Renews as soon as possible unless a read shows the claim with a revision that it sent.
    pub(super) fn verify(&mut self, found: &Found) {
        if let Some(tenure) = self.tenure_mut() {
            let known = match found {
                Found::Lease(lease) => tenure.holds(lease) && tenure.sent(lease.revision),
                Found::Missing | Found::Foreign(_) => false,
            };
            if !known {
                tenure.hurry();
            }
        }
    }

    /// Begins to give up a claim that leads; returns false if none does.
    pub(super) fn stop(
        &mut self,
        reason: Reason,
        reserved_for: Option<Reservation>,
        delay: Duration,
        now: BootTime,
    ) -> bool {
        match std::mem::replace(self, Self::Exited) {
            Self::Leading(tenure) => {
                let stopping = Stopping::begin(tenure, reason, reserved_for, delay, now);
                *self = Self::Stopping(stopping);
                true
            }
            other @ (Self::Stopping(_) | Self::Contending | Self::Exited) => {
                *self = other;
                false
            }
        }
    }

    /// Continues a step-down; returns the instant of the next check, and true if the release is due.
    pub(super) fn progress(
        &mut self,
        workload: &WorkloadState,
        shutting_down: bool,
        turn: &mut Turn<'_>,
    ) -> (Option<BootTime>, bool) {
        let Self::Stopping(stopping) = self else {
            return (None, false);
        };
        // Nothing is released while the workload may still be running (I6).
        let progress = if workload.runs() {
            (None, false)
        } else {
            stopping.progress(shutting_down, turn.now)
        };
        if !shutting_down {
            let notice = stopping.report_stuck_files(turn.now);
            turn.effects.extend(notice.map(Effect::Notice));
        }
        progress
    }

    /// Takes the claim that leads or is being given up, and contends from now on; `None` if there
    /// is none.
    pub(super) fn lose(&mut self, now: BootTime) -> Option<LostClaim> {
        match std::mem::replace(self, Self::Contending) {
            Self::Leading(tenure) => Some(LostClaim::Leading(tenure)),
            Self::Stopping(stopping) => Some(LostClaim::Stopping(stopping.end(now))),
            other @ (Self::Contending | Self::Exited) => {
                *self = other;
                None
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CauseOfLoss {
    Deadline,
    Rejected,
    StoreRolledBack,
    WorkloadStuck,
}

impl CauseOfLoss {
    pub(super) fn reason(self) -> Reason {
        match self {
            Self::Deadline => Reason::Deadline,
            Self::Rejected => Reason::Rejected,
            Self::StoreRolledBack => Reason::StoreRolledBack,
            Self::WorkloadStuck => Reason::WorkloadStuck,
        }
    }
}
