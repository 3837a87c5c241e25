use std::hash::{Hash, Hasher};
use std::time::Duration;

use super::view::LeaseView;
use super::{
    Authority, BootTime, CandidateState, Claim, Contender, Effect, HolderView, Lease, Notice,
    Reason, Request, Role, Status, StoreAnswer, Token, Transition,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Publication {
    pub(super) status: Status,
    pub(super) reason: Option<Reason>,
    /// The last reported request whose token is not the leader's.
    pub(super) request_reported: Option<Request>,
}

/// The values last recorded in the status directory, for the next process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct DirectoryRecord {
    pub(super) claim: Option<Claim>,
    token: Token,
    lease_longest: Duration,
}

impl Hash for Publication {
    /// Omits the published reason and `unconfirmed`. No decision depends on these fields, and they
    /// would only add states to the model.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let holder = self.status.holder.clone();
        let status = Status {
            reason: self.reason,
            holder: holder.map(|holder| HolderView {
                unconfirmed: false,
                ..holder
            }),
            ..self.status.clone()
        };
        status.hash(state);
        self.reason.hash(state);
        self.request_reported.hash(state);
    }
}

impl Publication {
    pub(super) fn new(contender: &Contender, now: BootTime) -> Self {
        Self {
            status: Status {
                token_highest: contender.view().marks.token_highest,
                ..Status::initial(contender.me().session, now)
            },
            reason: None,
            request_reported: None,
        }
    }

    /// Reports a request that the leader ignores because of its token. Reports each request once.
    pub(super) fn report_request(&mut self, lease: &Lease, leading: Token) -> Option<Notice> {
        let other = lease.request.as_ref().filter(|r| r.token != leading);
        let notice = other
            .filter(|_| other != self.request_reported.as_ref())
            .map(|request| Notice::RequestForAnotherToken {
                requested: request.token,
                leading,
            });
        self.request_reported = other.cloned();
        notice
    }

