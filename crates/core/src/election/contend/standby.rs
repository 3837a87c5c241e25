//! The standby is the follower that acquires first after a release, so that not all followers race.
//! One follower registers with each leader; a follower of higher priority replaces the registered
//! follower. The registration is only a hint. If the standby has exited, the other followers
//! acquire the lease after one [`HEAD_START`]. Followers of lower priority wait for up to
//! [`HEAD_STARTS_MAX`] head starts.

use std::time::Duration;

use super::Contender;
use crate::claim::Turn;
use crate::election::view::LeaseView;
use crate::election::waits::SPREAD_MAX;
use crate::election::{
    BootTime, CallId, Claim, HEAD_START, HEAD_STARTS_MAX, Lease, Operation, Outcome,
    RESERVATION_MAX, Reservation, Session, Standby,
};

/// Maximum random delay of a registration, in units of [`SPREAD_MAX`]: 2 s.
const DELAY_MAX: u32 = 50;

const WITHDRAWAL_MAX: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Registration {
    wanted: bool,
    attempt: Option<RegistrationAttempt>,
    /// The unanswered registration, with the vacancy that it fills, or the unanswered withdrawal.
    call: Option<(CallId, Option<Vacancy>)>,
    exit_by: Option<BootTime>,
    /// Random delay after a head start or reservation. Avoids a race if the standby has exited.
    jitter: Duration,
}

/// The attempt to fill a vacancy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct RegistrationAttempt {
    vacancy: Vacancy,
    /// The instant to register. After a rejection, `None` until the view shows a different standby
    /// or holder.
    due: Option<BootTime>,
    /// Minimum delay after the last failure. Each further failure doubles it, so that followers do
    /// not add writes to an outage.
    back_off: Duration,
}

/// A holder without a standby, or with a standby that may be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Vacancy {
    holder: Claim,
    replaces: Option<Session>,
}

impl Registration {
    pub(super) fn new(wanted: bool) -> Self {
        Self {
            wanted,
            ..Self::default()
        }
    }

    /// Forgets the vacancy that this candidate filled. An open registration can no longer match.
    pub(super) fn begin_to_lead(&mut self) {
        (self.attempt, self.call) = (None, None);
    }

    pub(super) fn draw(&mut self, turn: &mut Turn<'_>) {
        if self.wanted {
            self.jitter = turn.up_to(SPREAD_MAX);
        }
    }
}

impl Contender {
    /// Returns how long this candidate waits for the standby after the holder expired. If the
    /// standby has exited, candidates of higher priority go first.
    pub(super) fn head_start_of_others(&self, lease: &Lease) -> Duration {
        let other = |standby: &&Standby| standby.session != self.me.session;
        match lease.standby.as_ref().filter(other) {
            Some(standby) => {
                let below = standby.priority.saturating_sub(self.me.priority);
                let steps = below.saturating_add(1).min(HEAD_STARTS_MAX);
                HEAD_START * steps + self.registration.jitter
            }
            None => Duration::ZERO,
        }
    }

    /// Returns how long this candidate waits after a release for the candidate in the reservation.
    pub(super) fn reserved_for(&self, reservation: &Reservation, lease: &Lease) -> Duration {
        let reserved = reservation.duration.min(RESERVATION_MAX) + self.registration.jitter;
        match reservation.is_head_start() {
            true => reserved.max(self.head_start_of_others(lease)),
            false => reserved,
        }
    }

    fn vacancy(&self, now: BootTime) -> Option<Vacancy> {
        let lease = self.view.lease()?;
        let holder = lease.claim()?;
        let replaces = match &lease.standby {
            Some(standby) if standby.priority < self.me.priority => Some(standby.session),
            Some(_) => return None,
            None => None,
        };
        let own = self.claims.contains(holder);
        let can_lead = !own && !lease.paused && !self.waits.bar_standby(now);
        (self.registration.wanted && can_lead).then_some(Vacancy { holder, replaces })
    }

