//! Reads of the document: the read in flight, and when the next one is due.
//!
//! Each protocol decides which replies to trust and when to read.

use super::Watermarks;
use crate::election::{BootTime, CallId, Token};

/// The read in flight, about which a protocol notes a `C`, and the next one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ReadSchedule<C> {
    pub(crate) in_flight: Option<ReadInFlight<C>>,
    /// Instant of the next read, if one is scheduled.
    pub(crate) due: Option<BootTime>,
    /// True if the document must be read before the next write, because the view may be behind.
    pub(crate) behind: bool,
    /// True if the next read must be linearizable, to confirm a reply.
    pub(crate) suspicious: bool,
}

/// A read in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ReadInFlight<C> {
    pub(crate) call: CallId,
    /// True for a linearizable read.
    pub(crate) confirm: bool,
    /// Token that the document was known to have when the read was sent.
    pub(crate) token_known: Option<Token>,
    pub(crate) note: C,
}

impl<C> ReadSchedule<C> {
    /// Returns the instant of the next read; `None` while a read is in flight or none is scheduled.
    pub(crate) fn next(&self) -> Option<BootTime> {
        self.due.filter(|_| self.in_flight.is_none())
    }

    /// Returns true if a read is in flight or scheduled.
    pub(crate) fn is_active(&self) -> bool {
        self.in_flight.is_some() || self.due.is_some()
    }

    /// Schedules a read at `at`, unless an earlier one is scheduled.
    pub(crate) fn read_at(&mut self, at: BootTime) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// Records a read that `send` sends now, linearizable if its argument is true.
    pub(crate) fn send(&mut self, marks: &Watermarks, note: C, send: impl FnOnce(bool) -> CallId) {
        let confirm = self.suspicious;
        self.in_flight = Some(ReadInFlight {
            call: send(confirm),
            confirm,
            token_known: marks.document_token(),
            note,
        });
        self.due = None;
    }
}
