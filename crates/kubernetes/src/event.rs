use leasehold_clock::duration::short;
use leasehold_core::election::{Notice, Reason, ResourceName, Role, Transition};

/// Only the Event with this reason is repeated while its condition lasts.
const RENEWAL_FAILING: &str = "RenewalFailing";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodEvent {
    pub(super) reason: &'static str,
    pub(super) action: &'static str,
    pub(super) warning: bool,
    /// At most 1024 bytes, because each name or identity has at most 253.
    pub(super) note: String,
}

impl PodEvent {
    /// Equal failures must have an equal `why`, because only equal Events are counted together.
    pub(super) fn of_failed_renewal(lease: &ResourceName, why: &str) -> Self {
        Self {
            reason: RENEWAL_FAILING,
            action: "Renew",
            warning: true,
            note: format!("renewals of {lease} fail: {why}"),
        }
    }

    pub(super) fn of_transition(lease: &ResourceName, transition: &Transition) -> Option<Self> {
        let token = transition.token;
        let token = token.map_or("no token".to_owned(), |token| format!("token {token}"));
        let why = transition.reason.map_or("no reason", Reason::as_str);
        match (transition.from, transition.to) {
            (_, Role::Leader) => Some(Self {
                reason: "LeaderElected",
                action: "Acquire",
                warning: false,
                note: format!("leads {lease} with {token} ({why})"),
            }),
            (Role::Leader, _) => Some(Self {
                reason: "SteppedDown",
                action: "StepDown",
                warning: transition.reason.is_some_and(needs_attention),
                note: format!("lost leadership of {lease} ({token}): {why}"),
            }),
            _ => None,
        }
    }

    pub(super) fn of_notice(lease: &ResourceName, notice: &Notice) -> Option<Self> {
        let (reason, action, note) = match notice {
            Notice::Overtook {
                identity,
                token,
                silent,
            } => {
                let silent = short(*silent);
                let expired = format!("{identity} (token {token}), unresponsive for {silent}");
                (
                    "TakenOver",
                    "Acquire",
                    format!("took over {lease} from {expired}"),
                )
            }
            Notice::StoreRolledBack { seen, found, .. } => {
                let found = found.map_or("none".to_owned(), |found| found.to_string());
                let note = format!(
                    "the document of {lease} was deleted or restored: token {seen} was seen, \
                     {found} is stored"
                );
                ("StoreWentBack", "Read", note)
            }
            Notice::WorkloadStuck { token, .. } => {
                let note = format!(
                    "the workload of {lease} (token {token}) survived SIGKILL; the lease is \
                     not released and must expire"
                );
                ("WorkloadStuck", "StepDown", note)
            }
            // No wildcard, so that the compiler reports a new notice that is missing here.
            Notice::Succeeded { .. }
            | Notice::Duplicate { .. }
            | Notice::Foreign { .. }
            | Notice::InvalidLeaseDuration { .. }
            | Notice::BackingOff { .. }
            | Notice::NotDemoted { .. }
            | Notice::LeftToExpire
            | Notice::RequestForAnotherToken { .. }
            | Notice::TokensExhausted
            | Notice::GivingWay { .. } => return None,
        };
        Some(Self {
            reason,
            action,
            warning: true,
            note,
        })
    }

    /// True if the Event recurs while its condition lasts. Losing a report is then harmless.
    pub(super) fn repeats(&self) -> bool {
        self.reason == RENEWAL_FAILING
    }
}

fn needs_attention(reason: Reason) -> bool {
    use Reason::{Deadline, Duplicate, Rejected, StoreRolledBack, Unhealthy, WorkloadStuck};

    let serious = [
        Deadline,
        Rejected,
        Unhealthy,
        WorkloadStuck,
        StoreRolledBack,
        Duplicate,
    ];
    serious.contains(&reason)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use leasehold_core::election::{Identity, Token};

    #[test]
    fn the_reasons_are_those_that_alerts_and_docs_name() {
        let lease = ResourceName::new("orders").expect("legal");
        let (token, silent, wait) = (Token::ZERO, Duration::ZERO, Duration::ZERO);
        let changed = |from, to, reason| {
            let transition = Transition {
                from,
                to,
                reason,
                token: Some(token),
                lasted: Duration::ZERO,
            };
            PodEvent::of_transition(&lease, &transition).expect("an Event")
        };
        let noticed = |notice: Notice| PodEvent::of_notice(&lease, &notice).expect("an Event");
        let identity = Identity::new("a").expect("legal");
        let lost = Some(Reason::Deadline);
        let page = include_str!("../../../docs/kubernetes.md");
        for (event, reason, warning) in [
            (
                changed(Role::Follower, Role::Leader, None),
                "LeaderElected",
                false,
            ),
            (
                changed(Role::Leader, Role::Follower, None),
                "SteppedDown",
                false,
            ),
            (
                changed(Role::Leader, Role::Follower, lost),
                "SteppedDown",
                true,
            ),
            (
                noticed(Notice::Overtook {
                    identity,
                    token,
                    silent,
                }),
                "TakenOver",
                true,
            ),
            (
                noticed(Notice::WorkloadStuck { token, wait }),
                "WorkloadStuck",
                true,
            ),
            (
                PodEvent::of_failed_renewal(&lease, "a"),
                "RenewalFailing",
                true,
            ),
            (
                noticed(Notice::StoreRolledBack {
                    seen: token,
                    found: None,
                    wait,
                }),
                "StoreWentBack",
                true,
            ),
        ] {
            assert_eq!((event.reason, event.warning), (reason, warning));
            assert!(page.contains(&format!("`{reason}`")), "{reason}");
        }
    }
}
