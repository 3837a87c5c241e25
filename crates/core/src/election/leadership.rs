//! How a leadership begins, and what remains of it for the candidate that contends again.
//!
//! A claim that must not lead has ended, and is freed like any other ended claim.

use super::claims::{EndedClaim, Overtaken, RejectedClaim};
use super::contend::Contender;
use super::effect::{Effect, Notice};
use super::input::Found;
use super::lease::{Reservation, Token};
use super::prefer::Preference;
use super::standby::head_start_of_standby;
use super::state::{CauseOfLoss, LostClaim};
use super::status::Reason;
use super::stopping::Stopped;
use super::supervise::WorkloadState;
use super::tenure::Tenure;
use super::time::BootTime;
use super::write::Acquired;
use crate::claim::{Rollback, Turn};

pub(super) enum AfterWrite {
    Leads(Tenure, Reason),
    StoreRolledBack,
    Nothing,
}

impl Contender {
    /// Begins a claim after an acknowledged write, unless something bars it from leading.
    pub(super) fn begin(
        &mut self,
        acquired: Acquired,
        shutting_down: bool,
        turn: &mut Turn<'_>,
    ) -> AfterWrite {
        let Acquired {
            mut attempt,
            revision,
            sent,
            lease,
            from,
        } = acquired;
        if planted!(RollbackForgottenAtBegin) {
            attempt.overtaken = None;
            self.waits.quarantine = None;
        }
        let Some(tenure) = Tenure::begin(&attempt, revision, sent, &lease) else {
            return AfterWrite::Nothing;
        };
        // Every other pending or ended claim waited for a revision that is gone now.
        self.claims.clear();
        // If the token was lowered since, other candidates do not know this token and would use it
        // again.
        self.view.marks.note_used(attempt.token);
        let another_history = attempt.overtaken == Some(Overtaken::InAnotherHistory);
        if lease.token < attempt.token || another_history {
            let rollback = Rollback {
                seen: attempt.token,
                found: Some(lease.token),
            };
            self.rolled_back(rollback, turn);
            self.observe(Found::Lease(lease), turn);
            return AfterWrite::StoreRolledBack;
        }
        if attempt.overtaken.is_some() {
            // The other claim may lead. If an event showed it, no read can prove or refute that.
            let until = turn.now + self.view.marks.lease_longest();
            self.waits.quarantine = Some(until);
            self.observe_written(Found::Lease(lease), turn);
        } else {
            self.observe(Found::Lease(lease), turn);
        }
        let asked = shutting_down.then_some(Reason::Shutdown);
        let asked = asked.or(self.waits.unhealthy.then_some(Reason::Unhealthy));
        let asked = asked.or(attempt.cancelled.then_some(Reason::Requested));
        let rolled_back = attempt.overtaken.is_some() || self.waits.quarantine.is_some();
        let barred = asked.or(rolled_back.then_some(Reason::StoreRolledBack));
        if barred.is_some() || tenure.valid_until() <= turn.now {
            let reason = barred.unwrap_or(Reason::Deadline);
            self.claims.add_ended(self.end(&tenure, reason, None));
            return AfterWrite::Nothing;
        }
        let (reason, notice) = from.succeeded(turn.now);
        turn.effects.extend(notice.map(Effect::Notice));
        self.claims.forget_predecessor();
        self.registration.end();
        self.preference = Preference::default();
        self.waits.begin_to_lead();
        self.reads.begin_to_lead();
        AfterWrite::Leads(tenure, reason)
    }

    /// Returns the ended claim that remains of a step-down, or of its `loss`.
    pub(super) fn end_stopped(
        &mut self,
        stopped: Stopped,
        loss: Option<Reason>,
        now: BootTime,
    ) -> EndedClaim {
        let tenure = stopped.tenure;
        self.cool_down_if_asked(stopped.reason, tenure.token, now);
        self.end(
            &tenure,
            loss.unwrap_or(stopped.reason),
            stopped.reserved_for,
        )
    }

    pub(super) fn end_lost(
        &mut self,
        lost: LostClaim,
        reason: Reason,
        now: BootTime,
    ) -> EndedClaim {
        match lost {
            LostClaim::Leading(tenure) => self.end(&tenure, reason, None),
            LostClaim::Stopping(stopped) => self.end_stopped(stopped, Some(reason), now),
        }
    }

    /// Returns the ended claim that remains of a tenure. Without another reservation, the standby
    /// gets a head start.
    pub(super) fn end(
        &self,
        tenure: &Tenure,
        reason: Reason,
        reserved_for: Option<Reservation>,
    ) -> EndedClaim {
        // While the lease is paused, no candidate may use a head start.
        let head_start = || (reason != Reason::Paused).then(|| head_start_of_standby(&self.view));
        let reserved_for = reserved_for.or_else(|| head_start().flatten());
        tenure.end(&self.me.identity, reason, reserved_for)
    }

    /// Contends again after a loss of leadership. The claim never leads again.
    pub(super) fn lost(
        &mut self,
        cause: CauseOfLoss,
        ended: EndedClaim,
        workload: &WorkloadState,
        turn: &mut Turn<'_>,
    ) {
        match cause {
            // The claim is released too, so that the lease is free early when the store recovers.
            // The release waits while the workload may not have noticed the loss (I6).
            CauseOfLoss::Deadline => {
                // Others go first after a second loss within some minutes.
                if self.waits.lost_by_deadline(turn.now) {
                    self.cool_down(ended.entry.token, turn.now);
                    let wait = self.me.timings().lease_duration();
                    turn.effects.notice(Notice::BackingOff { wait });
                }
                #[cfg(proof)]
                if planted!(RenewedAfterDeadline) {
                    let timings = self.me.timings();
                    let revived = super::mutation::revived(&ended, timings, turn.now);
                    self.claims.add_pending(revived);
                    return self.reads.fall_behind(turn.now);
                }
                let release_from = self.situation(workload).release_from();
                if workload.runs() || release_from > turn.now {
                    self.claims.add_ended(ended);
                    self.reads.fall_behind(turn.now);
                } else {
                    self.release(&ended, turn);
                }
            }
            // No release: a forked machine may lead with the same claim, and the release would
            // depose it.
            CauseOfLoss::Rejected => {
                self.check(RejectedClaim::of(ended), turn);
                self.reads.fall_behind(turn.now);
            }
            // The lease expires by itself. The release follows only if the workload is confirmed
            // gone before that (I6).
            CauseOfLoss::WorkloadStuck => {
                self.claims.add_ended(ended);
                self.reads.fall_behind(turn.now);
            }
            // Nothing to release, because the document that named this claim is gone.
            CauseOfLoss::StoreRolledBack => {}
        }
    }

    /// Starts the cooldown if the step-down was requested. After a step-down for its workload's
    /// health, a candidate stays out only until the workload is healthy again. A leader that gave
    /// way to a preferred standby contends again after the reservation.
    pub(super) fn cool_down_if_asked(&mut self, reason: Reason, token: Token, now: BootTime) {
        let asked = matches!(reason, Reason::Requested | Reason::Transferred);
        if asked && !self.preference.gave_way {
            self.cool_down(token, now);
        }
    }
}
