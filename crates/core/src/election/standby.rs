//! The standby: one follower that acquires first after the leader, so that the others do not race
//! with it. Without it, each release wakes all followers, and each of them sends an acquisition.
//!
//! A registration is a field of the document, written once per leader by the first follower, and
//! again by a follower with a higher priority. It is not renewed. It decides nothing: an
//! acquisition by the standby is the same compare-and-set as any other, and a standby that has
//! exited costs the others one [`HEAD_START`], or up to [`HEAD_STARTS_MAX`] if they have less
//! priority.

use std::time::Duration;

use super::effect::{CallId, Operation};
use super::input::Outcome;
use super::lease::{
    Claim, HEAD_START, HEAD_STARTS_MAX, Lease, RESERVATION_MAX, Reservation, Session, Standby,
};
use super::prefer::Preference;
use super::time::BootTime;
use super::waits::SPREAD_MAX;
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
    /// The place to take, and the instant at which to register; `None` after a rejection, until the
    /// view shows another standby or another holder.
    vacancy: Option<(Vacancy, Option<BootTime>)>,
    /// The last registration, with its place, or withdrawal, until it is answered.
    call: Option<(CallId, Option<Vacancy>)>,
    /// End of the wait of an exiting process for its withdrawal.
    exit_by: Option<BootTime>,
    /// Random delay after a head start or a reservation, so that the others do not act
    /// simultaneously if the standby does not.
    spread: Duration,
    /// Progress of a leader towards a handover to a preferred standby.
    pub(super) preference: Preference,
}

/// A place for a standby: next to a holder without a standby, or with a standby of lower priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Vacancy {
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
            spread: Duration::ZERO,
            preference: Preference::default(),
        }
    }

    /// Draws the delay of this candidate for a new revision.
    pub(super) fn draw(&mut self, turn: &mut Turn<'_>) {
        if self.wanted {
            self.spread = turn.up_to(SPREAD_MAX);
        }
    }

    /// Ends the registration of a candidate that leads. A registration in flight can no longer
    /// match.
    pub(super) fn end(&mut self) {
        (self.vacancy, self.call) = (None, None);
        self.preference = Preference::default();
    }
}

impl Election {
    /// Registers this candidate if the holder has no standby, or a standby with a lower priority,
    /// and withdraws its registration if it cannot lead. Returns the next instant.
    pub(super) fn stand_by(&mut self, turn: &mut Turn<'_>) -> Option<BootTime> {
        if self.is_standby() && self.waits.is_unhealthy() && self.registration.call.is_none() {
            self.withdraw();
            return None;
        }
        let Some(vacancy) = self.vacancy(turn.now) else {
            self.registration.vacancy = None;
            return None;
        };
        let due = match self.registration.vacancy {
            Some((seen, due)) if seen == vacancy => due?,
            Some(_) | None => turn.now + DELAY_MAX * turn.up_to(SPREAD_MAX),
        };
        if due > turn.now {
            self.registration.vacancy = Some((vacancy, Some(due)));
            return Some(due);
        }
        let Vacancy { holder, replaces } = vacancy;
        let call = self.outbox.call(Operation::Register {
            holder,
            session: self.me.session,
            priority: self.me.priority,
            replaces,
        });
        self.registration.call = Some((call, Some(vacancy)));
        // By then the stream or a read has shown the result, if there was one.
        let again = turn.now + turn.jittered(self.me.timings().lease_duration());
        self.registration.vacancy = Some((vacancy, Some(again)));
        Some(again)
    }

    /// Returns the place that this candidate can take as the standby, if any.
    fn vacancy(&self, now: BootTime) -> Option<Vacancy> {
        let lease = self.view.lease()?;
        let holder = lease.holder.as_ref()?.claim;
        let replaces = match &lease.standby {
            // Candidates of equal priority leave each other registered.
            Some(standby) if standby.priority < self.me.priority => Some(standby.session),
            Some(_) => return None,
            None => None,
        };
        let own = self.claims.contains(holder);
        let can_lead = !own && !lease.paused && !self.waits.bar_standby(now);
        (self.registration.wanted && can_lead).then_some(Vacancy { holder, replaces })
    }

    fn is_standby(&self) -> bool {
        let standby = self.view.lease().and_then(|lease| lease.standby.as_ref());
        standby.is_some_and(|standby| standby.session == self.me.session)
    }

    fn withdraw(&mut self) {
        let session = self.me.session;
        let call = self.outbox.call(Operation::Withdraw { session });
        self.registration.call = Some((call, None));
        // Assumed, so that it is sent once. If it failed, the next read shows the registration.
        self.view.note_standby(None);
    }

    /// Handles the reply to the last registration or withdrawal; returns false for any other reply.
    pub(super) fn registration_reply(
        &mut self,
        call: CallId,
        outcome: &Outcome,
        now: BootTime,
    ) -> bool {
        let Some((_, vacancy)) = self.registration.call.filter(|(id, _)| *id == call) else {
            return self.preference_reply(call, outcome, now);
        };
        self.registration.call = None;
        if let (Some(vacancy), Outcome::Rejected) = (vacancy, outcome) {
            self.registration.vacancy = Some((vacancy, None));
        }
        // The stream or the next read shows the result of any other outcome.
        let applied = vacancy.filter(|_| matches!(outcome, Outcome::Applied(_)));
        let held = self.view.lease().and_then(|lease| lease.holder.as_ref());
        if applied.is_some_and(|it| held.is_some_and(|holder| holder.claim == it.holder)) {
            self.view.note_standby(Some(Standby {
                session: self.me.session,
                identity: self.me.identity.clone(),
                priority: self.me.priority,
            }));
        }
        true
    }

    /// Withdraws the registration of a process that exits, so that another follower registers.
    /// Returns when the wait for the answer ends.
    pub(super) fn withdraw_before_exit(
        &mut self,
        by: BootTime,
        turn: &Turn<'_>,
    ) -> Option<BootTime> {
        let open = self.is_standby() || self.registration.call.is_some();
        if !open || self.reads.is_suspicious() {
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

    /// Returns the reservation in a release that gives the standby its head start.
    pub(super) fn reservation_of_standby(&self) -> Option<Reservation> {
        let standby = self.view.lease()?.standby.as_ref()?;
        Some(Reservation {
            identity: standby.identity.clone(),
            duration: HEAD_START,
        })
    }

    /// Returns the time that this candidate leaves to the standby after the holder expired. A
    /// candidate with a lower priority waits longer, so that candidates with a higher priority go
    /// first if the standby has exited.
    pub(super) fn head_start_of_others(&self, lease: &Lease) -> Duration {
        let other = |standby: &&Standby| standby.session != self.me.session;
        match lease.standby.as_ref().filter(other) {
            Some(standby) => {
                let below = standby.priority.saturating_sub(self.me.priority);
                let steps = below.saturating_add(1).min(HEAD_STARTS_MAX);
                HEAD_START * steps + self.registration.spread
            }
            None => Duration::ZERO,
        }
    }

    /// Returns how long this candidate leaves the released lease to the candidate that it is
    /// reserved for.
    pub(super) fn reserved_for(&self, reservation: &Reservation, lease: &Lease) -> Duration {
        let reserved = reservation.duration.min(RESERVATION_MAX) + self.registration.spread;
        match reservation.is_head_start() {
            true => reserved.max(self.head_start_of_others(lease)),
            false => reserved,
        }
    }
}
