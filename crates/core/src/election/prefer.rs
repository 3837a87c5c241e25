//! The preference of a leader for a standby with a higher priority: when it hands over to it.
//!
//! Only the leader acts on it, so that a healthy leader is never preempted. A registration is not
//! renewed, so the standby may have exited long ago. The leader therefore withdraws its registration
//! first, and hands over only if a preferred standby registers again.
//!
//! The interval between two such handovers needs no clock that leaders share: each leader begins it
//! at its own acquisition (or when a reload turns the preference on), and a handover ends its
//! leadership.

use std::time::Duration;

use super::effect::{CallId, Notice, Operation};
use super::input::Outcome;
use super::lease::{RESERVATION_DEFAULT, Reservation, Session, Standby};
use super::status::Reason;
use super::time::BootTime;
use super::{Election, State, Turn};

/// Minimum time that a standby has to register again: two polls and two random delays, because a
/// follower with a lower priority may be first and is then replaced. It is at least two renewals;
/// the second shows the result.
const ANSWER_WAIT: Duration = Duration::from_secs(8);

/// Progress of a leader towards a handover.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Preference {
    /// Start of the interval.
    since: Option<BootTime>,
    /// The preferred standby, and the instant since which it has been registered.
    seen: Option<(Session, BootTime)>,
    step: Step,
    /// True from the handover until the next claim.
    gave_way: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
enum Step {
    #[default]
    Idle,
    /// The withdrawal of the registration was sent.
    Asking(CallId),
    /// The registration was withdrawn at `from`; the decision is at `until`.
    Asked { from: BootTime, until: BootTime },
    /// No preferred standby registered again.
    Waiting { until: BootTime },
}

impl Preference {
    /// Returns true if this candidate last gave up its leadership to a preferred standby.
    pub(super) fn gave_way(&self) -> bool {
        self.gave_way
    }
}

impl Election {
    /// Hands over to a preferred standby if this is due. Returns the next instant.
    pub(super) fn give_way(&mut self, turn: &mut Turn<'_>) -> Option<BootTime> {
        let State::Leading(tenure) = &self.state else {
            return None;
        };
        let Some(interval) = self.me.tunables.prefer_interval else {
            self.registration.preference = Preference::default();
            return None;
        };
        let renewed_at = tenure.renewed_at;
        let since = *self.registration.preference.since.get_or_insert(turn.now);
        let mut due = since + interval;
        let settled = tenure.timings.lease_duration();
        match self.registration.preference.step {
            Step::Idle => {}
            Step::Asking(_) => return None,
            Step::Asked { until, .. } if until > turn.now => return Some(until),
            Step::Asked { from, .. } => {
                let until = turn.now + interval;
                self.registration.preference.step = Step::Waiting { until };
                self.registration.preference.seen = None;
                // A renewal that was sent since the withdrawal shows the registrations since.
                let to = self.preferred().filter(|_| renewed_at > from).cloned();
                if let Some(standby) = to {
                    self.hand_over_to(standby, turn);
                    return None;
                }
                due = until;
            }
            Step::Waiting { until } => due = due.max(until),
        }
        let Some(session) = self.preferred().map(|standby| standby.session) else {
            self.registration.preference.seen = None;
            return None;
        };
        let preference = &mut self.registration.preference;
        let since = match preference.seen {
            Some((seen, since)) if seen == session => since,
            Some(_) | None => turn.now,
        };
        preference.seen = Some((session, since));
        let due = due.max(since + settled);
        if due > turn.now {
            return Some(due);
        }
        let call = self.outbox.call(Operation::Withdraw { session });
        self.registration.preference.step = Step::Asking(call);
        None
    }

    /// Returns the standby if this leader prefers it to itself.
    fn preferred(&self) -> Option<&Standby> {
        let standby = self.view.lease()?.standby.as_ref()?;
        let another = standby.session != self.me.session && standby.identity != self.me.identity;
        (another && standby.priority > self.me.priority).then_some(standby)
    }

    /// Handles the reply to the withdrawal of the standby's registration; returns false for any
    /// other reply.
    pub(super) fn preference_reply(
        &mut self,
        call: CallId,
        outcome: &Outcome,
        now: BootTime,
    ) -> bool {
        if self.registration.preference.step != Step::Asking(call) {
            return false;
        }
        self.registration.preference.seen = None;
        self.registration.preference.step = match outcome {
            Outcome::Applied(_) if self.state.tenure().is_some() => {
                self.view.note_standby(None);
                let wait = 2 * self.me.timings().renew_interval();
                Step::Asked {
                    from: now,
                    until: now + wait.max(ANSWER_WAIT),
                }
            }
            // Another standby is registered, or it is unknown which: it is asked when it has been
            // registered for long enough.
            Outcome::Applied(_) | Outcome::Rejected | Outcome::Failed | Outcome::Unknown => {
                Step::Idle
            }
        };
        true
    }

    fn hand_over_to(&mut self, standby: Standby, turn: &mut Turn<'_>) {
        let Standby {
            identity, priority, ..
        } = standby;
        self.registration.preference.gave_way = true;
        self.outbox.notice(Notice::GivingWay {
            identity: identity.clone(),
            priority,
        });
        let reservation = Reservation {
            identity,
            duration: RESERVATION_DEFAULT,
        };
        self.stop(Reason::Transferred, Some(reservation), turn);
    }
}