    /// Registers this candidate, or withdraws if it cannot lead. Returns the time of the next call.
    pub(super) fn stand_by(&mut self, turn: &mut Turn<'_>) -> Option<BootTime> {
        if self.waits.unhealthy && self.withdraw(turn) {
            return None;
        }
        let Some(vacancy) = self.vacancy(turn.now) else {
            self.registration.attempt = None;
            return None;
        };
        let current = self.registration.attempt.filter(|it| it.vacancy == vacancy);
        let mut attempt = current.unwrap_or_else(|| RegistrationAttempt {
            vacancy,
            due: Some(turn.now + spread(turn)),
            back_off: Duration::ZERO,
        });
        if attempt.due? <= turn.now {
            let Vacancy { holder, replaces } = vacancy;
            let call = turn.effects.send(Operation::Register {
                holder,
                session: self.me.session,
                priority: self.me.priority,
                replaces,
            });
            self.registration.call = Some((call, Some(vacancy)));
            // A delayed event may hide the registration again, so an attempt remains due after a
            // success.
            let again = turn.now + turn.jittered(self.me.timings().lease_duration());
            attempt.due = Some(again);
        }
        self.registration.attempt = Some(attempt);
        attempt.due
    }

    fn withdraw(&mut self, turn: &mut Turn<'_>) -> bool {
        let session = self.me.session;
        let withdraws = self.view.is_standby(session) && self.registration.call.is_none();
        if withdraws {
            let call = turn.effects.send(Operation::Withdraw { session });
            self.registration.call = Some((call, None));
            // Assumes success. If the withdrawal failed, the next read shows the registration.
            self.view.note_standby(None);
        }
        withdraws
    }

    pub(super) fn withdraw_before_exit(
        &mut self,
        by: BootTime,
        turn: &mut Turn<'_>,
    ) -> Option<BootTime> {
        let registered = self.view.is_standby(self.me.session) || self.registration.call.is_some();
        if self.reads.schedule.suspicious || !registered {
            return None;
        }
        let latest = by.min(turn.now + WITHDRAWAL_MAX);
        let until = *self.registration.exit_by.get_or_insert(latest);
        if until <= turn.now {
            return None;
        }
        self.withdraw(turn);
        Some(until)
    }

    pub(crate) fn registration_reply(
        &mut self,
        call: CallId,
        outcome: &Outcome,
        turn: &mut Turn<'_>,
    ) -> bool {
        let registration = &mut self.registration;
        let Some((_, vacancy)) = registration.call.take_if(|(id, _)| *id == call) else {
            return false;
        };
        let attempt = registration.attempt.as_mut();
        let attempt = attempt.filter(|attempt| Some(attempt.vacancy) == vacancy);
        match (attempt, outcome) {
            (Some(attempt), Outcome::Rejected) => attempt.due = None,
            // If the registration was stored after all, the view usually shows it before the next
            // attempt, whose filter would no longer match.
            (Some(attempt), Outcome::Failed | Outcome::Unknown) => {
                let timings = self.me.timings();
                let doubled = attempt.back_off * 2;
                attempt.back_off =
                    doubled.clamp(timings.retry_interval(), timings.lease_duration());
                let delay = turn.jittered(attempt.back_off) + spread(turn);
                attempt.due = Some(turn.now + delay);
            }
            (None, _) | (_, Outcome::Applied(_) | Outcome::PrimaryOnly) => {}
        }
        let applied = vacancy.filter(|_| matches!(outcome, Outcome::Applied(_)));
        let held = self.view.lease().and_then(Lease::claim);
        if applied.is_some_and(|it| held == Some(it.holder)) {
            self.view.note_standby(Some(Standby {
                session: self.me.session,
                identity: self.me.identity.clone(),
                priority: self.me.priority,
            }));
        }
        true
    }
}

/// Returns a random delay, so that not all followers register.
fn spread(turn: &mut Turn<'_>) -> Duration {
    DELAY_MAX * turn.up_to(SPREAD_MAX)
}

pub(super) fn head_start_of_standby(view: &LeaseView) -> Option<Reservation> {
    let standby = view.lease()?.standby.as_ref()?;
    Some(Reservation {
        identity: standby.identity.clone(),
        duration: HEAD_START,
    })
}