    pub(super) fn refresh(
        &mut self,
        contender: &Contender,
        state: &CandidateState,
        now: BootTime,
    ) -> Option<Effect> {
        let before = self.status.role;
        let role = self.role(contender, state, now);
        let authority = state.leading().map(|tenure| Authority {
            token: tenure.token,
            valid_until: tenure.valid_until(),
        });
        if role == Role::Paused {
            self.reason = Some(Reason::Paused);
        } else if before == Role::Paused
            && role != Role::Stopping
            && self.reason == Some(Reason::Paused)
        {
            self.reason = None;
        }
        self.status.reason = self.shown_reason(role, contender);
        let transition = (role != before).then(|| {
            let token_before = self.status.authority.map(|a| a.token);
            let stopping_token = state.tenure().map(|t| t.token);
            // For a change between roles that do not lead, repeating the last reason would count a
            // loss twice in metrics.
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
                lasted: now.since(self.status.since),
            };
            self.status.transitions += 1;
            self.status.since = now;
            Effect::Transition(transition)
        });
        self.status.role = role;
        self.status.authority = authority;
        let stepping_down = state.tenure().filter(|_| authority.is_none());
        self.status.stepping_down = stepping_down.map(|tenure| tenure.token);
        self.status.unnoticed = contender.workload().draining(now);
        self.status.holder = self.holder_view(authority, contender, now);
        self.status.session = contender.me().session;
        self.status.token_highest = contender.view().marks.token_highest;
        if let Some(tenure) = state.leading() {
            self.status.renewed_at = Some(tenure.renewed_at);
        }
        self.status.store = match contender.view().foreign() {
            Some(why) => StoreAnswer::Foreign(why.clone()),
            None if contender.reads().answers_until.is_some() => StoreAnswer::Usable,
            None => StoreAnswer::None,
        };
        transition
    }

    /// Returns the reason to publish for `role`. Omits a reason that explains only an earlier role.
    fn shown_reason(&self, role: Role, contender: &Contender) -> Option<Reason> {
        // These two reasons come from the content of the store, so they remain true after an
        // outage.
        let in_store = |it: &Reason| matches!(it, Reason::StoreRolledBack | Reason::Duplicate);
        let in_store = self.reason.filter(in_store);
        match (self.status.role, role) {
            (Role::Follower, Role::Unknown) => {
                let by_deadline = self.reason.filter(|it| *it == Reason::Deadline);
                by_deadline.filter(|_| !self.answered_since_change(contender))
            }
            (Role::Unknown, Role::Unknown) => self.status.reason,
            (Role::Unknown, Role::Follower) => in_store,
            (Role::Follower, Role::Follower) => in_store.or(self.status.reason),
            _ => self.reason,
        }
    }

    /// Returns true if the store has answered since the last change of role. Otherwise, the outage
    /// that ended the leadership continues. `answers_until` is one lease duration after the last
    /// answer.
    fn answered_since_change(&self, contender: &Contender) -> bool {
        let lease_duration = contender.me().timings().lease_duration();
        let answers_until = contender.reads().answers_until;
        answers_until.is_some_and(|until| until > self.status.since + lease_duration)
    }

    /// Returns the presumed leader. This candidate counts as the leader only while it has
    /// authority.
    fn holder_view(
        &self,
        authority: Option<Authority>,
        contender: &Contender,
        now: BootTime,
    ) -> Option<HolderView> {
        let (me, view) = (contender.me(), contender.view());
        if let Some(authority) = authority {
            return Some(HolderView {
                identity: me.identity.clone(),
                token: authority.token,
                until: authority.valid_until,
                unconfirmed: false,
            });
        }
        let lease = view.lease()?;
        let holder = lease.holder.as_ref();
        let holder = holder.filter(|holder| holder.identity != me.identity)?;
        let until = view.seen + holder.lease_duration.duration();
        let unconfirmed = match &self.status.holder {
            Some(before) => before.unconfirmed && before.until == until,
            None => self.status.store == StoreAnswer::None,
        };
        (until > now).then(|| HolderView {
            identity: holder.identity.clone(),
            token: holder.token.unwrap_or(lease.token),
            until,
            unconfirmed,
        })
    }

    fn role(&self, contender: &Contender, state: &CandidateState, now: BootTime) -> Role {
        match state {
            CandidateState::Leading(_) => Role::Leader,
            CandidateState::Stopping(_) => Role::Stopping,
            // After a freeze, a leader may lose its lease and exit in one turn.
            CandidateState::Exited if self.status.role == Role::Leader => Role::Stopping,
            CandidateState::Exited => self.status.role,
            CandidateState::Contending => contender.role(self.status.role, now),
        }
    }

    pub(super) fn check_invariants(&self, now: BootTime, token_highest: Token) {
        let authority = self.status.authority;
        let valid = authority.is_none_or(|it| it.valid_until > now);
        assert!(valid, "authority outlives its deadline");
        let highest = authority.is_none_or(|it| it.token <= token_highest);
        assert!(highest, "a leader's token is not the highest");
        let leads = self.status.role == Role::Leader;
        assert_eq!(leads, authority.is_some(), "a role without its authority");
    }
}

impl DirectoryRecord {
    pub(super) fn new(claim: Option<Claim>, view: &LeaseView) -> Self {
        Self {
            claim,
            token: view.marks.token_highest,
            lease_longest: view.marks.lease_longest,
        }
    }

    /// Records the claim that the lease document may contain, so that the next process can prove
    /// that this process has exited. `None` removes the record.
    pub(super) fn set(&mut self, claim: Option<Claim>, view: &LeaseView) -> Effect {
        *self = Self::new(claim, view);
        Effect::Remember {
            claim,
            token: self.token,
            lease_longest: self.lease_longest,
        }
    }

    /// Records newer values of `view`, which the next process uses to detect a rollback.
    pub(super) fn refresh(&mut self, view: &LeaseView) -> Option<Effect> {
        let newer =
            view.marks.token_highest > self.token || view.marks.lease_longest > self.lease_longest;
        newer.then(|| self.set(self.claim, view))
    }
}
