//! The standby: one follower that acquires first after the leader, so that the others do not race
//! with it. Without it, each release wakes all followers, and each of them sends an acquisition.
//!
//! A registration is a field of the document, written once per leader by the first follower, and
//! again by a follower with a higher priority. It is not renewed. It decides nothing: an
//! acquisition by the standby is the same compare-and-set as any other, and a standby that has
//! exited costs the others one [`HEAD_START`], or up to [`HEAD_STARTS_MAX`] if they have less
//! priority.

use std::time::Duration;

use super::candidate::Participant;
use super::claims::OpenClaims;
use super::effect::{CallId, Operation};
use super::input::Outcome;
use super::lease::{
    Claim, HEAD_START, HEAD_STARTS_MAX, Lease, RESERVATION_MAX, Reservation, Session, Standby,
};
use super::time::BootTime;
use super::view::LeaseView;
use super::waits::{SPREAD_MAX, Waits};
use crate::claim::Turn;

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
    /// The place to take, and the instant at which to register; `None` after a rejection, until the
    /// view shows another standby or another holder.
    vacancy: Option<(Vacancy, Option<BootTime>)>,
    /// The last registration, with its place, or withdrawal, until it is answered.
    call: Option<(CallId, Option<Vacancy>)>,
    /// End of the wait of an exiting process for its withdrawal.
    exit_by: Option<BootTime>,
    /// Random delay after a head start or a reservation, so that the others do not act
    /// simultaneously if the standby does not.
    jitter: Duration,
}

/// A place for a standby: next to a holder without a standby, or with a standby of lower priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Vacancy {
    holder: Claim,
    replaces: Option<Session>,
}

impl Registration {
    pub(super) fn new(wanted: bool) -> Self {
        Self {
            wanted,
            vacancy: None,
            call: None,
            exit_by: None,
            jitter: Duration::ZERO,
        }
    }

    /// Draws a random delay for a new revision.
    pub(super) fn draw(&mut self, turn: &mut Turn<'_>) {
        if self.wanted {
            self.jitter = turn.up_to(SPREAD_MAX);
        }
    }

    /// Ends the registration of a candidate that leads. A registration in flight can no longer
    /// match.
    pub(super) fn end(&mut self) {
        (self.vacancy, self.call) = (None, None);
    }

    /// Returns the place that this candidate can take as the standby, if any.
    pub(super) fn vacancy(
        &self,
        me: &Participant,
        view: &LeaseView,
        claims: &OpenClaims,
        waits: &Waits,
        now: BootTime,
    ) -> Option<Vacancy> {
        let lease = view.lease()?;
        let holder = lease.holder.as_ref()?.claim;
        let replaces = match &lease.standby {
            // Candidates of equal priority leave each other registered.
            Some(standby) if standby.priority < me.priority => Some(standby.session),
            Some(_) => return None,
            None => None,
        };
        let own = claims.contains(holder);
        let can_lead = !own && !lease.paused && !waits.bar_standby(now);
        (self.wanted && can_lead).then_some(Vacancy { holder, replaces })
    }

    /// Registers this candidate if there is a place for it. Returns the next instant.
    pub(super) fn stand_by(
        &mut self,
        vacancy: Option<Vacancy>,
        me: &Participant,
        turn: &mut Turn<'_>,
    ) -> Option<BootTime> {
        let Some(vacancy) = vacancy else {
            self.vacancy = None;
            return None;
        };
        let due = match self.vacancy {
            Some((seen, due)) if seen == vacancy => due?,
            Some(_) | None => turn.now + DELAY_MAX * turn.up_to(SPREAD_MAX),
        };
        if due > turn.now {
            self.vacancy = Some((vacancy, Some(due)));
            return Some(due);
        }
        let Vacancy { holder, replaces } = vacancy;
        let call = turn.effects.send(Operation::Register {
            holder,
            session: me.session,
            priority: me.priority,
            replaces,
        });
        self.call = Some((call, Some(vacancy)));
        // By then the stream or a read has shown the result, if there was one.
        let again = turn.now + turn.jittered(me.timings().lease_duration());
        self.vacancy = Some((vacancy, Some(again)));
        Some(again)
    }

