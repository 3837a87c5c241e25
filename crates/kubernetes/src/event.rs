//! The Events reported on the pod, and their texts for humans.

use std::borrow::Cow;
use std::time::Duration;

use leasehold_core::election::{Identity, Notice, Reason, Role, Token, Transition};

/// An occurrence that is reported as an Event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodEvent {
    /// This candidate leads.
    LeaderElected {
        /// The new leader's token.
        token: Option<Token>,
        /// The reason of the acquisition, if known.
        reason: Option<Reason>,
    },
    /// This candidate led and no longer leads.
    SteppedDown {
        /// The token that the candidate had.
        token: Option<Token>,
        /// The reason, if known.
        reason: Option<Reason>,
    },
    /// This candidate took over from an expired holder.
    TakenOver {
        /// The previous holder.
        from: Identity,
        /// The token of the previous holder.
        token: Token,
        /// Time during which the previous holder was unresponsive.
        silent: Duration,
    },
    /// The workload of this candidate survived SIGKILL.
    WorkloadStuck {
        /// The token of its claim.
        token: Token,
    },
    /// A renewal of this leader was not acknowledged.
    RenewalFailing {
        /// A constant phrase, with the server's name and code of the error.
        why: Cow<'static, str>,
    },
    /// The lease document was deleted or restored.
    StoreRolledBack {
        /// The token that was seen before.
        seen: Token,
        /// The token that is stored now.
        found: Option<Token>,
    },
}

impl PodEvent {
    /// The Event of a renewal that was not acknowledged; `why` does not change from one renewal to the
    /// next.
    pub fn of_failed_renewal(why: String) -> Option<Self> {
        Some(Self::RenewalFailing { why: why.into() })
    }

    /// The Event of a change of role, if it is worth one.
    pub fn of_transition(transition: &Transition) -> Option<Self> {
        let &Transition {
            from,
            to,
            reason,
            token,
            lasted: _,
        } = transition;
        match (from, to) {
            (_, Role::Leader) => Some(Self::LeaderElected { token, reason }),
            (Role::Leader, _) => Some(Self::SteppedDown { token, reason }),
            _ => None,
        }
    }

    /// Returns the Event for a notice, if it is reported.
    pub fn of_notice(notice: &Notice) -> Option<Self> {
        match notice {
            Notice::Overtook {
                identity,
                token,
                silent,
            } => Some(Self::TakenOver {
                from: identity.clone(),
                token: *token,
                silent: *silent,
            }),
            Notice::StoreRolledBack { seen, found, .. } => Some(Self::StoreRolledBack {
                seen: *seen,
                found: *found,
            }),
            Notice::WorkloadStuck { token, .. } => Some(Self::WorkloadStuck { token: *token }),
            Notice::Succeeded { .. }
            | Notice::Duplicate { .. }
            | Notice::Foreign { .. }
            | Notice::InvalidLeaseDuration { .. }
            | Notice::BackingOff { .. }
            | Notice::NotDemoted { .. }
            | Notice::LeftToExpire
            | Notice::RequestForAnotherToken { .. }
            | Notice::TokensExhausted
            | Notice::GivingWay { .. } => None,
        }
    }

    /// Returns true if the Event is reported again for as long as its condition lasts. Losing one
    /// of these is harmless.
    pub(super) fn repeats(&self) -> bool {
        match self {
            Self::RenewalFailing { .. } => true,
            Self::LeaderElected { .. }
            | Self::SteppedDown { .. }
            | Self::TakenOver { .. }
            | Self::WorkloadStuck { .. }
            | Self::StoreRolledBack { .. } => false,
        }
    }

    /// Returns the Event's `reason`, in CamelCase as the API conventions require.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::LeaderElected { .. } => "LeaderElected",
            Self::SteppedDown { .. } => "SteppedDown",
            Self::TakenOver { .. } => "TakenOver",
            Self::WorkloadStuck { .. } => "WorkloadStuck",
            Self::RenewalFailing { .. } => "RenewalFailing",
            Self::StoreRolledBack { .. } => "StoreWentBack",
        }
    }

    /// Returns the Event's `action`, the operation in progress.
    pub(super) fn action(&self) -> &'static str {
        match self {
            Self::LeaderElected { .. } | Self::TakenOver { .. } => "Acquire",
            Self::SteppedDown { .. } | Self::WorkloadStuck { .. } => "StepDown",
            Self::RenewalFailing { .. } => "Renew",
            Self::StoreRolledBack { .. } => "Read",
        }
    }

    /// Returns true if the Event needs attention and has type `Warning` instead of `Normal`.
    pub(super) fn is_warning(&self) -> bool {
        match self {
            Self::LeaderElected { .. } => false,
            Self::SteppedDown { reason, .. } => matches!(
                reason,
                Some(
                    Reason::Deadline
                        | Reason::Rejected
                        | Reason::Unhealthy
                        | Reason::WorkloadStuck
                        | Reason::StoreRolledBack
                        | Reason::Duplicate
                )
            ),
            Self::TakenOver { .. }
            | Self::WorkloadStuck { .. }
            | Self::RenewalFailing { .. }
            | Self::StoreRolledBack { .. } => true,
        }
    }

    /// Returns the Event's `note` of at most 1024 bytes; names and identities have at most 253.
    pub(super) fn note(&self, lease: &str) -> String {
        let token_text = |token: &Option<Token>| match token {
            Some(token) => format!("token {token}"),
            None => "no token".to_owned(),
        };
        let why = |reason: &Option<Reason>| reason.map_or("no reason", Reason::as_str);
        match self {
            Self::LeaderElected { token, reason } => {
                let token = token_text(token);
                format!("leads {lease} with {token} ({})", why(reason))
            }
            Self::SteppedDown { token, reason } => {
                let token = token_text(token);
                format!("lost leadership of {lease} ({token}): {}", why(reason))
            }
            Self::TakenOver {
                from,
                token,
                silent,
            } => format!(
                "took over {lease} from {from} (token {token}), unresponsive for {:.1} s",
                silent.as_secs_f64()
            ),
            Self::WorkloadStuck { token } => format!(
                "the workload of {lease} (token {token}) still runs after SIGKILL; the lease is \
                 left to expire"
            ),
            Self::RenewalFailing { why } => format!("renewals of {lease} fail: {why}"),
            Self::StoreRolledBack { seen, found } => {
                let found = found.map_or("none".to_owned(), |found| found.to_string());
                format!(
                    "the document of {lease} was deleted or restored: token {seen} was seen, \
                     {found} is stored"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_reasons_are_those_that_alerts_and_docs_name() {
        let (token, reason, found) = (None, None, None);
        let (seen, silent) = (Token::ZERO, Duration::ZERO);
        let taken_over = PodEvent::TakenOver {
            from: Identity::new("a").expect("legal"),
            token: seen,
            silent,
        };
        let page = include_str!("../../../docs/kubernetes.md");
        for (event, expected) in [
            (PodEvent::LeaderElected { token, reason }, "LeaderElected"),
            (PodEvent::SteppedDown { token, reason }, "SteppedDown"),
            (taken_over, "TakenOver"),
            (PodEvent::WorkloadStuck { token: seen }, "WorkloadStuck"),
            (
                PodEvent::RenewalFailing { why: "a".into() },
                "RenewalFailing",
            ),
            (PodEvent::StoreRolledBack { seen, found }, "StoreWentBack"),
        ] {
            assert_eq!(event.reason(), expected);
            assert!(page.contains(&format!("`{expected}`")), "{expected}");
        }
    }
}
