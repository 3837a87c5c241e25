//! Records the order in which a process receives events and replies, and the calls that the process
//! must make in response.

use std::time::Duration;

use super::cluster::{Was, World};
use super::invariants::streams_are_checked::{self as streams, Asked, Followed, Late};
use crate::election::{BootTime, CallId, Found, Input, Lease, Operation, Outcome, Reason, Watch};
use crate::proof::sim::SECOND;

/// The longest renewal interval of any candidate.
const INTERVAL_MAX: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Default)]
pub(super) struct Hearing {
    /// True if the last notice reported an open stream, and the process has not requested another
    /// stream since.
    open: bool,
    /// The process must read the renewals, because it follows hints or a late stream.
    reads_renewals: bool,
    late_stream: bool,
    reopening_owed: bool,
    /// The newest read that was sent after the stream was opened and after the last event without a
    /// document. `informed` is true once one of these reads was answered.
    informing: Option<CallId>,
    informed: bool,
    /// The adapter has seen a whole document since the stream was opened.
    pub(super) document_seen: bool,
    taking_over: Option<CallId>,
    event_at: BootTime,
    reply_at: BootTime,
    held: bool,
    /// The read in flight, unless it is linearizable. A linearizable read shows the state after the
    /// read was sent, even if events arrive meanwhile.
    reading: Option<CallId>,
    /// The read of either kind that is in flight. The process uses only the answer to this read.
    asking: Option<CallId>,
    writing: Option<CallId>,
    /// The position, in the order of commits, of the newest state that an event showed since the
    /// read was sent.
    order: u64,
    /// Set if this input is a reply whose state is older than the state in an earlier event.
    late: Option<Late>,
}

impl Hearing {
    pub(super) fn new(now: BootTime) -> Self {
        Self {
            event_at: now,
            reply_at: now,
            ..Self::default()
        }
    }

    pub(super) fn calls(&mut self, call: CallId, operation: &Operation) {
        match operation {
            Operation::Read { confirm } => {
                (self.asking, self.informing) = (Some(call), Some(call));
                (self.reading, self.order) = ((!confirm).then_some(call), 0);
            }
            Operation::TakeOver { ended, .. } if ended.reason == Reason::TookOver => {
                (self.writing, self.taking_over) = (Some(call), Some(call));
            }
            // The answer to a read in flight may show the state before the release, so the process
            // ignores the answer.
            Operation::Release { .. } => {
                (self.asking, self.informing, self.reading) = (None, None, None);
                self.writing = Some(call);
            }
            // A process sends these calls independently of all other calls.
            Operation::Register { .. } | Operation::Withdraw { .. } => {}
            _ => self.writing = Some(call),
        }
    }

    pub(super) fn reopens(&mut self) {
        (self.open, self.reopening_owed) = (false, false);
    }

    fn shows(&mut self, lease: &Lease) {
        self.held = lease.holder.is_some();
    }
}

impl World {
    /// Checks that the process reopened its stream if its last turn required this, and records this
    /// input.
    pub(super) fn hear_before(&mut self, process: usize, now: BootTime, input: &Input) {
        let archive = &self.own.archive;
        let order_of = |lease: &Lease| archive.order(lease.revision).0;
        let p = &mut self.processes[process];
        let hearing = &mut p.hearing;
        let owed = std::mem::take(&mut hearing.reopening_owed) && !p.facts.shutdown;
        hearing.late = None;
        match input {
            Input::Watch(watch) => {
                hearing.event_at = now;
                match watch {
                    Watch::Opened | Watch::LateStreamOpened | Watch::HintsOpened => {
                        hearing.open = true;
                        // A frozen process may receive this event after the stream has closed.
                        hearing.late_stream = p.stream.late || *watch == Watch::LateStreamOpened;
                        hearing.reads_renewals = p.stream.hints || p.stream.late;
                        (hearing.informing, hearing.informed) = (None, false);
                    }
                    Watch::Lost => hearing.open = false,
                    Watch::Unclear => (hearing.informing, hearing.informed) = (None, false),
                    Watch::Alive | Watch::Hint | Watch::Released(_) => {}
                    Watch::Changed(_) if hearing.late_stream => {}
                    Watch::Changed(lease) => {
                        hearing.order = hearing.order.max(order_of(lease).unwrap_or(0));
                        hearing.shows(lease);
                    }
                }
            }
            Input::PrimaryChanged => hearing.reopening_owed = hearing.open,
            Input::Reply { call, outcome } => {
                hearing.reply_at = now;
                if hearing.taking_over.take_if(|id| id == call).is_some() {
                    hearing.reopening_owed = hearing.open && *outcome == Outcome::Rejected;
                }
                if let Outcome::Applied(Found::Lease(lease)) = outcome
                    && hearing.writing == Some(*call)
                {
                    hearing.shows(lease);
                }
                // The process ignores a late answer to a read that timed out.
                let asked = hearing.asking.take_if(|id| id == call).is_some();
                let read = hearing.reading.take_if(|id| id == call).is_some();
                if let Outcome::Applied(_) = outcome {
                    hearing.informed |= hearing.informing.take_if(|id| id == call).is_some();
                }
                if let Outcome::Applied(found) = outcome
                    && asked
                {
                    let lease = match found {
                        Found::Lease(lease) => Some(lease),
                        Found::Missing | Found::Foreign(_) => None,
                    };
                    hearing.held = lease.is_some_and(|lease| lease.holder.is_some());
                    let order = lease.filter(|_| read).and_then(order_of);
                    let older = order.filter(|n| *n < hearing.order);
                    hearing.late = older.map(|_| Late {
                        before: p.election.revision_seen(),
                        reply: lease.map(|lease| lease.revision),
                        after: None,
                    });
                }
            }
            _ => {}
        }
        self.found(streams::check_reopening(owed));
    }