    /// Withdraws the registration of this candidate if it is registered and no call is in flight.
    pub(super) fn withdraw(
        &mut self,
        me: &Participant,
        view: &mut LeaseView,
        turn: &mut Turn<'_>,
    ) -> bool {
        let session = me.session;
        let withdraws = view.is_standby(session) && self.call.is_none();
        if withdraws {
            let call = turn.effects.send(Operation::Withdraw { session });
            self.call = Some((call, None));
            // Assumed, so that it is sent once. If it failed, the next read shows the registration.
            view.note_standby(None);
        }
        withdraws
    }

    /// Withdraws the registration of a process that exits, so that another follower registers.
    /// Returns when the wait for the answer ends.
    pub(super) fn withdraw_before_exit(
        &mut self,
        by: BootTime,
        me: &Participant,
        view: &mut LeaseView,
        turn: &mut Turn<'_>,
    ) -> Option<BootTime> {
        if !view.is_standby(me.session) && self.call.is_none() {
            return None;
        }
        let latest = by.min(turn.now + WITHDRAWAL_MAX);
        let until = *self.exit_by.get_or_insert(latest);
        if until <= turn.now {
            return None;
        }
        self.withdraw(me, view, turn);
        Some(until)
    }

    /// Handles the reply to the last registration or withdrawal; returns false for any other reply.
    pub(super) fn reply(
        &mut self,
        call: CallId,
        outcome: &Outcome,
        me: &Participant,
        view: &mut LeaseView,
    ) -> bool {
        let Some((_, vacancy)) = self.call.filter(|(id, _)| *id == call) else {
            return false;
        };
        self.call = None;
        if let (Some(vacancy), Outcome::Rejected) = (vacancy, outcome) {
            self.vacancy = Some((vacancy, None));
        }
        // The stream or the next read shows the result of any other outcome.
        let applied = vacancy.filter(|_| matches!(outcome, Outcome::Applied(_)));
        let held = view.lease().and_then(|lease| lease.holder.as_ref());
        if applied.is_some_and(|it| held.is_some_and(|holder| holder.claim == it.holder)) {
            view.note_standby(Some(Standby {
                session: me.session,
                identity: me.identity.clone(),
                priority: me.priority,
            }));
        }
        true
    }

    /// Returns the time that this candidate leaves to the standby after the holder expired. A
    /// candidate with a lower priority waits longer, so that candidates with a higher priority go
    /// first if the standby has exited.
    pub(super) fn head_start_of_others(&self, lease: &Lease, me: &Participant) -> Duration {
        let other = |standby: &&Standby| standby.session != me.session;
        match lease.standby.as_ref().filter(other) {
            Some(standby) => {
                let below = standby.priority.saturating_sub(me.priority);
                let steps = below.saturating_add(1).min(HEAD_STARTS_MAX);
                HEAD_START * steps + self.jitter
            }
            None => Duration::ZERO,
        }
    }

    /// Returns how long this candidate leaves the released lease to the candidate that it is
    /// reserved for.
    pub(super) fn reserved_for(
        &self,
        reservation: &Reservation,
        lease: &Lease,
        me: &Participant,
    ) -> Duration {
        let reserved = reservation.duration.min(RESERVATION_MAX) + self.jitter;
        match reservation.is_head_start() {
            true => reserved.max(self.head_start_of_others(lease, me)),
            false => reserved,
        }
    }
}

/// Returns the reservation in a release that gives the standby its head start.
pub(super) fn head_start_of_standby(view: &LeaseView) -> Option<Reservation> {
    let standby = view.lease()?.standby.as_ref()?;
    Some(Reservation {
        identity: standby.identity.clone(),
        duration: HEAD_START,
    })
}
