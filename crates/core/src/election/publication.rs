//! What others are shown of a candidate: the status, derived from its state after each input, and
//! the record for the next process on the status directory.

use std::time::Duration;

use super::State;
use super::candidate::Participant;
use super::drain::DrainAfterLoss;
use super::effect::{Effect, Notice, Transition};
use super::lease::{Claim, Lease, Request, Session, Token};
use super::status::{Authority, HolderView, Reason, Role, Status};
use super::time::BootTime;
use super::view::{Document, View};

/// What was published and recorded last.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Publication {
    status: Status,
    /// Reason for the next change of role.
    reason: Option<Reason>,
    /// The last reported request that named another token than the leader's.
    request_reported: Option<Request>,
    recorded: RecordedState,
}

/// The values last recorded in the status directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct RecordedState {
    claim: Option<Claim>,
    token: Token,
    lease_longest: Duration,
}

/// What a status is derived from.
pub(super) struct Basis<'a> {
    pub(super) me: &'a Participant,
    pub(super) state: &'a State,
    pub(super) view: &'a View,
    pub(super) answers_until: Option<BootTime>,
    pub(super) drain: Option<&'a DrainAfterLoss>,
    pub(super) shutting_down: bool,
    pub(super) now: BootTime,
}

impl Publication {
    /// Begins with the record of the previous process.
    pub(super) fn new(claim: Option<Claim>, view: &View, session: Session, now: BootTime) -> Self {
        Self {
            status: Status {
                token_highest: view.token_highest(),
                ..Status::initial(session, now)
            },
            reason: None,
            request_reported: None,
            recorded: RecordedState {
                claim,
                token: view.token_highest(),
                lease_longest: view.lease_longest(),
            },
        }
    }

    pub(super) fn status(&self) -> &Status {
        &self.status
    }

    pub(super) fn set_reason(&mut self, reason: Reason) {
        self.reason = Some(reason);
    }

    /// Returns the claim that is recorded as possibly stored.
    pub(super) fn recorded_claim(&self) -> Option<Claim> {
        self.recorded.claim
    }

    /// Records a claim for the next process, or `None` if the recorded one no longer proves that
    /// its process has exited.
    pub(super) fn record(&mut self, claim: Option<Claim>, view: &View) -> Effect {
        let (token, lease_longest) = (view.token_highest(), view.lease_longest());
        self.recorded = RecordedState {
            claim,
            token,
            lease_longest,
        };
        Effect::Remember {
            claim,
            token,
            lease_longest,
        }
    }

    /// Records new values of `view` for the next process. With a token but without the duration
    /// that goes with it, that process would wait too briefly after a rollback of the store.
    pub(super) fn record_view(&mut self, view: &View) -> Option<Effect> {
        let recorded = self.recorded;
        let newer =
            view.token_highest() > recorded.token || view.lease_longest() > recorded.lease_longest;
        newer.then(|| self.record(recorded.claim, view))
    }

    /// Forgets which request was reported, because another claim leads.
    pub(super) fn begin_to_lead(&mut self) {
        self.request_reported = None;
    }

    /// Reports, once, a request that the leader with the token `leading` ignores because it names
    /// another token. Either the request names the document's token, which had been raised by hand,
    /// or it was meant for an earlier leader.
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

    /// Derives the status; returns the change of role, if there is one.
    pub(super) fn refresh(&mut self, basis: &Basis<'_>) -> Option<Effect> {
        let Basis {
            me,
            state,
            view,
            now,
            ..
        } = *basis;
        let before = self.status.role;
        let role = self.role(basis);
        let authority = match state {
            State::Leading(tenure) => Some(Authority {
                token: tenure.token,
                valid_until: tenure.valid_until(),
            }),
            State::Contending(_) | State::Stopping(_) | State::Exited => None,
        };
        if role == Role::Paused {
            self.reason = Some(Reason::Paused);
        } else if before == Role::Paused
            && role != Role::Stopping
            && self.reason == Some(Reason::Paused)
        {
            self.reason = None;
        }
        let transition = (role != before).then(|| {
            let token_before = self.status.authority.map(|a| a.token);
            let stopping_token = state.tenure().map(|t| t.token);
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
                lasted: now.since(self.status.since),
            };
            self.status.transitions += 1;
            self.status.since = now;
            Effect::Transition(transition)
        });
        let drain = basis.drain.filter(|lost| lost.until() > now);
        self.status.role = role;
        self.status.authority = authority;
        self.status.stepping_down = match state {
            State::Stopping(stopping) => Some(stopping.tenure().token),
            State::Contending(_) | State::Leading(_) | State::Exited => None,
        };
        self.status.unnoticed = drain.map(DrainAfterLoss::token);
        self.status.holder = holder_view(authority, me, view, now);
        self.status.session = me.session;
        self.status.reason = self.reason;
        self.status.token_highest = view.token_highest();
        if let State::Leading(tenure) = state {
            self.status.renewed_at = Some(tenure.renewed_at);
        }
        self.status.store_reached = basis.answers_until.is_some();
        transition
    }

    fn role(&self, basis: &Basis<'_>) -> Role {
        let Basis { view, now, .. } = *basis;
        match basis.state {
            State::Leading(_) => Role::Leader,
            State::Stopping(_) => Role::Stopping,
            // A leader that was frozen may lose its lease and exit in one turn.
            State::Exited if self.status.role == Role::Leader => Role::Stopping,
            State::Exited => self.status.role,
            State::Contending(contending) => {
                let stopped = self.status.role == Role::Stopping;
                if contending.is_checking() || (basis.shutting_down && stopped) {
                    Role::Stopping
                } else if matches!(view.document(), Document::NotRead)
                    || basis.answers_until.is_none_or(|at| at <= now)
                {
                    Role::Unknown
                } else if view.lease().is_some_and(|lease| lease.paused) {
                    Role::Paused
                } else {
                    Role::Follower
                }
            }
        }
    }

    /// Checks invariants of the status that only a bug can break.
    pub(super) fn check_invariants(&self, now: BootTime, token_highest: Token) {
        if let Some(authority) = self.status.authority {
            assert!(
                authority.valid_until > now,
                "authority outlives its deadline"
            );
            assert!(
                authority.token <= token_highest,
                "a leader's token is not the highest"
            );
        }
        let leading = self.status.role == Role::Leader;
        assert_eq!(
            leading,
            self.status.authority.is_some(),
            "a role without its authority"
        );
    }
}

/// Returns the leader as far as this candidate knows. Its own name never appears without authority,
/// neither for an ended claim nor for a previous process with the same name.
fn holder_view(
    authority: Option<Authority>,
    me: &Participant,
    view: &View,
    now: BootTime,
) -> Option<HolderView> {
    if let Some(authority) = authority {
        return Some(HolderView {
            identity: me.identity.clone(),
            token: authority.token,
            until: authority.valid_until,
        });
    }
    let lease = view.lease()?;
    let holder = lease.holder.as_ref();
    let holder = holder.filter(|holder| holder.identity != me.identity)?;
    let until = view.seen() + holder.lease_duration.duration();
    (until > now).then(|| HolderView {
        identity: holder.identity.clone(),
        token: lease.token,
        until,
    })
}

#[cfg(all(test, not(proof)))]
impl Publication {
    /// The status, also for states that no input leads to.
    pub(super) fn status_mut(&mut self) -> &mut Status {
        &mut self.status
    }
}
