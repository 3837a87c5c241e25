//! One claim while it leads: its authority and its renewals.
//!
//! A tenure never reads the document: whoever holds it tells it what became
//! of the renewals that it sent.

use super::effect::CallId;
use super::lease::{Claim, Revision, Token, WallMillis};
use super::time::BootTime;
use super::timings::Timings;

/// Unresolved renewals that are kept for the filter. A claim sends one per
/// `retry_interval` at the fastest; at the defaults 18 fit before the deadline.
/// Beyond the bound the oldest is forgotten, which can cost the leadership but
/// never doubles it.
const RENEWALS_MAX: usize = 256;

/// Renewals without an answer at a time: one, and one beside it when the
/// primary changed.
const IN_FLIGHT_MAX: usize = 2;

/// A claim with authority.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Tenure {
    pub(super) claim: Claim,
    pub(super) token: Token,
    /// Fixed at the acquisition; a reload changes them at the next one.
    pub(super) timings: Timings,
    pub(super) acquired_at: WallMillis,
    /// When the last acknowledged renewal, or the acquisition, was sent (I2).
    pub(super) renewed_at: BootTime,
    acknowledged: Revision,
    /// Sent after the acknowledged one and not resolved, oldest first.
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

/// What a renewal's outcome means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Renewed {
    /// Not one of mine, or overtaken by a later one: means nothing.
    Stale,
    /// Authority is extended.
    Extended,
    /// Another attempt is to come.
    Retry,
    /// The store does not know this claim any more.
    Rejected,
}

impl Tenure {
    /// Begins with an acknowledged write that was sent at `sent`.
    pub(super) fn begin(
        claim: Claim,
        token: Token,
        revision: Revision,
        acquired_at: WallMillis,
        sent: BootTime,
        timings: Timings,
    ) -> Self {
        Self {
            claim,
            token,
            timings,
            acquired_at,
            renewed_at: sent,
            acknowledged: revision,
            renewals: Vec::new(),
            renewal_due: sent + timings.renew_interval(),
            urgent: false,
        }
    }

    /// The end of authority: counted from before the acknowledged write was sent (I2).
    pub(super) fn valid_until(&self) -> BootTime {
        self.renewed_at + self.timings.renew_deadline()
    }

    /// The revisions of this claim that may be stored.
    pub(super) fn chain(&self) -> Vec<Revision> {
        let sent = self.renewals.iter().map(|r| r.revision);
        std::iter::once(self.acknowledged).chain(sent).collect()
    }

    /// Whether this claim sent `revision` and it may still be stored.
    pub(super) fn sent(&self, revision: Revision) -> bool {
        self.acknowledged == revision || self.renewals.iter().any(|r| r.revision == revision)
    }

    /// Whether `call` is a renewal of this claim whose fate is open.
    pub(super) fn awaits(&self, call: CallId) -> bool {
        self.renewals.iter().any(|r| r.call == call)
    }

    /// The call that sent a revision.
    #[cfg(test)]
    pub(super) fn call_of(&self, revision: Revision) -> Option<CallId> {
        let sent = self.renewals.iter().find(|r| r.revision == revision);
        sent.map(|r| r.call)
    }

    /// Renew as soon as may be, also beside an attempt that hangs.
    pub(super) fn hurry(&mut self) {
        self.urgent = true;
    }

    /// When the next renewal is to be sent; `None` while an answer is awaited.
    pub(super) fn next_renewal(&self) -> Option<BootTime> {
        let in_flight = self.renewals.iter().filter(|r| !r.answered).count();
        if planted!(HungRenewalAwaited) && !self.renewals.is_empty() {
            return None;
        }
        if self.urgent && (in_flight < IN_FLIGHT_MAX || planted!(RenewalsUnbounded)) {
            Some(BootTime::default())
        } else {
            (in_flight == 0).then_some(self.renewal_due)
        }
    }

    /// Notes a renewal that is sent now; returns the chain for its filter.
    pub(super) fn send(
        &mut self,
        call: CallId,
        revision: Revision,
        now: BootTime,
    ) -> Vec<Revision> {
        let chain = self.chain();
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
        chain
    }

    /// A renewal was acknowledged, maybe late.
    pub(super) fn applied(&mut self, call: CallId) -> Renewed {
        let Some(index) = self.renewals.iter().position(|r| r.call == call) else {
            return Renewed::Stale;
        };
        // The stored revision was this one: whatever was sent before it can
        // match no more.
        let overtaken = if planted!(RenewalsOutOfOrder) {
            index
        } else {
            0
        };
        let renewal = self.renewals.drain(overtaken..=index).next_back();
        if let Some(renewal) = renewal {
            self.acknowledged = renewal.revision;
            self.renewed_at = self.renewed_at.max(renewal.sent);
        }
        Renewed::Extended
    }

    /// A renewal did not match.
    pub(super) fn rejected(&mut self, call: CallId) -> Renewed {
        match self.renewals.iter().position(|r| r.call == call) {
            None => Renewed::Stale,
            Some(index)
                if index + 1 < self.renewals.len() && !planted!(OvertakenRejectionObeyed) =>
            {
                // A later one may have overtaken it: that one will tell.
                self.renewals.remove(index);
                Renewed::Stale
            }
            Some(_) => Renewed::Rejected,
        }
    }

    /// A renewal was not sent (`sent` false) or its outcome is not known:
    /// neither extends anything (I7). Tries again at `retry_at`.
    pub(super) fn unanswered(&mut self, call: CallId, sent: bool, retry_at: BootTime) -> Renewed {
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
