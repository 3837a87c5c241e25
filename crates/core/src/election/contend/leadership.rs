use super::prefer::Preference;
use super::standby::head_start_of_standby;
use super::{Acquired, Contender};
use crate::claim::{ReadSchedule, Rollback, Turn};
use crate::election::claims::{EndedClaim, Overtaken, RejectedClaim};
use crate::election::state::{CauseOfLoss, LostClaim};
use crate::election::{
    BootTime, Effect, Found, HistoryEntry, Notice, Reason, Reservation, Stopping, Tenure,
};

pub(crate) enum AfterWrite {
    Leads(Tenure, Reason),
    StoreRolledBack,
    Nothing,
}

impl Contender {
    /// Begins a claim after an acknowledged write, or ends it if the candidate may not lead now.
    pub(super) fn begin(&mut self, mut acquired: Acquired, turn: &mut Turn<'_>) -> AfterWrite {
        if planted!(RollbackForgottenAtBegin) {
            acquired.attempt.overtaken = None;
            self.waits.quarantine = None;
        }
        let Some(tenure) = Tenure::begin(&acquired, self.me.shared_clock_offset) else {
            return AfterWrite::Nothing;
        };
        let (attempt, lease) = (acquired.attempt, acquired.lease);
        // This write replaced the document, so no other open claim can still be stored.
        self.claims.clear();
        // Without this record, the token could be used again after an operator lowered the
        // document's token.
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
            // The other claim may lead. If an event showed that claim, no read can prove that it
            // was never stored.
            let until = turn.now + self.view.marks.lease_longest;
            self.waits.quarantine = Some(until);
            self.observe_written(Found::Lease(lease), turn);
        } else {
            self.observe(Found::Lease(lease), turn);
        }
        let asked = self.shutdown.requested.then_some(Reason::Shutdown);
        let asked = asked.or(self.waits.unhealthy.then_some(Reason::Unhealthy));
        let asked = asked.or(attempt.cancelled.then_some(Reason::Requested));
        let rolled_back = attempt.overtaken.is_some() || self.waits.quarantine.is_some();
        let barred = asked.or(rolled_back.then_some(Reason::StoreRolledBack));
        if barred.is_some() || tenure.valid_until() <= turn.now {
            let reason = barred.unwrap_or(Reason::Deadline);
            self.claims.add_ended(self.end(&tenure, reason, None));
            return AfterWrite::Nothing;
        }
        let (reason, notice) = acquired.from.succeeded(turn.now);
        turn.effects.extend(notice.map(Effect::Notice));
        self.claims.exited = None;
        self.registration.begin_to_lead();
        self.preference = Preference::default();
        self.waits.begin_to_lead();
        // A read in flight is outdated, because the write's reply showed the document.
        self.reads.schedule = ReadSchedule::default();
        let order = self.workload.start(&tenure, turn.now);
        turn.effects.extend(order);
        AfterWrite::Leads(tenure, reason)
    }

    pub(super) fn end_stopped(
        &mut self,
        stopped: Stopping,
        loss: Option<Reason>,
        now: BootTime,
    ) -> EndedClaim {
        // Only a requested step-down needs a cooldown. An unhealthy candidate stays out until its
        // workload is healthy, and a leader that gave way waits for the end of the reservation.
        let asked = matches!(stopped.reason, Reason::Requested | Reason::Transferred);
        if asked && !self.preference.gave_way {
            self.cool_down(stopped.tenure.token, now);
        }
        let reason = loss.unwrap_or(stopped.reason);
        self.end(&stopped.tenure, reason, stopped.reserved_for)
    }

    /// Ends a claim. Without a `reservation`, the standby gets a head start, except after a pause.
    fn end(&self, tenure: &Tenure, reason: Reason, reservation: Option<Reservation>) -> EndedClaim {
        // While the lease is paused, no candidate may use a head start.
        let head_start = || (reason != Reason::Paused).then(|| head_start_of_standby(&self.view));
        EndedClaim {
            claim: tenure.claim,
            chain: tenure.chain(),
            entry: HistoryEntry {
                token: tenure.token,
                identity: self.me.identity.clone(),
                acquired_at: tenure.acquired_at,
                reason,
            },
            reserved_for: reservation.or_else(|| head_start().flatten()),
        }
    }

    pub(crate) fn lost(&mut self, cause: CauseOfLoss, lost: LostClaim, turn: &mut Turn<'_>) {
        let delay = self.drain_time();
        let order = self.workload.lose(&lost, delay, turn.now);
        turn.effects.extend(order);
        let reason = cause.reason();
        let ended = match lost {
            LostClaim::Leading(tenure) => self.end(&tenure, reason, None),
            LostClaim::Stopping(stopped) => self.end_stopped(stopped, Some(reason), turn.now),
        };
        match cause {
            // If the store recovers, releases the claim once the workload has had time to notice
            // (I6).
            CauseOfLoss::Deadline => {
                if self.waits.lost_by_deadline(turn.now) {
                    self.cool_down(ended.entry.token, turn.now);
                    let wait = self.me.timings().lease_duration();
                    turn.effects.notice(Notice::BackingOff { wait });
                }
                #[cfg(proof)]
                if planted!(RenewedAfterDeadline) {
                    let timings = self.me.timings();
                    let revived = crate::election::mutation::revived(&ended, timings, turn.now);
                    self.claims.add_pending(revived);
                    return self.reads.fall_behind(turn.now);
                }
                let release_from = self.release_from();
                if self.workload.runs() || release_from > turn.now {
                    self.claims.add_ended(ended);
                    self.reads.fall_behind(turn.now);
                } else {
                    self.release(&ended, turn);
                }
            }
            // Sends no release, because a release would end the leadership of a forked VM that
            // leads with this claim.
            CauseOfLoss::Rejected => {
                // Removes the claim from the record in the status directory. If the directory was
                // cloned, another process may lead with this claim.
                turn.effects.push(self.record.set(None, &self.view));
                self.checking = Some(RejectedClaim::of(ended));
                self.reads.fall_behind(turn.now);
            }
            // The claim is released only if the workload is confirmed gone before the lease expires
            // (I6).
            CauseOfLoss::WorkloadStuck => {
                self.claims.add_ended(ended);
                self.reads.fall_behind(turn.now);
            }
            // There is nothing to release, because the document that named this claim is gone.
            CauseOfLoss::StoreRolledBack => {}
        }
    }
}
