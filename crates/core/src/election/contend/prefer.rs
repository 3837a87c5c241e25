//! Handover to a standby with a higher priority. The registered standby may have exited, so the
//! leader first withdraws this registration and waits for a preferred standby to register again.

use std::time::Duration;

use super::Contender;
use crate::claim::Turn;
use crate::election::candidate::Participant;
use crate::election::view::LeaseView;
use crate::election::{
    BootTime, CallId, Notice, Operation, Outcome, RESERVATION_DEFAULT, Reservation, Session,
    Standby, Tenure,
};

/// Minimum time that standbys get to register again. The time usually suffices for two polls, two
/// random delays (a follower of lower priority may register first), and the renewal that shows the
/// registration.
const ANSWER_WAIT: Duration = Duration::from_secs(8);

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Preference {
    /// Start of the `prefer_interval`: this leader's acquisition, or the reload that set the
    /// preference.
    since: Option<BootTime>,
    /// The preferred standby, and the instant at which its registration was first seen.
    seen: Option<(Session, BootTime)>,
    step: Step,
    /// True from the handover until the next claim.
    pub(super) gave_way: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
enum Step {
    #[default]
    Idle,
    Asking(CallId),
    /// The registration was withdrawn at `from`; the leader decides at `until`.
    Asked {
        from: BootTime,
        until: BootTime,
    },
    /// No preferred standby registered again, so the leader waits for another interval.
    Waiting {
        until: BootTime,
    },
}

pub(crate) enum GiveWay {
    Wait(Option<BootTime>),
    HandOver(Reservation),
}

impl Contender {
    /// Hands over, or withdraws the preferred standby's registration, when due.
    pub(crate) fn give_way(&mut self, tenure: &Tenure, turn: &mut Turn<'_>) -> GiveWay {
        let preferred = preferred(&self.view, &self.me);
        let preference = &mut self.preference;
        let Some(interval) = self.me.tunables.prefer_interval else {
            *preference = Preference::default();
            return GiveWay::Wait(None);
        };
        let mut due = *preference.since.get_or_insert(turn.now) + interval;
        match preference.step {
            Step::Idle => {}
            Step::Asking(_) => return GiveWay::Wait(None),
            Step::Asked { until, .. } if until > turn.now => return GiveWay::Wait(Some(until)),
            Step::Asked { from, .. } => {
                let until = turn.now + interval;
                preference.step = Step::Waiting { until };
                preference.seen = None;
                // Only a renewal that was sent after the withdrawal can show a new registration.
                if let Some(standby) = preferred.filter(|_| tenure.renewed_at > from) {
                    preference.gave_way = true;
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
            preference.seen = None;
            return GiveWay::Wait(None);
        };
        let seen = preference.seen.filter(|(seen, _)| *seen == session);
        let (_, since) = *preference.seen.insert(seen.unwrap_or((session, turn.now)));
        let settled = since + tenure.timings.lease_duration();
        let due = due.max(settled);
        if due > turn.now {
            return GiveWay::Wait(Some(due));
        }
        preference.step = Step::Asking(turn.effects.send(Operation::Withdraw { session }));
        GiveWay::Wait(None)
    }

    pub(crate) fn preference_reply(
        &mut self,
        call: CallId,
        outcome: &Outcome,
        tenure: Option<&Tenure>,
        now: BootTime,
    ) -> bool {
        if self.preference.step != Step::Asking(call) {
            return false;
        }
        self.preference.seen = None;
        // If the withdrawal was not applied, a different standby may have registered.
        self.preference.step = Step::Idle;
        if let (Some(tenure), Outcome::Applied(_)) = (tenure, outcome) {
            self.view.note_standby(None);
            // A reload does not change the renewals of the claim.
            let wait = ANSWER_WAIT.max(2 * tenure.timings.renew_interval());
            self.preference.step = Step::Asked {
                from: now,
                until: now + wait,
            };
        }
        true
    }
}

fn preferred<'a>(view: &'a LeaseView, me: &Participant) -> Option<&'a Standby> {
    let standby = view.lease()?.standby.as_ref()?;
    let another = standby.session != me.session && standby.identity != me.identity;
    (another && standby.priority > me.priority).then_some(standby)
}
