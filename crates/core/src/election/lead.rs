//! A candidate with a claim: renewing it, obeying requests, giving it up.
//!
//! Nothing here extends authority but [`Tenure::applied`]. A claim that is
//! lost or whose release is sent leaves this module for good.

use std::time::Duration;

use super::contend::Contending;
use super::effect::{CallId, Notice, Operation};
use super::input::{Found, Outcome};
use super::lease::{Lease, RequestKind, Reservation, Revision, Token};
use super::status::Reason;
use super::tenure::{Renewed, Tenure};
use super::time::BootTime;
use super::view::Plausible;
use super::{Effect, Election, Shutdown, State, Turn, earliest, push_bounded};

/// How long a step-down waits for the files before it counts them as stuck: they
/// are in memory or on a local disk and take well under a millisecond. With
/// the release it fits into the second and a half that a terminating pod may have.
const DEMOTE_WAIT: Duration = Duration::from_millis(500);

/// Two losses by deadline within this time make a candidate wait.
const LOSSES_WINDOW: Duration = Duration::from_secs(600);

/// A claim that is being given up: no authority, and renewed until the
/// workload is gone so that nobody takes over before.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Stopping {
    pub(super) tenure: Tenure,
    reason: Reason,
    reserved_for: Option<Reservation>,
    files: Files,
    /// The deadline that the files named when authority was given up.
    published_until: BootTime,
    stuck_reported: bool,
    /// The workload has confirmed, or this instant has come.
    pub(super) drained_at: BootTime,
    /// How long the workload may take to notice; nothing once it has confirmed.
    pub(super) delay: Duration,
}

/// How leadership is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    Deadline,
    Rejected,
    StoreWentBack,
}

/// Whether the files still name a deadline ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Files {
    Asked { until: BootTime },
    Demoted,
    Stuck,
}

impl Election {
    /// Does what is due; says when to come back.
    pub(super) fn lead(&mut self, turn: &mut Turn<'_>) -> Option<BootTime> {
        self.read_if_due(turn);
        self.renew_if_due(turn);
        let (wait, release) = match &mut self.state {
            // Nothing is released beside a workload that may still run (I6).
            State::Stopping(_) if self.workload.runs() && !planted!(ReleaseBeforeChild) => {
                (None, false)
            }
            State::Stopping(stopping) => stopping.progress(self.shutdown.is_some(), turn.now),
            State::Leading(_) | State::Contending(_) | State::Exited => (None, false),
        };
        if self.shutdown.is_none() {
            self.report_stuck_files(turn.now);
        }
        if release {
            self.hand_over(turn);
            return self.contend(turn);
        }
        let tenure = self.tenure()?;
        earliest([
            Some(tenure.valid_until()),
            self.next_renewal(),
            wait,
            self.next_read(),
        ])
    }

    fn next_renewal(&self) -> Option<BootTime> {
        if planted!(DrainNotRenewed) && matches!(self.state, State::Stopping(_)) {
            return None;
        }
        self.tenure().and_then(Tenure::next_renewal)
    }

    fn renew_if_due(&mut self, turn: &mut Turn<'_>) {
        if self.next_renewal().is_none_or(|due| due > turn.now) {
            return;
        }
        let mut revision = Revision::random(turn.random);
        let call = CallId(self.calls + 1);
        let Some(tenure) = self.tenure_mut() else {
            return;
        };
        if planted!(RevisionKept) {
            revision = tenure.chain()[0];
        }
        let claim = tenure.claim;
        let chain = tenure.send(call, revision, turn.now);
        let id = self.call(Operation::Renew {
            claim,
            revision,
            chain,
        });
        debug_assert_eq!(id, call, "the renewal goes by another id than was noted");
    }

