//! The published status of a candidate, derived from its state after each input.

use super::drain::DrainAfterLoss;
use super::effect::Transition;
use super::status::{Authority, HolderView, Reason, Role};
use super::view::Document;
use super::{Effect, Election, State};

impl Election {
    fn role(&self) -> Role {
        match &self.state {
            State::Leading(_) => Role::Leader,
            State::Stopping(_) => Role::Stopping,
            // A leader that was frozen may lose its lease and exit in one turn.
            State::Exited if self.status.role == Role::Leader => Role::Stopping,
            State::Exited => self.status.role,
            State::Contending(contending) => {
                let stopped = self.status.role == Role::Stopping;
                if contending.checking.is_some() || (self.shutdown.is_some() && stopped) {
                    Role::Stopping
                } else if matches!(self.view.document(), Document::NotRead)
                    || self.reads.answers_until().is_none_or(|at| at <= self.now)
                {
                    Role::Unknown
                } else if self.view.lease().is_some_and(|lease| lease.paused) {
                    Role::Paused
                } else {
                    Role::Follower
                }
            }
        }
    }

    pub(super) fn refresh_status(&mut self) {
        let before = self.status.role;
        let role = self.role();
        let authority = match &self.state {
            State::Leading(tenure) => Some(Authority {
                token: tenure.token,
                valid_until: tenure.valid_until(),
            }),
            State::Contending(_) | State::Stopping(_) | State::Exited => None,
        };
        let token_before = self.status.authority.map(|a| a.token);
        if role == Role::Paused {
            self.reason = Some(Reason::Paused);
        } else if before == Role::Paused
            && role != Role::Stopping
            && self.reason == Some(Reason::Paused)
        {
            self.reason = None;
        }
        if role != before {
            let stopping_token = self.state.tenure().map(|t| t.token);
            // A change between idle roles, such as a store that stops answering or recovers, does
            // not repeat the last reason, because a loss would then be counted twice.
            let idle = matches!(before, Role::Follower | Role::Unknown | Role::Paused)
                && matches!(role, Role::Follower | Role::Unknown);
            let transition = Transition {
                from: before,
                to: role,
                reason: self.reason.filter(|_| !idle),
                token: authority
                    .map(|a| a.token)
                    .or(token_before)
                    .or(stopping_token),
                lasted: self.now.since(self.status.since),
            };
            self.outbox.push(Effect::Transition(transition));
            self.status.transitions += 1;
            self.status.since = self.now;
        }
        self.status.role = role;
        self.status.authority = authority;
        self.status.stepping_down = match &self.state {
            State::Stopping(stopping) => Some(stopping.tenure.token),
            State::Contending(_) | State::Leading(_) | State::Exited => None,
        };
        let drain = self.workload.drain();
        let drain = drain.filter(|lost| lost.until() > self.now);
        self.status.unnoticed = drain.map(DrainAfterLoss::token);
        self.status.holder = self.holder_view(authority);
        self.status.session = self.me.session;
        self.status.reason = self.reason;
        self.status.token_highest = self.view.token_highest();
        if let State::Leading(tenure) = &self.state {
            self.status.renewed_at = Some(tenure.renewed_at);
        }
        self.status.store_reached = self.reads.answers_until().is_some();
    }

    /// Returns the leader as far as this candidate knows. Its own name never appears without
    /// authority, neither for an ended claim nor for a previous process with the same name.
    fn holder_view(&self, authority: Option<Authority>) -> Option<HolderView> {
        if let Some(authority) = authority {
            return Some(HolderView {
                identity: self.me.identity.clone(),
                token: authority.token,
                until: authority.valid_until,
            });
        }
        let lease = self.view.lease()?;
        let holder = lease
            .holder
            .as_ref()
            .filter(|h| h.identity != self.me.identity)?;
        let until = self.view.seen() + holder.lease_duration.duration();
        (until > self.now).then(|| HolderView {
            identity: holder.identity.clone(),
            token: lease.token,
            until,
        })
    }

    /// Checks invariants that only a bug can break. A daemon that fails here exits. Its files and
    /// its claim carry deadlines, so readers and contenders continue without it.
    pub(super) fn check_invariants(&self) {
        let awake = self.outbox.wakeup().is_none_or(|at| at > self.now);
        assert!(awake, "due at once again after all that was due was done");
        let idle = matches!(self.state, State::Contending(_)) && !self.is_busy();
        self.reads.check_invariants(idle);
        if let Some(authority) = self.status.authority {
            assert!(
                authority.valid_until > self.now,
                "authority outlives its deadline"
            );
            assert!(
                authority.token <= self.view.token_highest(),
                "a leader's token is not the highest"
            );
        }
        if let (true, State::Leading(tenure)) = (self.workload.supervises(), &self.state) {
            let runs = self.workload.runs_under(tenure.token);
            assert!(runs, "a leader whose workload is gone");
        }
        let leading = self.status.role == Role::Leader;
        assert_eq!(
            leading,
            self.status.authority.is_some(),
            "a role without its authority"
        );
        let leading = self.state.tenure().map(|tenure| tenure.claim);
        self.claims.check_invariants(leading);
    }
}
