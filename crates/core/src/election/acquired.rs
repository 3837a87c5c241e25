//! Decides whether the claim of an acknowledged acquisition leads.
//!
//! A claim that must not lead has ended, and is freed like any other ended claim.

use super::claims::{Attempt, Overtaken};
use super::contend::Doing;
use super::decide::Predecessor;
use super::input::Found;
use super::lease::{Lease, Revision};
use super::status::Reason;
use super::tenure::Tenure;
use super::time::BootTime;
use super::{Effect, Election, State, Turn};

impl Election {
    /// Records a document that a reply or event showed while acquisitions are open.
    pub(super) fn shown_while_acquiring(&mut self, lease: &Lease, is_reply: bool) {
        self.claims.shown(lease, is_reply);
        if let Some(Doing::Acquiring { attempt, .. } | Doing::Adopting { attempt, .. }) =
            self.doing()
        {
            attempt.shown(lease, is_reply);
        }
    }

    /// Cancels the acquisitions that may still succeed, because a step-down was requested. Their
    /// claims never lead, and the cooldown after a requested step-down begins.
    pub(super) fn cancel_acquisitions(&mut self, now: BootTime) {
        let mut open = self.claims.cancel();
        if let Some(Doing::Acquiring { attempt, .. } | Doing::Adopting { attempt, .. }) =
            self.doing()
        {
            attempt.cancelled = true;
            open = true;
        }
        if open {
            // The cooldown ends early when another claim follows the document as last seen.
            self.cool_down(self.view.document_token().unwrap_or_default(), now);
        }
    }

    /// Begins a claim after an acknowledged write that was sent at `sent`.
    pub(super) fn begin(
        &mut self,
        mut attempt: Attempt,
        revision: Revision,
        sent: BootTime,
        lease: Lease,
        from: Predecessor,
        turn: &mut Turn<'_>,
    ) {
        if planted!(RollbackForgottenAtBegin) {
            attempt.overtaken = None;
            self.waits.quarantine_until(None);
        }
        let Some(holder) = lease.holder.clone() else {
            return;
        };
        let tenure = Tenure::begin(
            attempt.claim,
            attempt.token,
            revision,
            holder.acquired_at,
            sent,
            attempt.timings,
        );
        // Every other pending or ended claim waited for a revision that is gone now.
        self.claims.clear();
        if lease.token < attempt.token {
            // The token was lowered since. Other candidates do not know this token and would use it
            // again.
            self.view.note_used(attempt.token);
            self.store_went_back(attempt.token, Some(lease.token), turn);
            self.observe(Found::Lease(lease), turn);
            return;
        }
        match attempt.overtaken {
            Some(Overtaken::InAnotherHistory) => {
                self.store_went_back(attempt.token, Some(lease.token), turn);
                self.observe(Found::Lease(lease), turn);
                return;
            }
            // The other claim may lead. If an event showed it, no read can prove or refute that.
            Some(Overtaken::ByToken(_)) => {
                let until = turn.now + self.view.lease_longest();
                self.waits.quarantine_until(Some(until));
                self.observe_written(Found::Lease(lease), turn);
            }
            None => self.observe(Found::Lease(lease), turn),
        }
        let asked = self.shutdown.map(|_| Reason::Shutdown);
        let asked = asked.or(self.waits.is_unhealthy().then_some(Reason::Unhealthy));
        let asked = asked.or(attempt.cancelled.then_some(Reason::Requested));
        let rolled_back = attempt.overtaken.is_some() || self.waits.quarantine().is_some();
        let barred = asked.or(rolled_back.then_some(Reason::StoreRolledBack));
        if barred.is_some() || tenure.valid_until() <= turn.now {
            let reason = barred.unwrap_or(Reason::Deadline);
            let ended = self.end(&tenure, reason, None);
            self.claims.add_ended(ended);
            return;
        }
        let (reason, notice) = from.succeeded(turn.now);
        self.waits.begin_to_lead();
        self.outbox.extend(notice.map(Effect::Notice));
        self.claims.forget_predecessor();
        self.registration.end();
        self.publication.begin_to_lead();
        self.reads.begin_to_lead();
        self.publication.set_reason(reason);
        self.outbox.extend(self.workload.start(&tenure, turn.now));
        self.state = State::Leading(tenure);
        // An acquisition does not match a paused lease; an adoption can.
        if let Some(lease) = self.view.lease().cloned() {
            self.carry_out_request(&lease, turn);
        }
    }
}
