//! Reads of the document: when to read, and which replies to trust.
//!
//! A reply is not trusted if it shows that this contender's own entry is gone or was changed by
//! another process, or that the document is older than before. A write or a linearizable read must
//! confirm it, because a deposed primary still answers majority reads.

use crate::claim::{ReadInFlight, ReadSchedule};
use crate::election::{BootTime, CallId};
use crate::lock::effect::LockTurn;
use crate::lock::operation::LockOperation;
use crate::lock::view::LockView;

/// The reads of a contender.
pub(super) type LockReads = ReadSchedule<()>;

/// Guarantee on how current a shown document is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Proof {
    /// A majority read. The document may be older than what is known.
    Plain,
    /// A linearizable read or an acknowledged write.
    Newest,
}

impl Proof {
    /// Returns true if an entry that is missing in the document is gone.
    pub(super) fn is_trusted(self) -> bool {
        match self {
            Self::Newest => true,
            Self::Plain => planted!(PlainReadProvesAbsence),
        }
    }
}

impl LockReads {
    /// Discards the read in flight and schedules another one, because the answer may predate the
    /// latest change.
    pub(super) fn again(&mut self, at: BootTime) {
        self.in_flight = None;
        self.due = Some(at);
    }

    /// Blocks writes until a read that is sent from now on is answered. The read is due at `at`.
    pub(super) fn fall_behind(&mut self, at: BootTime) {
        self.behind = true;
        self.again(at);
    }

    /// Requests a linearizable read before the next write.
    pub(super) fn doubt(&mut self, now: BootTime) {
        self.suspicious = true;
        self.fall_behind(now);
    }

    /// Returns a schedule without reads.
    pub(super) const fn none() -> Self {
        Self {
            in_flight: None,
            due: None,
            behind: false,
            suspicious: false,
        }
    }

    /// Returns true if no read is in flight or must precede the next write.
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

    /// Records a reply that leaves no doubt.
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
    /// Returns true if the reply proves a rollback that it shows. Documents seen after the read was
    /// sent may be newer than the reply.
    pub(super) fn proves_rollback(self, view: &LockView) -> bool {
        self.confirm && self.token_known.unwrap_or_default() == view.token()
    }

    /// Returns the guarantee on the document in the reply.
    pub(super) fn proof(self) -> Proof {
        match self.confirm {
            true => Proof::Newest,
            false => Proof::Plain,
        }
    }
}
