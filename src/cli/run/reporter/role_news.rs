//! Logs each change of role. On a terminal, the message contains the fields.

use tracing::{info, warn};

use super::Reporter;
use crate::election::{Reason, Role, Transition};
use crate::log::millis;
use crate::store::Failure;

impl Reporter {
    pub(in crate::cli::run) fn transition(
        &self,
        transition: &Transition,
        failed_write: Option<&Failure>,
    ) {
        let lease = &self.lease;
        let roles = [transition.from, transition.to].map(Role::as_str);
        let [from, to] = roles.map(|role| (!self.at_terminal).then_some(role));
        let exited = transition.reason == Some(Reason::WorkloadExit);
        let not_started = self.not_started.borrow().clone();
        let not_started =
            not_started.filter(|(claim, _)| exited && transition.token == Some(*claim));
        let not_started = not_started.map(|(_, why)| why);
        let news = match self.at_terminal {
            true => format!(
                "role changed: {}",
                role_news(transition, not_started.as_deref())
            ),
            false => "role changed".to_owned(),
        };
        let token = transition.token.map(|token| token.get());
        let reason = transition.reason.map(Reason::as_str);
        // On a terminal, the field's name says which role the duration belongs to.
        let lasted = millis(transition.lasted);
        let lasted_ms = (!self.at_terminal).then_some(lasted);
        let led = transition.from == Role::Leader;
        let led_for_ms = (self.at_terminal && led).then_some(lasted);
        let after_ms = (self.at_terminal && !led).then_some(lasted);
        match transition.reason {
            Some(
                Reason::Deadline
                | Reason::Rejected
                | Reason::WorkloadStuck
                | Reason::StoreRolledBack
                | Reason::Duplicate,
            ) => {
                let why = failed_write.map(tracing::field::display);
                warn!(%lease, from, to, token, reason, why, lasted_ms, led_for_ms, after_ms, "{news}");
            }
            _ => {
                let why = not_started.filter(|_| !self.at_terminal);
                info!(%lease, from, to, token, reason, why, lasted_ms, led_for_ms, after_ms, "{news}");
            }
        }
    }
}

/// Returns the change in words. `not_started` is the reason if the command was not started.
fn role_news(transition: &Transition, not_started: Option<&str>) -> String {
    let token = transition.token.map(|token| format!(" with token {token}"));
    let token = token.unwrap_or_default();
    let reason = transition.reason.map(Reason::as_str);
    match (transition.from, transition.to, not_started) {
        (_, Role::Leader, _) => {
            let reason = reason.map(|reason| format!(" ({reason})"));
            format!("leads{token}{}", reason.unwrap_or_default())
        }
        (Role::Leader, _, Some(why)) => {
            format!("stops leading: the command was not started: {why} (workload_exit)")
        }
        (Role::Leader, _, None) if transition.reason == Some(Reason::WorkloadExit) => {
            "stops leading: the command ended (workload_exit)".to_owned()
        }
        (Role::Leader, _, None) => format!("stops leading: {}", reason.unwrap_or("unknown")),
        (Role::Stopping, _, _) => "stopped leading".to_owned(),
        (_, Role::Follower | Role::Paused, _) => transition.to.as_str().to_owned(),
        (_, Role::Stopping, _) => "stops".to_owned(),
        (_, Role::Unknown, _) => "leader unknown: no answer from MongoDB".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::election::Token;

    #[test]
    fn the_news_says_whether_the_command_ended_or_was_not_started() {
        let transition = Transition {
            from: Role::Leader,
            to: Role::Stopping,
            reason: Some(Reason::WorkloadExit),
            token: Token::new(7),
            lasted: Duration::from_secs(1),
        };
        assert_eq!(
            role_news(&transition, None),
            "stops leading: the command ended (workload_exit)"
        );
        assert_eq!(
            role_news(&transition, Some("permission denied")),
            "stops leading: the command was not started: permission denied (workload_exit)"
        );
        for (to, news) in [(Role::Follower, "follower"), (Role::Paused, "paused")] {
            let transition = Transition {
                from: Role::Unknown,
                to,
                ..transition
            };
            assert_eq!(role_news(&transition, None), news);
        }
    }
}
