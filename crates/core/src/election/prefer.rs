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

use super::candidate::Participant;
use super::effect::{CallId, Notice, Operation};
use super::input::Outcome;
use super::lease::{RESERVATION_DEFAULT, Reservation, Session, Standby};
use super::tenure::Tenure;
use super::time::BootTime;
use super::view::LeaseView;
use crate::claim::Turn;

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
    pub(super) gave_way: bool,
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

/// The decision of a leader about a standby that it prefers to itself.
pub(super) enum GiveWay {
    Wait(Option<BootTime>),
    HandOver(Reservation),
}

impl Preference {
    /// Hands over if this is due, or withdraws the registration of the preferred standby, which
    /// registers again if it still runs.
    pub(super) fn give_way(
        &mut self,
        tenure: &Tenure,
        view: &LeaseView,
        me: &Participant,
        turn: &mut Turn<'_>,
    ) -> GiveWay {
        let Some(interval) = me.tunables.prefer_interval else {
            *self = Self::default();
            return GiveWay::Wait(None);
        };
        let preferred = preferred(view, me);
        let mut due = *self.since.get_or_insert(turn.now) + interval;
        match self.step {
            Step::Idle => {}
            Step::Asking(_) => return GiveWay::Wait(None),
            Step::Asked { until, .. } if until > turn.now => return GiveWay::Wait(Some(until)),
            Step::Asked { from, .. } => {
                let until = turn.now + interval;
                self.step = Step::Waiting { until };
                self.seen = None;
                // A renewal that was sent since the withdrawal shows the registrations since.
                if let Some(standby) = preferred.filter(|_| tenure.renewed_at > from) {
                    self.gave_way = true;
                    turn.effects.notice(Notice::GivingWay {
                        identity: standby.identity.clone(),
                        priority: standby.priority,
                    });
                    return GiveWay::HandOver(Reservation {
                        identity: standby.identity.clone(),
                        duration: RESERVATION_DEFAULT,
                    });
                }
                due = until;
            }
            Step::Waiting { until } => due = due.max(until),
        }
        let Some(session) = preferred.map(|standby| standby.session) else {
            self.seen = None;
            return GiveWay::Wait(None);
        };
        let since = match self.seen {
            Some((seen, since)) if seen == session => since,
            Some(_) | None => turn.now,
        };
        self.seen = Some((session, since));
        let settled = since + tenure.timings.lease_duration();
        let due = due.max(settled);
        if due > turn.now {
            return GiveWay::Wait(Some(due));
        }
        self.step = Step::Asking(turn.effects.send(Operation::Withdraw { session }));
        GiveWay::Wait(None)
    }

    /// Handles the reply to the withdrawal; returns false for any other reply. A leader waits for
    /// `wait` at least.
    pub(super) fn reply(
        &mut self,
        call: CallId,
        outcome: &Outcome,
        wait: Option<Duration>,
        view: &mut LeaseView,
        now: BootTime,
    ) -> bool {
        if self.step != Step::Asking(call) {
            return false;
        }
        self.seen = None;
        self.step = match (outcome, wait) {
            (Outcome::Applied(_), Some(wait)) => {
                view.note_standby(None);
                Step::Asked {
                    from: now,
                    until: now + wait.max(ANSWER_WAIT),
                }
            }
            // Another standby is registered, or it is unknown which: it is asked when it has been
            // registered for long enough.
            (Outcome::Applied(_) | Outcome::Rejected | Outcome::Failed | Outcome::Unknown, _) => {
                Step::Idle
            }
        };
        true
    }
}

/// Returns the standby if this leader prefers it to itself.
fn preferred<'a>(view: &'a LeaseView, me: &Participant) -> Option<&'a Standby> {
    let standby = view.lease()?.standby.as_ref()?;
    let another = standby.session != me.session && standby.identity != me.identity;
    (another && standby.priority > me.priority).then_some(standby)
}
