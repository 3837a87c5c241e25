//! The states of a candidate. A claim that is lost, or whose release is sent, never leads again.

use super::{Found, Identity, Lease, Reason, RequestKind, Reservation, Stopping, Tenure};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum CandidateState {
    Contending,
    Leading(Tenure),
    Stopping(Stopping),
    Exited,
}

pub(super) enum LostClaim {
    Leading(Tenure),
    Stopping(Stopping),
}

type Demand = (Reason, Option<Reservation>);

impl CandidateState {
    pub(super) fn contends(&self) -> bool {
        *self == Self::Contending
    }

    pub(super) fn leading(&self) -> Option<&Tenure> {
        match self {
            Self::Leading(tenure) => Some(tenure),
            Self::Stopping(_) | Self::Contending | Self::Exited => None,
        }
    }

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

    /// If the document asks the leader to step down, returns the reason and the reservation.
    pub(super) fn demand(&self, lease: &Lease, identity: &Identity) -> Option<Demand> {
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

    /// Makes the leader renew immediately, unless a read shows the leader's claim with a revision
    /// that the leader sent. Only a rejected renewal ends the claim, because the read may show an
    /// older document.
    pub(super) fn verify(&mut self, found: &Found) {
        if let Some(tenure) = self.tenure_mut()
            && !matches!(found, Found::Lease(it) if tenure.holds(it) && tenure.sent(it.revision))
        {
            tenure.hurry();
        }
    }

    pub(super) fn lose(&mut self) -> Option<LostClaim> {
        match std::mem::replace(self, Self::Contending) {
            Self::Leading(tenure) => Some(LostClaim::Leading(tenure)),
            Self::Stopping(stopping) => Some(LostClaim::Stopping(stopping)),
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
