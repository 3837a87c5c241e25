//! What is worth an Event on the pod, in the words that people will read.

use std::time::Duration;

use crate::election::{Identity, Notice, Reason, Role, Token, Transition};

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// This candidate leads.
    LeaderElected {
        /// Its token.
        token: Option<Token>,
        /// How it came to it.
        reason: Option<Reason>,
    },
    /// This candidate led and does not lead any more.
    SteppedDown {
        /// The token that it had.
        token: Option<Token>,
        /// Why.
        reason: Option<Reason>,
    },
    /// This candidate took over from one that was silent.
    TakenOver {
        /// From whom.
        from: Identity,
        /// The token of the silent one.
        token: Token,
        /// For how long it had been silent.
        silent: Duration,
    },
    /// A renewal of this leader was not acknowledged.
    RenewalFailing {
        /// A constant phrase.
        why: &'static str,
    },
    /// The lease document was deleted or restored.
    StoreWentBack {
        /// The token that was seen before.
        seen: Token,
        /// The one that is stored now.
        found: Option<Token>,
    },
}

impl Event {
    /// The Event of a renewal that was not acknowledged; `why` is a constant phrase.
    pub fn of_failed_renewal(why: &'static str) -> Option<Self> {
        Some(Self::RenewalFailing { why })
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

    /// The Event of a notice, if it is worth one.
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
            Notice::StoreWentBack { seen, found, .. } => Some(Self::StoreWentBack {
                seen: *seen,
                found: *found,
            }),
            Notice::Succeeded { .. }
            | Notice::Duplicate { .. }
            | Notice::Foreign { .. }
            | Notice::AbsurdDuration { .. }
            | Notice::BackingOff { .. }
            | Notice::NotDemoted { .. }
            | Notice::LeftToExpire
            | Notice::RequestForAnotherToken { .. }
            | Notice::TokensExhausted => None,
        }
    }

    /// Whether it is said again for as long as it is so, so that one that is
    /// lost is no loss.
    pub(super) fn repeats(&self) -> bool {
        match self {
            Self::RenewalFailing { .. } => true,
            Self::LeaderElected { .. }
            | Self::SteppedDown { .. }
            | Self::TakenOver { .. }
            | Self::StoreWentBack { .. } => false,
        }
    }

    /// The Event's `reason`: a word in CamelCase, as the API's conventions ask.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::LeaderElected { .. } => "LeaderElected",
            Self::SteppedDown { .. } => "SteppedDown",
            Self::TakenOver { .. } => "TakenOver",
            Self::RenewalFailing { .. } => "RenewalFailing",
            Self::StoreWentBack { .. } => "StoreWentBack",
        }
    }

    /// The Event's `action`: what was being done.
    pub(super) fn action(&self) -> &'static str {
        match self {
            Self::LeaderElected { .. } | Self::TakenOver { .. } => "Acquire",
            Self::SteppedDown { .. } => "StepDown",
            Self::RenewalFailing { .. } => "Renew",
            Self::StoreWentBack { .. } => "Read",
        }
    }

    /// Whether somebody should look: type `Warning`, else `Normal`.
    pub(super) fn is_warning(&self) -> bool {
        match self {
            Self::LeaderElected { .. } => false,
            Self::SteppedDown { reason, .. } => matches!(
                reason,
                Some(
                    Reason::Deadline
                        | Reason::Rejected
                        | Reason::Unhealthy
                        | Reason::StoreWentBack
                        | Reason::Duplicate
                )
            ),
            Self::TakenOver { .. } | Self::RenewalFailing { .. } | Self::StoreWentBack { .. } => {
                true
            }
        }
    }

    /// The Event's `note`, at most 1024 bytes: names and identities have 253.
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
            Self::RenewalFailing { why } => format!("renewals of {lease} fail: {why}"),
            Self::StoreWentBack { seen, found } => {
                let found = found.map_or("none".to_owned(), |found| found.to_string());
                format!(
                    "the document of {lease} was deleted or restored: token {seen} was seen, \
                     {found} is stored"
                )
            }
        }
    }
}
