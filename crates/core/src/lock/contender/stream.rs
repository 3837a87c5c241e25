//! The change stream of the current claim.

use crate::claim::Outbox;
use crate::election::{CallId, Claim};
use crate::lock::effect::LockEffect;

/// The requested stream, and the grant that it reported.
#[derive(Debug, Clone, Default)]
pub(super) struct ClaimStream {
    pub(super) requested: bool,
    pub(super) open: bool,
    /// Number of calls sent when the stream was opened. Replies to these calls may be older than
    /// the events of the stream.
    opened_after: u64,
    /// Number of calls sent when the stream reported that the claim was granted, if it did.
    granted_after: Option<u64>,
}

impl ClaimStream {
    /// Requests a new stream of `claim`.
    pub(super) fn follow(&mut self, claim: Claim, outbox: &mut Outbox<LockEffect>) {
        self.requested = true;
        self.open = false;
        outbox.push(LockEffect::Watch(Some(claim)));
    }

    /// Ends the stream, and forgets what it reported.
    pub(super) fn close(&mut self, outbox: &mut Outbox<LockEffect>) {
        self.open = false;
        self.granted_after = None;
        if std::mem::replace(&mut self.requested, false) {
            outbox.push(LockEffect::Watch(None));
        }
    }

    /// Records that the stream opened when `calls` calls had been sent.
    pub(super) fn opened(&mut self, since_join: bool, calls: u64) {
        self.open = true;
        // Read after opening the stream, so that no change in between is missed.
        self.opened_after = if since_join { 0 } else { calls };
    }

    pub(super) fn lost(&mut self) {
        self.open = false;
    }

    /// Returns true if the reply to `call` may be older than the events of the stream.
    pub(super) fn may_postdate(&self, call: CallId) -> bool {
        self.open && call.0 <= self.opened_after
    }

    /// Records a reported grant that must be confirmed, when `calls` calls had been sent.
    pub(super) fn reported_grant(&mut self, calls: u64) {
        self.granted_after = Some(calls);
    }

    /// Returns true if the stream reported a grant that no later reply has shown or refuted.
    pub(super) fn reports_grant(&self) -> bool {
        self.granted_after.is_some()
    }

    pub(super) fn forget_grant(&mut self) {
        self.granted_after = None;
    }

    /// Records that the reply to `call` showed a claim that is `granted`. The reply includes
    /// everything that the stream reported before the call was sent.
    pub(super) fn shown(&mut self, call: CallId, granted: bool) {
        self.granted_after = (self.granted_after).filter(|calls| !granted && call.0 <= *calls);
    }

    #[cfg(proof)]
    pub(super) fn compare(&self, form: &mut impl super::Form) {
        form.put(&self.granted_after);
        form.put(&(self.open, self.requested));
        if self.open {
            form.put(&self.opened_after);
        }
    }
}