    /// A renewal came back, maybe late or out of order.
    pub(super) fn renewal_reply(&mut self, call: CallId, outcome: Outcome, turn: &mut Turn<'_>) {
        let retry_at = turn.now + turn.jittered(self.tunables.timings.retry_interval());
        let Some(tenure) = self.tenure_mut() else {
            return;
        };
        let claim = tenure.claim;
        let (renewed, lease) = match outcome {
            Outcome::Applied(Found::Lease(lease))
                if lease.holder.as_ref().is_some_and(|h| h.claim == claim) =>
            {
                (tenure.applied(call), Some(lease))
            }
            // It matched, and is no lease of ours any more: not to be touched
            // again. A read of before this claim led tells nothing of it.
            Outcome::Applied(Found::Foreign(_)) if tenure.awaits(call) => (Renewed::Rejected, None),
            Outcome::Rejected if planted!(RejectionOutlived) => {
                (tenure.unanswered(call, true, retry_at), None)
            }
            Outcome::Rejected => (tenure.rejected(call), None),
            Outcome::Failed => (tenure.unanswered(call, false, retry_at), None),
            Outcome::Unknown if planted!(UnknownAsApplied) => (tenure.applied(call), None),
            Outcome::Applied(_) | Outcome::Unknown => {
                let maybe_sent = !planted!(UnknownAsFailed);
                (tenure.unanswered(call, maybe_sent, retry_at), None)
            }
        };
        match (renewed, lease) {
            (Renewed::Extended, Some(lease)) => {
                if planted!(RenewalFromReply) {
                    self.tenure_mut().expect("it renewed").renewed_at = turn.now;
                }
                self.extend_workload();
                let found = Found::Lease(lease.clone());
                if self.view.judge(&found) == Plausible::Yes {
                    self.observe(found, turn);
                } else {
                    // Somebody lowered the token: the next leader's could be one
                    // that was used.
                    self.suspicious = true;
                    self.read_soon(turn.now);
                }
                self.obey(&lease, turn);
            }
            (Renewed::Rejected, _) => self.lose(Loss::Rejected, turn),
            (Renewed::Extended | Renewed::Stale | Renewed::Retry, _) => {}
        }
    }

    /// A read while holding a claim. Only the store can take it away, by
    /// rejecting a renewal: a majority read may be older than the claim.
    pub(super) fn leader_read(&mut self, found: Found, turn: &mut Turn<'_>) {
        let Some(tenure) = self.tenure() else { return };
        let known = match &found {
            Found::Lease(lease) => {
                let mine = lease
                    .holder
                    .as_ref()
                    .is_some_and(|h| h.claim == tenure.claim);
                if mine {
                    self.obey(lease, turn);
                }
                mine && self.tenure().is_some_and(|t| t.sent(lease.revision))
            }
            Found::Missing | Found::Foreign(_) => false,
        };
        if let (false, Some(tenure)) = (known, self.tenure_mut()) {
            tenure.hurry();
        }
    }

    /// What the document asks of the claim that leads.
    pub(super) fn demand(&self, lease: &Lease) -> Option<(Reason, Option<Reservation>)> {
        let State::Leading(tenure) = &self.state else {
            return None;
        };
        if lease.paused && !planted!(PauseNotObeyed) {
            return Some((Reason::Paused, None));
        }
        if planted!(RequestIgnored) {
            return None;
        }
        let mine = |token| token == tenure.token || planted!(RequestOfAnotherToken);
        let request = lease.request.as_ref().filter(|r| mine(r.token))?;
        match &request.kind {
            RequestKind::StepDown => Some((Reason::Requested, None)),
            RequestKind::Transfer(to) if to.identity == self.identity => None,
            RequestKind::Transfer(to) => Some((Reason::Transferred, Some(to.clone()))),
        }
    }

    pub(super) fn obey(&mut self, lease: &Lease, turn: &mut Turn<'_>) {
        self.report_request(lease);
        if let Some((reason, reserved_for)) = self.demand(lease) {
            self.stop(reason, reserved_for, turn);
        }
    }

    /// Reports, once, a request that this leader ignores because it names
    /// another token. Whoever made it took the document's token, which somebody
    /// had raised, or meant an earlier leader.
    fn report_request(&mut self, lease: &Lease) {
        let State::Leading(tenure) = &self.state else {
            return;
        };
        let (requested, leading) = (lease.request.as_ref(), tenure.token);
        let other = requested
            .filter(|request| request.token != leading)
            .cloned();
        if let Some(request) = other.as_ref().filter(|_| other != self.request_reported) {
            let requested = request.token;
            self.notice(Notice::RequestForAnotherToken { requested, leading });
        }
        self.request_reported = other;
    }

