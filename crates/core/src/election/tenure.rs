//! One claim while it leads: its authority and its renewals. A tenure never reads the document.

use std::time::Duration;

use super::contend::Acquired;
use super::{
    BootTime, CallId, Claim, Found, Lease, Operation, Outcome, Revision, Timings, Token, WallMillis,
};
use crate::claim::{IN_FLIGHT_MAX, SentWrites, Turn, WriteState};

/// Maximum number of unresolved renewals in the filter. With the default durations, a leader sends
/// at most about 20 renewals before its deadline. If the oldest renewal is dropped, leadership may
/// end, but a second leader cannot arise.
const RENEWALS_MAX: usize = 256;

/// Maximum length of a slot. Leaders send renewals at the beginning of a slot, so that the servers
/// replicate the renewals of many leases in one batch.
const SLOT: Duration = Duration::from_millis(250);
/// A renewal is sent early by at most 1/1024 of the interval, to reach the beginning of its slot.
const SLOT_STEP_PARTS: u32 = 1024;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Tenure {
    pub(super) claim: Claim,
    pub(super) token: Token,
    /// The durations at the acquisition. A reload changes only the durations of the next claim.
    pub(super) timings: Timings,
    pub(super) acquired_at: WallMillis,
    /// Instant at which the last acknowledged renewal, or the acquisition, was sent (I2).
    pub(super) renewed_at: BootTime,
    acknowledged: Revision,
    renewals: SentWrites<(), RENEWALS_MAX, 0>,
    renewal_due: BootTime,
    urgent: bool,
    shared_clock_offset: Option<Duration>,
}

pub(super) enum RenewalReply {
    Extended(Lease),
    Rejected,
    Nothing,
}

impl Tenure {
    /// Begins a tenure with the acknowledged write that acquired the lease. Returns `None` if the
    /// reply to this write shows no holder.
    pub(super) fn begin(
        acquired: &Acquired,
        shared_clock_offset: Option<Duration>,
    ) -> Option<Self> {
        let (attempt, sent) = (&acquired.attempt, acquired.sent);
        let timings = attempt.timings;
        let mut tenure = Self {
            claim: attempt.claim,
            token: attempt.token,
            timings,
            acquired_at: acquired.lease.holder.as_ref()?.acquired_at,
            renewed_at: sent,
            acknowledged: acquired.revision,
            renewals: SentWrites::new(),
            renewal_due: sent,
            urgent: false,
            shared_clock_offset,
        };
        tenure.renewal_due = tenure.renewal_after(sent);
        Some(tenure)
    }

    pub(super) fn valid_until(&self) -> BootTime {
        self.renewed_at + self.timings.renew_deadline()
    }

    /// Returns the earliest instant at which other candidates consider this claim expired.
    pub(super) fn expires_at(&self) -> BootTime {
        self.renewed_at + self.timings.lease_duration()
    }

    pub(super) fn chain(&self) -> Vec<Revision> {
        let sent = self.renewals.revisions();
        std::iter::once(self.acknowledged).chain(sent).collect()
    }

    pub(super) fn holds(&self, lease: &Lease) -> bool {
        lease.claim() == Some(self.claim)
    }

    pub(super) fn sent(&self, revision: Revision) -> bool {
        self.acknowledged == revision || self.renewals.carried(revision)
    }

    #[cfg(proof)]
    pub(super) fn call_of(&self, revision: Revision) -> Option<CallId> {
        let sent = self.renewals.iter().find(|r| r.revision == revision);
        sent.map(|r| r.call)
    }

    pub(super) fn hurry(&mut self) {
        self.urgent = true;
    }

    pub(super) fn next_renewal(&self) -> Option<BootTime> {
        let in_flight = self.renewals.in_flight();
        if self.urgent && in_flight < IN_FLIGHT_MAX {
            Some(BootTime::default())
        } else {
            (in_flight == 0).then_some(self.renewal_due)
        }
    }

    pub(super) fn renew_if_due(&mut self, turn: &mut Turn<'_>) {
        if self.next_renewal().is_none_or(|due| due > turn.now) {
            return;
        }
        let fresh = Revision::random(turn.random);
        let revision = planted!(RevisionKept, self.acknowledged, fresh);
        let call = turn.effects.send(Operation::Renew {
            claim: self.claim,
            revision,
            chain: self.chain(),
        });
        self.renewals.send(call, (), revision, turn.now);
        self.renewal_due = self.renewal_after(turn.now);
        self.urgent = false;
    }

    /// Returns the instant of the next renewal: an interval after `sent`, or a little earlier to
    /// move the renewals towards the beginning of their slot.
    fn renewal_after(&self, sent: BootTime) -> BootTime {
        let interval = self.timings.renew_interval();
        let due = sent + interval;
        let Some(offset) = self.shared_clock_offset else {
            return due;
        };
        let slots = interval.as_nanos().div_ceil(SLOT.as_nanos());
        let slot = interval.as_nanos() / slots;
        let late = (u128::from(due.as_nanos()) + offset.as_nanos()) % slot;
        let late = Duration::from_nanos(u64::try_from(late).unwrap_or_default());
        due - late.min(interval / SLOT_STEP_PARTS)
    }

    /// Handles the reply to a renewal, even a late reply. A failed renewal is repeated at
    /// `retry_at`.
    pub(super) fn reply(
        &mut self,
        call: CallId,
        outcome: Outcome,
        retry_at: BootTime,
        now: BootTime,
    ) -> RenewalReply {
        // The call is not a renewal, or precedes the acknowledged renewal and can no longer match.
        if self.renewals.get(call).is_none() {
            return RenewalReply::Nothing;
        }
        match outcome {
            Outcome::Applied(Found::Lease(lease)) if self.holds(&lease) => {
                self.applied(call);
                if planted!(RenewalFromReply) {
                    self.renewed_at = now;
                }
                return RenewalReply::Extended(lease);
            }
            // The reply to a renewal shows that the document is now foreign. The reply to a read
            // would not prove this, because the read may be older than this claim.
            Outcome::Applied(Found::Foreign(_)) => return RenewalReply::Rejected,
            Outcome::Rejected if self.renewals.is_newest(call) => return RenewalReply::Rejected,
            // A later renewal may have been applied first, so the later outcome decides.
            Outcome::Rejected => self.renewals.remove(call),
            Outcome::Unknown if planted!(UnknownAsApplied) => self.applied(call),
            // A failure or an unknown outcome does not extend authority (I7).
            Outcome::Failed => self.retry(call, false, retry_at),
            Outcome::Applied(_) | Outcome::PrimaryOnly | Outcome::Unknown => {
                self.retry(call, !planted!(UnknownAsFailed), retry_at);
            }
        }
        RenewalReply::Nothing
    }

    pub(super) fn applied(&mut self, call: CallId) {
        // The renewal's revision was stored, so earlier renewals can no longer match.
        if let Some(renewal) = self.renewals.remove_until(call) {
            self.acknowledged = renewal.revision;
            self.renewed_at = self.renewed_at.max(renewal.sent);
        }
    }

    fn retry(&mut self, call: CallId, sent: bool, retry_at: BootTime) {
        // The late failure of an abandoned renewal must not postpone the retry.
        let renewal = self.renewals.get(call);
        if renewal.is_some_and(|it| it.state == WriteState::Awaited) {
            self.renewal_due = retry_at;
        }
        if sent {
            self.renewals.settle(call, WriteState::Open);
        } else {
            self.renewals.remove(call);
        }
    }
}
