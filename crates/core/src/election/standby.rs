//! The standby: one follower that acquires first after the leader, so that the others do not race
//! with it. Without it, each release wakes all followers, and each of them sends an acquisition.
//!
//! A registration is a field of the document, written once per leader by whichever follower is
//! first. It is not renewed. It decides nothing: an acquisition by the standby is the same
//! compare-and-set as any other, and a standby that has exited costs the others one [`HEAD_START`].

use std::time::Duration;

use super::contend::SPREAD_MAX;
use super::effect::{CallId, Operation};
use super::input::Outcome;
use super::lease::{Claim, HEAD_START, Lease, Reservation, Standby};
use super::time::BootTime;
use super::{Election, Turn};

/// Maximum random delay before a follower registers, in units of [`SPREAD_MAX`]: 2 s, so that one of
/// many is first and the others see it.
const DELAY_MAX: u32 = 50;

/// Maximum wait of a process that exits for the answer to its withdrawal. Without an answer it stays
/// registered, which costs the others one head start: not worth a longer shutdown.
const WITHDRAWAL_MAX: Duration = Duration::from_millis(500);

/// This candidate's registration as the standby.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Registration {
    /// False if this candidate never registers.
    wanted: bool,
    /// The holder without a standby, and the instant at which to register with it; `None` after a
    /// rejection, until the view shows a standby or another holder.
    vacancy: Option<(Claim, Option<BootTime>)>,
    /// The last registration, with its holder, or withdrawal, until it is answered.
    call: Option<(CallId, Option<Claim>)>,
    /// Instant until which a process that exits waits for its withdrawal.
    exit_by: Option<BootTime>,
    /// Random delay after a head start or a reservation, so that the others do not act
    /// simultaneously if the standby does not.
    spread: Duration,
}

impl Registration {
    pub(super) fn new(wanted: bool) -> Self {
        Self {
            wanted,
            vacancy: None,
            call: None,
            exit_by: None,
            spread: Duration::ZERO,
        }
    }

    /// Draws the delay of this candidate for a new revision.
    pub(super) fn draw(&mut self, turn: &mut Turn<'_>) {
        if self.wanted {
            self.spread = turn.up_to(SPREAD_MAX);
        }
    }

    pub(super) fn spread(&self) -> Duration {
        self.spread
    }

    /// Ends the registration of a candidate that leads. A registration in flight can no longer
    /// match.
    pub(super) fn end(&mut self) {
        (self.vacancy, self.call) = (None, None);
    }
}

impl Election {
    /// Registers this candidate if the holder has no standby, and withdraws the registration of one
    /// that cannot lead. Returns the next instant.
    pub(super) fn stand_by(&mut self, turn: &mut Turn<'_>) -> Option<BootTime> {
        if self.is_standby() && self.unhealthy && self.registration.call.is_none() {
            self.withdraw();
            return None;
        }
        let Some(holder) = self.holder_without_standby(turn.now) else {
            self.registration.vacancy = None;
            return None;
        };
        let due = match self.registration.vacancy {
            Some((claim, due)) if claim == holder => due?,
            Some(_) | None => turn.now + DELAY_MAX * turn.up_to(SPREAD_MAX),
        };
        if due > turn.now {
            self.registration.vacancy = Some((holder, Some(due)));
            return Some(due);
        }
        let session = self.session;
        let call = self.call(Operation::Register { holder, session });
        self.registration.call = Some((call, Some(holder)));
        // By then the stream or a read has shown the result, if there was one.
        let again = turn.now + turn.jittered(self.tunables.timings.lease_duration());
        self.registration.vacancy = Some((holder, Some(again)));
        Some(again)
    }

    /// Returns the claim of a holder that this candidate can follow, if it has no standby.
    fn holder_without_standby(&self, now: BootTime) -> Option<Claim> {
        let lease = self.view.lease().filter(|lease| lease.standby.is_none())?;
        let claim = lease.holder.as_ref()?.claim;
        let own = self.pending.iter().any(|p| p.claim == claim)
            || self.ended.iter().any(|e| e.claim == claim);
        let can_lead = !own && !lease.paused && !self.unhealthy && self.quarantine.is_none();
        let stays_out = self.stay_out.is_some_and(|out| out.until > now);
        (self.registration.wanted && can_lead && !stays_out).then_some(claim)
    }

    fn is_standby(&self) -> bool {
        let standby = self.view.lease().and_then(|lease| lease.standby.as_ref());
        standby.is_some_and(|standby| standby.session == self.session)
    }

    fn withdraw(&mut self) {
        let session = self.session;
        let call = self.call(Operation::Withdraw { session });
        self.registration.call = Some((call, None));
        // Assumed, so that it is sent once. If it failed, the next read shows the registration.
        self.view.note_standby(None);
    }

    /// Handles the reply to the last registration or withdrawal; returns false for any other reply.
    pub(super) fn registration_reply(&mut self, call: CallId, outcome: &Outcome) -> bool {
        let Some((_, holder)) = self.registration.call.filter(|(id, _)| *id == call) else {
            return false;
        };
        self.registration.call = None;
        if let (Some(holder), Outcome::Rejected) = (holder, outcome) {
            self.registration.vacancy = Some((holder, None));
        }
        // The stream or the next read shows the result of any other outcome.
        let applied = holder.filter(|_| matches!(outcome, Outcome::Applied(_)));
        let held = self.view.lease().and_then(|lease| lease.holder.as_ref());
        if applied.is_some_and(|claim| held.is_some_and(|holder| holder.claim == claim)) {
            self.view.note_standby(Some(Standby {
                session: self.session,
                identity: self.identity.clone(),
            }));
        }
        true
    }

    /// Withdraws the registration of a process that exits, so that another follower registers.
    /// Returns the instant until which to wait for the answer.
    pub(super) fn withdraw_before_exit(
        &mut self,
        by: BootTime,
        turn: &Turn<'_>,
    ) -> Option<BootTime> {
        let open = self.is_standby() || self.registration.call.is_some();
        if !open || self.suspicious {
            return None;
        }
        let latest = by.min(turn.now + WITHDRAWAL_MAX);
        let until = *self.registration.exit_by.get_or_insert(latest);
        if until <= turn.now {
            return None;
        }
        if self.registration.call.is_none() {
            self.withdraw();
        }
        Some(until)
    }

    /// Returns the reservation with which a release gives the standby its head start.
    pub(super) fn reservation_of_standby(&self) -> Option<Reservation> {
        let standby = self.view.lease()?.standby.as_ref()?;
        Some(Reservation {
            identity: standby.identity.clone(),
            duration: HEAD_START,
        })
    }

    /// Returns the time that this candidate leaves to the standby after the holder expired.
    pub(super) fn head_start_of_others(&self, lease: &Lease) -> Duration {
        let other = |standby: &&Standby| standby.session != self.session;
        match lease.standby.as_ref().filter(other) {
            Some(_) => HEAD_START + self.registration.spread,
            None => Duration::ZERO,
        }
    }
}