    /// Gives up authority now, and the lease when the workload is gone.
    pub(super) fn stop(
        &mut self,
        reason: Reason,
        reserved_for: Option<Reservation>,
        turn: &mut Turn<'_>,
    ) {
        match std::mem::replace(&mut self.state, State::Exited) {
            State::Leading(tenure) => {
                let delay = self.notice_delay();
                self.reason = Some(reason);
                self.effects.push_back(Effect::Demote);
                self.stop_workload();
                self.state = State::Stopping(Stopping {
                    reason,
                    reserved_for,
                    files: Files::Asked {
                        until: turn.now + DEMOTE_WAIT,
                    },
                    published_until: tenure.valid_until(),
                    stuck_reported: false,
                    drained_at: turn.now + delay,
                    delay,
                    tenure,
                });
            }
            other @ (State::Stopping(_) | State::Contending(_) | State::Exited) => {
                self.state = other;
            }
        }
    }

    pub(super) fn demoted(&mut self, shown: bool, now: BootTime) {
        if let State::Stopping(stopping) = &mut self.state {
            if shown && stopping.files != Files::Demoted {
                // Who reads the file can notice from now on.
                stopping.drained_at = stopping.drained_at.max(now + stopping.delay);
            }
            stopping.files = match stopping.files {
                Files::Asked { .. } if !shown => Files::Stuck,
                // Late is better than never: nobody reads the old file any more.
                Files::Asked { .. } | Files::Stuck if shown => Files::Demoted,
                unchanged @ (Files::Asked { .. } | Files::Stuck | Files::Demoted) => unchanged,
            };
        }
    }

    /// Says that readers of a stuck file must be waited for.
    fn report_stuck_files(&mut self, now: BootTime) {
        if let State::Stopping(stopping) = &mut self.state
            && stopping.files == Files::Stuck
            && !std::mem::replace(&mut stopping.stuck_reported, true)
        {
            let wait = stopping.published_until.since(now);
            self.notice(Notice::NotDemoted { wait });
        }
    }

    /// The workload is gone: ends the claim and sends its release (I6).
    fn hand_over(&mut self, turn: &mut Turn<'_>) {
        let state = std::mem::replace(&mut self.state, State::Contending(Contending::default()));
        let State::Stopping(stopping) = state else {
            self.state = state;
            return;
        };
        let Stopping {
            tenure,
            reason,
            reserved_for,
            files,
            published_until,
            ..
        } = stopping;
        let reserved_for = reserved_for.filter(|_| !planted!(TransferNotReserved));
        self.stay_out_if_asked(reason, tenure.token, turn.now);
        let ended = self.end(&tenure, reason, reserved_for);
        let stuck = files != Files::Demoted
            && published_until > turn.now
            && !planted!(StuckFileIgnoredAtExit);
        if let (true, Some(shutdown)) = (stuck, self.shutdown) {
            self.shutdown = Some(Shutdown {
                keep: true,
                ..shutdown
            });
        } else {
            self.release(&ended, turn);
        }
    }

    /// At its deadline a claim has ended, whatever else is going on.
    pub(super) fn expire(&mut self, turn: &mut Turn<'_>) {
        if self.tenure().is_some_and(|t| t.valid_until() <= turn.now) {
            self.lose(Loss::Deadline, turn);
        }
        self.stay_out = self.stay_out.filter(|out| out.until > turn.now);
        self.quarantine = self.quarantine.filter(|until| *until > turn.now);
    }

