//! Reads of the document, and the change stream of the claim. A write or a linearizable read must
//! confirm a reply that contradicts the known document, because a deposed primary still answers
//! majority reads.

use crate::claim::{Outbox, ReadInFlight, ReadSchedule};
use crate::election::{BootTime, CallId, Claim};
use crate::lock::view::LockView;
use crate::lock::{LockEffect, LockOperation, LockTurn};

pub(super) type LockReads = ReadSchedule<()>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Proof {
    /// A majority read, which may return a document older than the known document.
    Plain,
    Newest,
}

impl Proof {
    /// Returns true if an entry that the document lacks is provably gone.
    pub(super) fn is_trusted(self) -> bool {
        self == Self::Newest || planted!(PlainReadProvesAbsence)
    }
}

impl LockReads {
    /// Replaces the read in flight, whose answer may predate the latest change.
    pub(super) fn again(&mut self, at: BootTime) {
        self.in_flight = None;
        self.due = Some(at);
    }

    /// Blocks writes until another read, due at `at`, is answered.
    pub(super) fn fall_behind(&mut self, at: BootTime) {
        self.behind = true;
        self.again(at);
    }

    /// Blocks writes until a linearizable read is answered.
    pub(super) fn doubt(&mut self, now: BootTime) {
        self.suspicious = true;
        self.fall_behind(now);
    }

    pub(super) fn is_idle(&self) -> bool {
        self.in_flight.is_none() && !self.behind
    }

    pub(super) fn send_if_due(&mut self, view: &LockView, turn: &mut LockTurn<'_>) {
        if self.next().is_some_and(|due| due <= turn.now) {
            let read = |confirm| turn.effects.send(LockOperation::Read { confirm });
            self.send(&view.marks, (), read);
        }
    }

    pub(super) fn answered(&mut self, call: CallId) -> Option<ReadInFlight<()>> {
        self.in_flight.take_if(|reading| reading.call == call)
    }

    pub(super) fn settle(&mut self) {
        self.behind = false;
        self.suspicious = false;
    }

    #[cfg(proof)]
    pub(super) fn compare(&self, form: &mut impl super::Form) {
        let token_known = |read: &ReadInFlight<()>| read.token_known.unwrap_or_default();
        let in_flight = self.in_flight.as_ref();
        form.put(&in_flight.map(|read| (read.call, read.confirm, token_known(read))));
        form.put(&(self.due, self.suspicious, self.behind));
    }
}

impl ReadInFlight<()> {
    /// Returns true if the reply proves a rollback. A reply proves nothing if a newer document has
    /// been seen since the read was sent.
    pub(super) fn proves_rollback(self, view: &LockView) -> bool {
        self.confirm && self.token_known.unwrap_or_default() == view.token()
    }

    pub(super) fn proof(self) -> Proof {
        match self.confirm {
            true => Proof::Newest,
            false => Proof::Plain,
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct ClaimStream {
    pub(super) requested: bool,
    pub(super) open: bool,
    /// Number of calls sent before the stream was opened. Replies to these calls may miss changes.
    opened_after: u64,
    /// Number of calls sent before the stream reported a grant of the claim; `None` without a
    /// report.
    pub(super) granted_after: Option<u64>,
}

impl ClaimStream {
    pub(super) fn follow(&mut self, claim: Claim, outbox: &mut Outbox<LockEffect>) {
        self.requested = true;
        self.open = false;
        outbox.push(LockEffect::Watch(Some(claim)));
    }

    pub(super) fn close(&mut self, outbox: &mut Outbox<LockEffect>) {
        self.open = false;
        self.granted_after = None;
        if std::mem::replace(&mut self.requested, false) {
            outbox.push(LockEffect::Watch(None));
        }
    }

    pub(super) fn opened(&mut self, since_join: bool, calls: u64) {
        self.open = true;
        // A read that was sent before the stream opened may miss a change, so another read must
        // follow.
        self.opened_after = if since_join { 0 } else { calls };
    }

    /// Returns true if the reply to `call` may miss a change that the stream does not report
    /// either.
    pub(super) fn may_postdate(&self, call: CallId) -> bool {
        self.open && call.0 <= self.opened_after
    }

    /// Records whether the reply to `call` showed a grant. A reply reflects all earlier events.
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
