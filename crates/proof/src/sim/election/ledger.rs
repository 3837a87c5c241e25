//! Records what a process received and must do: requests, rejections, and the calls that the
//! process must make immediately. `observer.rs` records the process's claims.

use std::collections::VecDeque;

use crate::election::{
    BootTime, CallId, Claim, Found, Input, Lease, Operation, Outcome, RequestKind, Reservation,
    Token, Watch,
};

/// Far above the number of calls in flight.
const CALLS_REMEMBERED_MAX: usize = 64;

#[derive(Debug, Clone, Default)]
pub(super) struct Heard {
    pub(super) signalled: bool,
    pub(super) shut_down: bool,
    pub(super) unhealthy: bool,
    /// The input reported that the workload of this token ended or is gone.
    pub(super) exited: Option<Token>,
    /// The input reported that the workload of this token has survived SIGKILL.
    pub(super) stuck: Option<Token>,
    pub(super) reconfigured: bool,
    pub(super) asks: Option<Asks>,
    pub(super) renewed: Option<Claim>,
    pub(super) rejected: Option<Claim>,
}

impl Heard {
    /// Returns the token that a request in the document names, and the target of a transfer.
    pub(super) fn requested(&self) -> Option<&(Token, Option<Reservation>)> {
        self.asks.as_ref()?.request.as_ref()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asks {
    pub(super) paused: bool,
    pub(super) request: Option<(Token, Option<Reservation>)>,
}

#[derive(Debug, Clone, Copy)]
struct Renewal {
    call: CallId,
    claim: Claim,
    in_flight: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Ledger {
    pub(super) heard: Heard,
    renewals: VecDeque<Renewal>,
    releases: VecDeque<(CallId, Claim)>,
    /// Claims whose release was answered, claims whose renewal was rejected, and the claim that
    /// led last before a `StoreRolledBack` notice. The process need not act on these claims, even
    /// if a stale member shows them.
    resolved: VecDeque<Claim>,
    /// True if no read has been sent since a stream was opened.
    pub(super) read_owed: bool,
    /// The token of a holder that must send a renewal: it was notified of a new primary while fewer
    /// than two renewals were in flight, and has not sent a renewal since then.
    pub(super) renewal_owed: Option<Token>,
    /// The number of consecutive reads that showed the process's own ended claim, without a write
    /// by the process.
    pub(super) idle_reads: u32,
    pub(super) lost_at: Option<BootTime>,
    /// The token of the leadership that was transferred last, and the requested reservation.
    pub(super) transferred: Option<(Token, Reservation)>,
    /// The true time when the process last asked a preferred standby to register again.
    pub(super) asked_at: u64,
    /// The state before this turn: the token of the leadership, the token of a leadership that the
    /// process was giving up, and the deadline.
    pub(super) led: Option<Token>,
    pub(super) stopping: Option<Token>,
    pub(super) until: Option<BootTime>,
    /// The write that was not answered and has not timed out.
    writing: Option<CallId>,
}

impl Asks {
    fn of(lease: &Lease) -> Self {
        let request = lease.request.as_ref().map(|r| match &r.kind {
            RequestKind::StepDown => (r.token, None),
            RequestKind::Transfer(to) => (r.token, Some(to.clone())),
        });
        Self {
            paused: lease.paused,
            request,
        }
    }
}

impl Ledger {
    /// Records an input before the process acts on it. `held` is the claim that the process leads
    /// with or is giving up, and the claim's token.
    pub(super) fn received(&mut self, input: &Input, held: Option<(Claim, Token)>) {
        self.heard = Heard::default();
        match input {
            Input::StepDown => self.heard.signalled = true,
            Input::Shutdown => self.heard.shut_down = true,
            Input::Reconfigure(_) => self.heard.reconfigured = true,
            Input::Watch(Watch::Opened | Watch::LateStreamOpened | Watch::HintsOpened) => {
                self.read_owed = true
            }
            Input::PrimaryChanged => {
                let idle = |(claim, _): &(Claim, Token)| self.renewals_in_flight(*claim) < 2;
                self.renewal_owed = held.filter(idle).map(|(_, token)| token);
            }
            Input::Reply { call, outcome } => self.answered(*call, outcome),
            Input::Health { healthy } => self.heard.unhealthy = !healthy,
            Input::Tick
            | Input::Watch(_)
            | Input::Demoted { .. }
            | Input::LabelDemoted
            | Input::WorkloadDone { .. } => {}
            Input::WorkloadEnded { token } | Input::WorkloadGone { token } => {
                self.heard.exited = Some(*token);
            }
            Input::WorkloadStuck { token } => self.heard.stuck = Some(*token),
        }
    }

    fn answered(&mut self, call: CallId, outcome: &Outcome) {
        if let Outcome::Applied(Found::Lease(lease)) = outcome {
            self.heard.asks = Some(Asks::of(lease));
        }
        self.writing = self.writing.filter(|id| *id != call);
        let definite = matches!(outcome, Outcome::Applied(_) | Outcome::Rejected);
        let released = self.releases.iter().find(|(id, _)| *id == call);
        if let Some((_, claim)) = released.filter(|_| definite) {
            let claim = *claim;
            self.resolve(claim);
        }
        let Some(index) = self.renewals.iter().position(|r| r.call == call) else {
            return;
        };
        self.renewals[index].in_flight = false;
        let claim = self.renewals[index].claim;
        let later = self.renewals.iter().skip(index + 1);
        let newest = !later.clone().any(|r| r.claim == claim);
        match outcome {
            Outcome::Applied(Found::Lease(_)) => {
                // The filters of earlier renewals no longer match.
                let earlier = self.renewals.iter_mut().take(index);
                for renewal in earlier.filter(|r| r.claim == claim) {
                    renewal.in_flight = false;
                }
                self.heard.renewed = Some(claim).filter(|_| newest);
            }
            Outcome::Applied(Found::Foreign(_)) => self.heard.rejected = Some(claim),
            Outcome::Rejected => self.heard.rejected = Some(claim).filter(|_| newest),
            Outcome::Failed => {
                self.renewals.remove(index);
            }
            Outcome::Applied(Found::Missing) | Outcome::PrimaryOnly | Outcome::Unknown => {}
        }
        if let Some(claim) = self.heard.rejected {
            self.resolve(claim);
        }
    }

    pub(super) fn resolve(&mut self, claim: Claim) {
        remember(&mut self.resolved, claim);
    }

    /// Records a read. `ended` is the document's claim, if it is an ended claim of this process and
    /// the process may have written the shown revision.
    pub(super) fn reads(&mut self, ended: Option<Claim>) {
        match ended {
            Some(_) if self.writing.is_some() => {}
            Some(claim) if !self.resolved.contains(&claim) => self.idle_reads += 1,
            Some(_) | None => self.idle_reads = 0,
        }
    }

    pub(super) fn calls(&mut self, call: CallId, operation: &Operation) {
        match operation {
            Operation::Read { .. } => {
                self.read_owed = false;
                return;
            }
            Operation::Renew { claim, .. } => {
                self.renewal_owed = None;
                let renewal = Renewal {
                    call,
                    claim: *claim,
                    in_flight: true,
                };
                remember(&mut self.renewals, renewal);
            }
            Operation::Release { claim, .. } => {
                remember(&mut self.releases, (call, *claim));
            }
            // A process sends these calls independently of all other calls.
            Operation::Register { .. } | Operation::Withdraw { .. } => return,
            Operation::Acquire(_) | Operation::TakeOver { .. } | Operation::Create { .. } => {}
        }
        self.idle_reads = 0;
        self.writing = Some(call);
    }

    pub(super) fn renewals_in_flight(&self, claim: Claim) -> usize {
        let in_flight = |r: &&Renewal| r.in_flight && r.claim == claim;
        self.renewals.iter().filter(in_flight).count()
    }
}

fn remember<T>(all: &mut VecDeque<T>, newest: T) {
    if all.len() == CALLS_REMEMBERED_MAX {
        all.pop_front();
    }
    all.push_back(newest);
}
