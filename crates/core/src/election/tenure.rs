//! One claim while it leads: its authority and its renewals.
//!
//! A tenure never reads the document. It receives the outcomes of its renewals, and only compares
//! the claim in the document of a reply with its own claim.

use super::claims::{Attempt, EndedClaim};
use super::effect::{CallId, HistoryEntry, Operation};
use super::input::{Found, Outcome};
use super::lease::{Claim, Identity, Lease, Reservation, Revision, Token, WallMillis};
use super::status::Reason;
use super::time::BootTime;
use super::timings::Timings;
use crate::claim::{IN_FLIGHT_MAX, SentWrites, Turn, WriteState};

/// Maximum number of unresolved renewals kept for the filter. A claim sends at most one per
/// `retry_interval`; at the defaults 18 fit before the deadline. Beyond the limit the oldest is
/// dropped, which can end leadership but never causes a second leader.
const RENEWALS_MAX: usize = 256;

/// One term of leadership: a claim from its acquisition to its end.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Tenure {
    pub(super) claim: Claim,
    pub(super) token: Token,
    /// Fixed at the acquisition; a reload changes them for the next one.
    pub(super) timings: Timings,
    pub(super) acquired_at: WallMillis,
    /// Instant at which the last acknowledged renewal, or the acquisition, was sent (I2).
    pub(super) renewed_at: BootTime,
    acknowledged: Revision,
    /// Unresolved renewals that were sent after the acknowledged write, oldest first.
    renewals: SentWrites<(), RENEWALS_MAX, 0>,
    renewal_due: BootTime,
    urgent: bool,
}

pub(super) enum RenewalReply {
    /// Authority is extended; the store has this document.
    Extended(Lease),
    /// The store no longer has this claim.
    Rejected,
    Nothing,
}

impl Tenure {
    /// Creates a tenure from an acknowledged write that was sent at `sent`; `None` if its reply
    /// shows no holder.
    pub(super) fn begin(
        attempt: &Attempt,
        revision: Revision,
        sent: BootTime,
        lease: &Lease,
    ) -> Option<Self> {
        let timings = attempt.timings;
        Some(Self {
            claim: attempt.claim,
            token: attempt.token,
            timings,
            acquired_at: lease.holder.as_ref()?.acquired_at,
            renewed_at: sent,
            acknowledged: revision,
            renewals: SentWrites::new(),
            renewal_due: sent + timings.renew_interval(),
            urgent: false,
        })
    }

    /// Returns the ended claim that remains of this tenure.
    pub(super) fn end(
        &self,
        identity: &Identity,
        reason: Reason,
        reserved_for: Option<Reservation>,
    ) -> EndedClaim {
        EndedClaim {
            claim: self.claim,
            chain: self.chain(),
            entry: HistoryEntry {
                token: self.token,
                identity: identity.clone(),
                acquired_at: self.acquired_at,
                reason,
            },
            reserved_for,
        }
    }

    /// Returns the end of authority, counted from before the acknowledged write was sent (I2).
    pub(super) fn valid_until(&self) -> BootTime {
        self.renewed_at + self.timings.renew_deadline()
    }

    /// Returns the earliest instant at which other candidates consider this claim expired.
    pub(super) fn expires_at(&self) -> BootTime {
        self.renewed_at + self.timings.lease_duration()
    }

    /// Returns the revisions of this claim that may be stored.
    pub(super) fn chain(&self) -> Vec<Revision> {
        let sent = self.renewals.revisions();
        std::iter::once(self.acknowledged).chain(sent).collect()
    }

    pub(super) fn holds(&self, lease: &Lease) -> bool {
        lease.holder.as_ref().is_some_and(|h| h.claim == self.claim)
    }

    /// Returns true if this claim sent `revision` and it may still be stored.
    pub(super) fn sent(&self, revision: Revision) -> bool {
        self.acknowledged == revision || self.renewals.carried(revision)
    }

    /// Returns the call that sent a revision.
    #[cfg(proof)]
    pub(super) fn call_of(&self, revision: Revision) -> Option<CallId> {
        let sent = self.renewals.iter().find(|r| r.revision == revision);
        sent.map(|r| r.call)
    }

    /// Requests a renewal as soon as possible, even while another attempt hangs.
    pub(super) fn hurry(&mut self) {
        self.urgent = true;
    }

    /// Returns the instant of the next renewal; `None` while an answer is awaited.
    pub(super) fn next_renewal(&self) -> Option<BootTime> {
        let in_flight = self.renewals.in_flight();
        if self.urgent && in_flight < IN_FLIGHT_MAX {
            Some(BootTime::default())
        } else {
            (in_flight == 0).then_some(self.renewal_due)
        }
    }

    /// Sends a renewal if one is due.
    pub(super) fn renew_if_due(&mut self, turn: &mut Turn<'_>) {
        if self.next_renewal().is_none_or(|due| due > turn.now) {
            return;
        }
        let mut revision = Revision::random(turn.random);
        if planted!(RevisionKept) {
            revision = self.acknowledged;
        }
        let call = turn.effects.send(Operation::Renew {
            claim: self.claim,
            revision,
            chain: self.chain(),
        });
        self.renewals.send(call, (), revision, turn.now);
        self.renewal_due = turn.now + self.timings.renew_interval();
        self.urgent = false;
    }

    /// Handles the reply to a renewal, possibly late or out of order. The next attempt after a
    /// failure is at `retry_at`.
    pub(super) fn reply(
        &mut self,
        call: CallId,
        outcome: Outcome,
        retry_at: BootTime,
        now: BootTime,
    ) -> RenewalReply {
        // Another call, or a renewal before the acknowledged one, which can no longer match.
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
            // The renewal matched, but the document is now foreign and must not be changed again.
            // Reads sent before this claim led prove nothing about it, so only a renewal's reply
            // counts.
            Outcome::Applied(Found::Foreign(_)) => return RenewalReply::Rejected,
            Outcome::Rejected if self.renewals.is_newest(call) => return RenewalReply::Rejected,
            // A later renewal may have overtaken this one, and its outcome decides.
            Outcome::Rejected => self.renewals.remove(call),
            Outcome::Unknown if planted!(UnknownAsApplied) => self.applied(call),
            // Neither a failure nor an unknown outcome extends authority (I7).
            Outcome::Failed => self.retry(call, false, retry_at),
            Outcome::Applied(_) | Outcome::Unknown => {
                self.retry(call, !planted!(UnknownAsFailed), retry_at);
            }
        }
        RenewalReply::Nothing
    }

    /// Handles an acknowledged renewal, possibly late.
    pub(super) fn applied(&mut self, call: CallId) {
        // This was the stored revision, so no renewal that was sent before can match any longer.
        if let Some(renewal) = self.renewals.remove_until(call) {
            self.acknowledged = renewal.revision;
            self.renewed_at = self.renewed_at.max(renewal.sent);
        }
    }

    /// Schedules the next attempt at `retry_at`, after a renewal that may have been applied if it
    /// was `sent`.
    fn retry(&mut self, call: CallId, sent: bool, retry_at: BootTime) {
        if sent {
            self.renewals.settle(call, WriteState::Open);
        } else {
            self.renewals.remove(call);
        }
        self.renewal_due = retry_at;
    }
}
