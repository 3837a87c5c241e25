//! A candidate with a claim: renewing it, applying requests, giving it up.
//!
//! Only [`Tenure::applied`] extends authority. A claim that is lost, or whose release is sent,
//! never returns to this module.

use std::time::Duration;

use super::contend::Contending;
use super::drain::DrainAfterLoss;
use super::effect::{CallId, Notice, Operation};
use super::input::{Found, Outcome};
use super::lease::{Lease, RequestKind, Reservation, Revision, Token};
use super::status::Reason;
use super::tenure::{Renewed, Tenure};
use super::time::BootTime;
use super::view::Plausible;
use super::{Effect, Election, Shutdown, State, Turn, earliest};

/// Maximum time that a step-down waits for the files, and for the pod's label; after it the files
/// count as stuck. Files in memory or on a local disk take well under a millisecond. This wait and
/// the release fit into the 1.5 s that a terminating pod may have.
const DEMOTE_WAIT: Duration = Duration::from_millis(500);

/// A claim that is being given up, without authority. Renewals continue until the workload is gone,
/// so that no other candidate takes over before.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Stopping {
    pub(super) tenure: Tenure,
    reason: Reason,
    reserved_for: Option<Reservation>,
    files: Files,
    /// Latest instant to wait for the pod's label, which may still say leader.
    label_until: Option<BootTime>,
    /// The deadline that the files named when authority was given up.
    published_until: BootTime,
    stuck_reported: bool,
    /// When the workload counts as drained; zero once it has confirmed.
    drained_at: BootTime,
    /// Time that the workload has to notice; zero once it has confirmed.
    delay: Duration,
}

/// Cause of a loss of leadership.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    Deadline,
    Rejected,
    StoreRolledBack,
    WorkloadStuck,
}

/// State of the status files during a step-down; a stuck file still names the published deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Files {
    Asked { until: BootTime },
    Demoted,
    Stuck,
}

