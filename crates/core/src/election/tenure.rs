//! One claim while it leads: its authority and its renewals.
//!
//! A tenure never reads the document. It is passed the outcomes of the renewals that it sent, and
//! decides by a reply's document only whether it still names the claim.

use super::claims::{Attempt, EndedClaim};
use super::effect::Effects;
use super::effect::{CallId, HistoryEntry, Operation};
use super::input::{Found, Outcome};
use super::lease::{Claim, Identity, Lease, Reservation, Revision, Token, WallMillis};
use super::status::Reason;
use super::time::BootTime;
use super::timings::Timings;
use crate::claim::Turn;

/// Maximum number of unresolved renewals kept for the filter. A claim sends at most one per
/// `retry_interval`; at the defaults 18 fit before the deadline. Beyond the limit the oldest is
/// dropped, which can end leadership but never causes a second leader.
const RENEWALS_MAX: usize = 256;

/// Maximum number of renewals in flight: one, plus a second one when the primary changed.
const IN_FLIGHT_MAX: usize = 2;

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
    renewals: Vec<Renewal>,
    renewal_due: BootTime,
    urgent: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Renewal {
    call: CallId,
    revision: Revision,
    sent: BootTime,
    answered: bool,
}

/// Meaning of the reply to a renewal.
pub(super) enum RenewalReply {
    /// Authority is extended; the store has this document.
    Extended(Lease),
    /// The store no longer has this claim.
    Rejected,
    Nothing,
}

/// Meaning of a renewal's outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Renewed {
    /// Not a renewal of this claim, or overtaken by a later one, so without effect.
    Stale,
    /// Authority is extended.
    Extended,
    /// Another attempt follows.
    Retry,
    /// The store no longer has this claim.
    Rejected,
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
            renewals: Vec::new(),
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
        let sent = self.renewals.iter().map(|r| r.revision);
        std::iter::once(self.acknowledged).chain(sent).collect()
    }

    pub(super) fn holds(&self, lease: &Lease) -> bool {
        lease.holder.as_ref().is_some_and(|h| h.claim == self.claim)
    }

    /// Returns true if this claim sent `revision` and it may still be stored.
    pub(super) fn sent(&self, revision: Revision) -> bool {
        self.acknowledged == revision || self.renewals.iter().any(|r| r.revision == revision)
    }

    /// Returns true if `call` is an unresolved renewal of this claim.
    fn awaits(&self, call: CallId) -> bool {
        self.renewals.iter().any(|r| r.call == call)
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
        let in_flight = self.renewals.iter().filter(|r| !r.answered).count();
        if self.urgent && in_flight < IN_FLIGHT_MAX {
            Some(BootTime::default())
        } else {
            (in_flight == 0).then_some(self.renewal_due)
        }
    }

    /// Sends a renewal if one is due.
    pub(super) fn renew_if_due(&mut self, outbox: &mut Effects, turn: &mut Turn<'_>) {
        if self.next_renewal().is_none_or(|due| due > turn.now) {
            return;
        }
        let mut revision = Revision::random(turn.random);
        if planted!(RevisionKept) {
            revision = self.acknowledged;
        }
        let call = outbox.send(Operation::Renew {
            claim: self.claim,
            revision,
            chain: self.chain(),
        });
        self.send(call, revision, turn.now);
    }

    /// Records a renewal that is sent now.
    fn send(&mut self, call: CallId, revision: Revision, now: BootTime) {
        if self.renewals.len() == RENEWALS_MAX {
            self.renewals.remove(0);
        }
        self.renewals.push(Renewal {
            call,
            revision,
            sent: now,
            answered: false,
        });
        self.renewal_due = now + self.timings.renew_interval();
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
        let (renewed, lease) = match outcome {
            Outcome::Applied(Found::Lease(lease)) if self.holds(&lease) => {
                (self.applied(call), Some(lease))
            }
            // The renewal matched, but the document is now foreign and must not be changed again.
            // Reads sent before this claim led prove nothing about it, so only a renewal's reply
            // counts.
            Outcome::Applied(Found::Foreign(_)) if self.awaits(call) => (Renewed::Rejected, None),
            Outcome::Rejected => (self.rejected(call), None),
            Outcome::Failed => (self.unanswered(call, false, retry_at), None),
            Outcome::Unknown if planted!(UnknownAsApplied) => (self.applied(call), None),
            Outcome::Applied(_) | Outcome::Unknown => {
                let maybe_sent = !planted!(UnknownAsFailed);
                (self.unanswered(call, maybe_sent, retry_at), None)
            }
        };
        match (renewed, lease) {
            (Renewed::Extended, Some(lease)) => {
                if planted!(RenewalFromReply) {
                    self.renewed_at = now;
                }
                RenewalReply::Extended(lease)
            }
            (Renewed::Rejected, _) => RenewalReply::Rejected,
            (Renewed::Extended | Renewed::Stale | Renewed::Retry, _) => RenewalReply::Nothing,
        }
    }

    /// Handles an acknowledged renewal, possibly late.
    pub(super) fn applied(&mut self, call: CallId) -> Renewed {
        let Some(index) = self.renewals.iter().position(|r| r.call == call) else {
            return Renewed::Stale;
        };
        // This was the stored revision, so no renewal that was sent before can match any longer.
        let renewal = self.renewals.drain(..=index).next_back();
        if let Some(renewal) = renewal {
            self.acknowledged = renewal.revision;
            self.renewed_at = self.renewed_at.max(renewal.sent);
        }
        Renewed::Extended
    }

    /// Handles a renewal that did not match.
    fn rejected(&mut self, call: CallId) -> Renewed {
        match self.renewals.iter().position(|r| r.call == call) {
            None => Renewed::Stale,
            Some(index) if index + 1 < self.renewals.len() => {
                // A later renewal may have overtaken this one, and its outcome decides.
                self.renewals.remove(index);
                Renewed::Stale
            }
            Some(_) => Renewed::Rejected,
        }
    }

    /// Handles a renewal that was not sent (`sent` is false) or whose outcome is unknown. Neither
    /// extends authority (I7). Schedules the next attempt at `retry_at`.
    fn unanswered(&mut self, call: CallId, sent: bool, retry_at: BootTime) -> Renewed {
        let Some(index) = self.renewals.iter().position(|r| r.call == call) else {
            return Renewed::Stale;
        };
        if sent {
            self.renewals[index].answered = true;
        } else {
            self.renewals.remove(index);
        }
        self.renewal_due = retry_at;
        Renewed::Retry
    }
}