    /// Checks that the process reads often enough, and that a late reply has no effect.
    pub(super) fn hear_after(&mut self, process: usize, now: BootTime) {
        if !self.processes[process].alive {
            return;
        }
        let p = &self.processes[process];
        let late = p.hearing.late.filter(|_| !p.facts.holds).map(|late| Late {
            after: p.election.revision_seen(),
            ..late
        });
        let idle =
            !p.facts.holds && !p.facts.shutdown && !p.driver.is_awaited() && p.inbox.is_empty();
        let hearing = &p.hearing;
        let asked = idle.then(|| Asked {
            silent: now.since(hearing.reply_at),
            silent_max: p.tunables.timings.lease_duration(),
            unheard: now.since(hearing.reply_at.max(hearing.event_at)),
            unheard_max: p.tunables.timings.renew_interval() * 2,
            held: hearing.held && !p.facts.foreign,
            unread_max: (hearing.open && hearing.reads_renewals).then(|| {
                // Holders declare at most `INTERVAL_MAX`, but the process's retry interval can be
                // longer.
                let timings = &p.tunables.timings;
                INTERVAL_MAX.max(timings.retry_interval())
            }),
        });
        let followed = self.followed(process, idle);
        self.found(followed.and_then(streams::check_followed));
        self.found(late.and_then(streams::check_late));
        self.found(asked.and_then(streams::check_asked));
    }

    /// Returns the newest token that the process has seen, and the stored token. Returns `None`
    /// unless the process is an idle follower whose stream is up to date.
    fn followed(&self, process: usize, idle: bool) -> Option<Followed> {
        let p = &self.processes[process];
        let stream = &p.stream;
        let reports =
            stream.open && !stream.silent && !stream.stale && !stream.hints && !stream.late;
        let read = p.hearing.open && p.hearing.informed;
        // After a lost answer, the process reads again, and may meanwhile know only an older state.
        let answered = p.hearing.informing.is_none();
        let handled = read && answered && stream.last_at <= self.now;
        let (at, Was::Token(stored)) = self.own.was.last()? else {
            return None;
        };
        (idle && reports && handled && !p.facts.foreign).then(|| Followed {
            known: p.election.token_seen(),
            stored: *stored,
            since: Duration::from_nanos(self.now - at),
        })
    }

    pub(super) fn on_a_stale_stream(&self) -> Option<usize> {
        self.live.iter().copied().find(|process| {
            let p = &self.processes[*process];
            // A follower notices a stale cursor on hints only when the next hint fails to arrive.
            // Until that hint is due, the follower cannot know that the cursor is stale.
            let stale = match p.stream.hints {
                true => !self.has_hints() || !p.hearing.open,
                // A late stream rarely reports a renewal before a read shows it, so the check
                // ignores late streams.
                false => p.stream.stale && !p.stream.late,
            };
            // The process might not know yet of a stream that was opened less than a second ago.
            let known = p.stream.opened_at + SECOND <= self.now;
            p.stream.open && known && stale && !p.facts.holds
        })
    }
}