impl Election {
    /// Does everything that is due; returns the next wakeup.
    pub(super) fn lead(&mut self, turn: &mut Turn<'_>) -> Option<BootTime> {
        self.reads
            .send_if_due(&self.view, &mut self.outbox, turn.now);
        self.renew_if_due(turn);
        let preferred = self.give_way(turn);
        let (wait, release) = match &mut self.state {
            // Nothing is released while the workload may still be running (I6).
            State::Stopping(_) if self.workload.runs() => (None, false),
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
        let tenure = self.state.tenure()?;
        earliest([
            Some(tenure.valid_until()),
            tenure.next_renewal(),
            wait,
            preferred,
            self.reads.next(),
        ])
    }

    fn renew_if_due(&mut self, turn: &mut Turn<'_>) {
        let due = self.state.tenure().and_then(Tenure::next_renewal);
        if due.is_none_or(|due| due > turn.now) {
            return;
        }
        let mut revision = Revision::random(turn.random);
        let Some(tenure) = self.state.tenure_mut() else {
            return;
        };
        if planted!(RevisionKept) {
            revision = tenure.chain()[0];
        }
        let call = self.outbox.call(Operation::Renew {
            claim: tenure.claim,
            revision,
            chain: tenure.chain(),
        });
        tenure.send(call, revision, turn.now);
    }

    /// Handles the reply to a renewal, possibly late or out of order.
    pub(super) fn renewal_reply(&mut self, call: CallId, outcome: Outcome, turn: &mut Turn<'_>) {
        let retry_at = self.me.retry_at(turn);
        let Some(tenure) = self.state.tenure_mut() else {
            return;
        };
        let claim = tenure.claim;
        let (renewed, lease) = match outcome {
            Outcome::Applied(Found::Lease(lease))
                if lease.holder.as_ref().is_some_and(|h| h.claim == claim) =>
            {
                (tenure.applied(call), Some(lease))
            }
            // The renewal matched, but the document is now foreign and must not be changed again.
            // Reads sent before this claim led prove nothing about it, so only a renewal's reply
            // counts.
            Outcome::Applied(Found::Foreign(_)) if tenure.awaits(call) => (Renewed::Rejected, None),
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
                    self.state.tenure_mut().expect("it renewed").renewed_at = turn.now;
                }
                let tenure = self.state.tenure();
                let order = tenure.and_then(|tenure| self.workload.extend(tenure));
                self.outbox.extend(order);
                let found = Found::Lease(lease.clone());
                if self.view.judge(&found) == Plausible::Yes {
                    self.observe(found, turn);
                } else {
                    // The token was lowered, so the next leader could get a token that was already
                    // used.
                    self.reads.suspect(turn.now);
                }
                self.carry_out_request(&lease, turn);
            }
            (Renewed::Rejected, _) => self.lose(Loss::Rejected, turn),
            (Renewed::Extended | Renewed::Stale | Renewed::Retry, _) => {}
        }
    }

    /// Handles a read while holding a claim. A read that does not show the claim only triggers a
    /// renewal, because a majority read may be older than the claim. Only a rejected renewal ends
    /// it.
    pub(super) fn leader_read(&mut self, found: Found, turn: &mut Turn<'_>) {
        let Some(tenure) = self.state.tenure() else {
            return;
        };
        let known = match &found {
            Found::Lease(lease) => {
                let mine = lease
                    .holder
                    .as_ref()
                    .is_some_and(|h| h.claim == tenure.claim);
                if mine {
                    self.carry_out_request(lease, turn);
                }
                mine && self.state.tenure().is_some_and(|t| t.sent(lease.revision))
            }
            Found::Missing | Found::Foreign(_) => false,
        };
        if let (false, Some(tenure)) = (known, self.state.tenure_mut()) {
            tenure.hurry();
        }
    }

    /// Returns why the document asks the leading claim to step down, if it does, and the
    /// reservation of a transfer.
    pub(super) fn demand(&self, lease: &Lease) -> Option<(Reason, Option<Reservation>)> {
        let State::Leading(tenure) = &self.state else {
            return None;
        };
        if lease.paused {
            return Some((Reason::Paused, None));
        }
        let request = lease.request.as_ref();
        let request = request.filter(|r| r.token == tenure.token)?;
        match &request.kind {
            RequestKind::StepDown => Some((Reason::Requested, None)),
            RequestKind::Transfer(to) if to.identity == self.me.identity => None,
            RequestKind::Transfer(to) => Some((Reason::Transferred, Some(to.clone()))),
        }
    }

    pub(super) fn carry_out_request(&mut self, lease: &Lease, turn: &mut Turn<'_>) {
        if let State::Leading(tenure) = &self.state {
            let notice = self.publication.report_request(lease, tenure.token);
            self.outbox.extend(notice.map(Effect::Notice));
        }
        if let Some((reason, reserved_for)) = self.demand(lease) {
            self.stop(reason, reserved_for, turn);
        }
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
                let delay = self.drain_time();
                self.publication.set_reason(reason);
                self.outbox.push(Effect::Demote);
                self.outbox.extend(self.workload.stop());
                self.state = State::Stopping(Stopping {
                    reason,
                    reserved_for,
                    files: Files::Asked {
                        until: turn.now + DEMOTE_WAIT,
                    },
                    label_until: None,
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

    pub(super) fn demoted(&mut self, shown: bool, label_pending: bool, now: BootTime) {
        if let State::Stopping(stopping) = &mut self.state {
            if let Files::Asked { until } = stopping.files {
                stopping.label_until = label_pending.then_some(until);
            }
            if shown && stopping.files != Files::Demoted {
                // Readers of the file can notice from now on.
                stopping.drained_at = stopping.drained_at.max(now + stopping.delay);
            }
            stopping.files = match stopping.files {
                Files::Asked { .. } if !shown => Files::Stuck,
                // A late demotion counts too, because the old file can no longer be read.
                Files::Asked { .. } | Files::Stuck if shown => Files::Demoted,
                unchanged @ (Files::Asked { .. } | Files::Stuck | Files::Demoted) => unchanged,
            };
        }
    }

    pub(super) fn label_demoted(&mut self) {
        if let State::Stopping(stopping) = &mut self.state {
            stopping.label_until = None;
        }
    }

    /// Reports, once, that the release must wait for readers of a stuck file.
    fn report_stuck_files(&mut self, now: BootTime) {
        if let State::Stopping(stopping) = &mut self.state
            && stopping.files == Files::Stuck
            && !std::mem::replace(&mut stopping.stuck_reported, true)
        {
            let wait = stopping.published_until.since(now);
            self.outbox.notice(Notice::NotDemoted { wait });
        }
    }

    /// Ends the claim and sends its release, after the workload is gone (I6).
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
        self.cool_down_if_asked(reason, tenure.token, turn.now);
        let ended = self.end(&tenure, reason, reserved_for);
        let stuck = files != Files::Demoted && published_until > turn.now;
        if let (true, Some(shutdown)) = (stuck, self.shutdown) {
            self.shutdown = Some(Shutdown {
                keep: true,
                ..shutdown
            });
        } else {
            self.release(&ended, turn);
        }
    }

    /// Ends the claim if its deadline has passed, regardless of everything else in progress.
    pub(super) fn expire(&mut self, turn: &mut Turn<'_>) {
        if self
            .state
            .tenure()
            .is_some_and(|t| t.valid_until() <= turn.now)
        {
            self.lose(Loss::Deadline, turn);
        }
        self.waits.expire(turn.now);
    }

    /// Ends the claim after a loss of leadership. The claim never leads again.
    pub(super) fn lose(&mut self, loss: Loss, turn: &mut Turn<'_>) {
        let state = std::mem::replace(&mut self.state, State::Contending(Contending::default()));
        let (tenure, reserved_for, notice) = match state {
            State::Leading(tenure) => (tenure, None, None),
            // A requested cooldown applies even if the drain did not finish.
            State::Stopping(stopping) => {
                self.cool_down_if_asked(stopping.reason, stopping.tenure.token, turn.now);
                let notice = (stopping.noticed_at(turn.now), stopping.shown_until());
                (stopping.tenure, stopping.reserved_for, Some(notice))
            }
            State::Contending(_) | State::Exited => {
                self.state = state;
                return;
            }
        };
        let drain = DrainAfterLoss::begin(&tenure, notice, self.drain_time(), turn.now);
        let order = self.workload.kill(&tenure, drain, turn.now);
        self.outbox.extend(order);
        match loss {
            // The claim is released too, so that the lease is free early when the store recovers.
            // The release waits while the workload may not have noticed the loss (I6).
            Loss::Deadline => {
                self.publication.set_reason(Reason::Deadline);
                self.back_off_after_losses(tenure.token, turn);
                let ended = self.end(&tenure, Reason::Deadline, reserved_for);
                #[cfg(proof)]
                if planted!(RenewedAfterDeadline) {
                    self.claims.add_pending(self.revived(&ended));
                    return self.reads.fall_behind(turn.now);
                }
                if self.workload.runs() || self.release_from() > turn.now {
                    self.claims.add_ended(ended);
                    self.reads.fall_behind(turn.now);
                } else {
                    self.release(&ended, turn);
                }
            }
            // No release: a forked machine may lead with the same claim, and the release would
            // depose it.
            Loss::Rejected => {
                self.publication.set_reason(Reason::Rejected);
                // A process on a cloned directory may lead with this claim, so the record no longer
                // proves anything to the next process.
                self.record(None);
                self.state = State::Contending(Contending::checking(tenure.claim, tenure.chain()));
                self.reads.fall_behind(turn.now);
            }
            // The lease expires by itself. The release follows only if the workload is confirmed
            // gone before that (I6).
            Loss::WorkloadStuck => {
                self.publication.set_reason(Reason::WorkloadStuck);
                let ended = self.end(&tenure, Reason::WorkloadStuck, reserved_for);
                self.claims.add_ended(ended);
                self.reads.fall_behind(turn.now);
            }
            // Nothing to release, because the document that named this claim is gone.
            Loss::StoreRolledBack => self.publication.set_reason(Reason::StoreRolledBack),
        }
    }

    /// Starts the cooldown if the step-down was requested. After a step-down for its workload's
    /// health, a candidate stays out only until the workload is healthy again. A leader that gave
    /// way to a preferred standby contends again after the reservation.
    fn cool_down_if_asked(&mut self, reason: Reason, token: Token, now: BootTime) {
        let asked = matches!(reason, Reason::Requested | Reason::Transferred);
        if asked && !self.registration.preference.gave_way() {
            self.cool_down(token, now);
        }
    }

    /// Lets others go first after a second loss by deadline within the window.
    fn back_off_after_losses(&mut self, token: Token, turn: &mut Turn<'_>) {
        if self.waits.lost_by_deadline(turn.now) {
            self.cool_down(token, turn.now);
            let wait = self.me.timings().lease_duration();
            self.outbox.notice(Notice::BackingOff { wait });
        }
    }
}

impl Stopping {
    pub(super) fn tenure(&self) -> &Tenure {
        &self.tenure
    }

    /// Lets the workload notice for `delay`, and until `until` at the latest.
    pub(super) fn shorten_drain(&mut self, until: BootTime, delay: Duration) {
        self.drained_at = self.drained_at.min(until);
        self.delay = self.delay.min(delay);
    }

    /// Returns the instant at which the workload has noticed if leadership is lost at `now`.
    fn noticed_at(&self, now: BootTime) -> BootTime {
        match self.files {
            Files::Demoted => self.drained_at,
            Files::Asked { .. } | Files::Stuck => {
                let until = now.max(self.published_until);
                self.drained_at.max(until + self.delay)
            }
        }
    }

    /// Returns when the last status file ceases to say "leader".
    fn shown_until(&self) -> BootTime {
        match self.files {
            Files::Demoted => BootTime::default(),
            Files::Asked { .. } | Files::Stuck => self.published_until,
        }
    }

    /// Returns the instant of the next check, and true if the release is due.
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
        // A reader of a stuck file trusts it until the deadline that it names, and notices within
        // the delay. A process that exits does not wait for that reader; it leaves the lease to
        // expire.
        let at = match self.files {
            Files::Stuck if !shutting_down => {
                (self.drained_at).max(self.published_until + self.delay)
            }
            Files::Asked { .. } | Files::Demoted | Files::Stuck => self.drained_at,
        };
        let at = at.max(self.label_until.unwrap_or_default());
        if at > now {
            (Some(at), false)
        } else {
            (None, true)
        }
    }
}