    /// Leadership is gone. The claim is ended and never led by again.
    pub(super) fn lose(&mut self, loss: Loss, turn: &mut Turn<'_>) {
        let state = std::mem::replace(&mut self.state, State::Contending(Contending::default()));
        let (tenure, reserved_for, noticed_at) = match state {
            State::Leading(tenure) => (tenure, None, None),
            // What was asked for holds, also if the drain did not come to its end.
            State::Stopping(stopping) => {
                self.stay_out_if_asked(stopping.reason, stopping.tenure.token, turn.now);
                let noticed_at = Some(stopping.noticed_at(turn.now));
                (stopping.tenure, stopping.reserved_for, noticed_at)
            }
            State::Contending(_) | State::Exited => {
                self.state = state;
                return;
            }
        };
        self.kill_workload(&tenure, turn.now);
        self.lost_unnoticed(&tenure, noticed_at, turn);
        match loss {
            // The release is sent too, so that a store that comes back is free
            // early; not beside a workload that may not have noticed (I6).
            Loss::Deadline => {
                self.reason = Some(Reason::Deadline);
                self.back_off_after_losses(tenure.token, turn);
                let ended = self.end(&tenure, Reason::Deadline, reserved_for);
                #[cfg(test)]
                if planted!(RenewedAfterDeadline) {
                    self.pending.push(self.revived(&ended));
                    return self.fall_behind(turn.now);
                }
                let child_runs = self.workload.runs() && !planted!(ReleaseBeforeChild);
                if child_runs || self.release_from() > turn.now {
                    push_bounded(&mut self.ended, ended);
                    self.fall_behind(turn.now);
                } else if !planted!(NoReleaseAfterDeadline) {
                    self.release(&ended, turn);
                }
            }
            // No release: if a forked machine's twin holds this claim, it
            // would be dethroned while it leads.
            Loss::Rejected => {
                self.reason = Some(Reason::Rejected);
                // A twin on a cloned directory may lead with it: the record
                // is no proof for the next process any more.
                self.forget_claim();
                self.state = State::Contending(Contending::checking(tenure.claim, tenure.chain()));
                self.fall_behind(turn.now);
            }
            // Nothing to release: the document that named this claim is gone.
            Loss::StoreWentBack => self.reason = Some(Reason::StoreWentBack),
        }
    }

    /// Who was asked to step down leaves the lease to others. Who did it for its
    /// workload's health stays out until that is back, and no longer.
    fn stay_out_if_asked(&mut self, reason: Reason, token: Token, now: BootTime) {
        if matches!(reason, Reason::Requested | Reason::Transferred) {
            self.stay_out(token, now);
        }
    }

    /// A candidate that lost by deadline twice within the window lets others go first.
    fn back_off_after_losses(&mut self, token: Token, turn: &mut Turn<'_>) {
        let before = self.deadline_loss.replace(turn.now);
        let again = before.is_some_and(|at| turn.now.since(at) < LOSSES_WINDOW);
        if again && !planted!(NoBackOff) {
            self.stay_out(token, turn.now);
            let wait = self.tunables.timings.lease_duration();
            self.notice(Notice::BackingOff { wait });
        }
    }
}

impl Stopping {
    /// When the workload has noticed, should leadership be lost at `now`.
    fn noticed_at(&self, now: BootTime) -> BootTime {
        match self.files {
            Files::Demoted => self.drained_at,
            Files::Asked { .. } | Files::Stuck => {
                let until = now.max(self.published_until);
                self.drained_at.max(until + self.delay)
            }
        }
    }

    /// When to look again, and whether the release is due.
    fn progress(&mut self, shutting_down: bool, now: BootTime) -> (Option<BootTime>, bool) {
        if planted!(ReleaseBeforeFiles) {
            self.files = Files::Demoted;
        }
        if let Files::Asked { until } = self.files {
            if until > now {
                return (Some(until), false);
            }
            self.files = Files::Stuck;
        }
        // A reader of a stuck file believes it until the deadline it names, and
        // notices within the delay.
        // A process that ends does not wait for it: it leaves the lease to expire.
        let at = match self.files {
            Files::Stuck if !shutting_down && !planted!(StuckFileIgnored) => {
                (self.drained_at).max(self.published_until + self.delay)
            }
            Files::Asked { .. } | Files::Demoted | Files::Stuck => self.drained_at,
        };
        if at > now && !planted!(ReleaseBeforeWorkload) {
            (Some(at), false)
        } else {
            (None, true)
        }
    }
}
