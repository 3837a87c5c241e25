//! Reads of the document. A rollback must be confirmed by a linearizable read.

use std::time::Duration;

use super::Contender;
use super::phase::{RenewalPhase, renewal_interval};
use crate::claim::{ReadSchedule, Rollback, Turn, earliest};
use crate::election::view::LeaseView;
use crate::election::{
    BootTime, CallId, Effect, Found, HEAD_START, Lease, Operation, Outcome, Released, Standby,
    Tenure, Watch,
};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct LeaseReads {
    following: Following,
    /// Kept while no source is open, so that followers do not search for the phase after each
    /// election of the store.
    phase: RenewalPhase,
    pub(super) schedule: ReadSchedule<StreamCheck>,
    /// The release that a hint announced, until a read shows it.
    pub(super) announced: Option<AnnouncedRelease>,
    looked_at: BootTime,
    /// Instant at which the store counts as unreachable; `None` before its first answer. A reload
    /// does not shorten this time, because the stream still answers at the previous interval.
    pub(crate) answers_until: Option<BootTime>,
}

/// A release that a hint announced. The hint may be false.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct AnnouncedRelease {
    pub(super) released: Released,
    since: BootTime,
    /// True if this candidate has tried to acquire the lease.
    pub(super) tried: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Following {
    Nothing,
    /// A change stream, which reports every change of the document.
    Stream,
    /// A change stream that lags by seconds. An event only prompts a read.
    LateStream,
    /// Hints, which report no renewals. The candidate reads after each expected renewal.
    Hints,
}

impl Following {
    fn is_open(self) -> bool {
        self != Self::Nothing
    }

    /// Returns true if the source does not report renewals in time.
    fn needs_phase(self) -> bool {
        matches!(self, Self::LateStream | Self::Hints)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct StreamCheck {
    /// True if the read checks that the open stream reports all changes.
    checks_stream: bool,
    /// True if an event was applied after the read was sent, so the reply may be older than the
    /// view.
    overtaken: bool,
}

pub(crate) struct ReadDocument {
    pub(crate) found: Found,
    pub(crate) rollback: Option<Rollback>,
    note: StreamCheck,
}

impl LeaseReads {
    pub(super) fn new(now: BootTime) -> Self {
        Self {
            following: Following::Nothing,
            phase: RenewalPhase::default(),
            schedule: ReadSchedule {
                due: Some(now),
                behind: true,
                ..ReadSchedule::default()
            },
            announced: None,
            looked_at: now,
            answers_until: None,
        }
    }

    /// Records an announced release, and schedules a later read. By then, a majority should have
    /// applied the release, and the candidate with the reservation should have acquired the lease.
    fn announce(&mut self, released: Released, now: BootTime) {
        if self
            .announced
            .as_ref()
            .is_none_or(|known| known.released != released)
        {
            self.announced = Some(AnnouncedRelease {
                released,
                since: now,
                tried: false,
            });
        }
        self.schedule.read_at(now + HEAD_START);
    }

    /// Reads again at growing intervals, for at most `longest`, until a read shows the release.
    fn await_release(&mut self, lease: Option<&Lease>, longest: Duration, now: BootTime) {
        let Some(announced) = &self.announced else {
            return;
        };
        let waited = now.since(announced.since);
        let is_held = lease.and_then(Lease::claim) == Some(announced.released.claim);
        if is_held && waited < longest {
            self.schedule.read_at(now + waited.max(HEAD_START));
        } else {
            self.announced = None;
        }
    }

    /// Returns true if the view may differ from the stored document.
    pub(super) fn is_blind(&self) -> bool {
        self.schedule.behind || self.schedule.suspicious
    }

    pub(super) fn is_late(&self) -> bool {
        self.following == Following::LateStream
    }

    /// Returns the estimated phase of the renewals if reads depend on it.
    fn phase(&mut self) -> Option<&mut RenewalPhase> {
        self.following.needs_phase().then_some(&mut self.phase)
    }

    pub(super) fn read_before_write(&mut self, at: BootTime) {
        self.schedule.behind = true;
        self.schedule.read_at(at);
    }

    /// Requires a new read before the next write; a read in flight may have been sent too early.
    pub(super) fn fall_behind(&mut self, now: BootTime) {
        self.schedule.in_flight = None;
        self.read_before_write(now);
    }

    /// Drops a due read that another reply makes unnecessary.
    pub(super) fn drop_due(&mut self, now: BootTime) {
        self.schedule.due = self.schedule.due.filter(|due| *due > now);
    }

    fn suspect(&mut self, now: BootTime) {
        self.schedule.suspicious = true;
        self.schedule.read_at(now);
    }

    pub(super) fn late_reply(&mut self, now: BootTime) {
        self.schedule.behind = true;
        if self.schedule.in_flight.is_none() {
            self.schedule.read_at(now);
        }
    }

    /// Reopens a stream that missed a change shown by the read. A late stream is not reopened.
    fn judge_stream(&mut self, read: &ReadDocument, view: &LeaseView) -> Option<Effect> {
        if !read.note.checks_stream || self.is_late() {
            return None;
        }
        let unchanged = match (&read.found, &view.document) {
            // Ignores the standby, because the view may contain only an assumption about it. While
            // following hints, also ignores renewals (the revision), because hints do not report
            // renewals.
            (Found::Lease(now), Some(Found::Lease(before))) => {
                let standby = now.standby.clone();
                let mut before = before.clone();
                if self.following == Following::Hints {
                    before.revision = now.revision;
                }
                *now == Lease { standby, ..before }
            }
            (Found::Missing, Some(Found::Missing)) => true,
            (Found::Foreign(_), Some(Found::Foreign(_))) => true,
            _ => false,
        };
        if unchanged { None } else { self.reopen() }
    }

    fn follow(&mut self, following: Following, now: BootTime) {
        // The stream omits earlier changes, so the next read must be sent after the stream opened.
        self.following = following;
        self.schedule.in_flight = None;
        self.schedule.read_at(now);
    }

    pub(super) fn reopen(&mut self) -> Option<Effect> {
        let open = std::mem::replace(&mut self.following, Following::Nothing).is_open();
        open.then_some(Effect::ReopenStream)
    }

    pub(super) fn check_invariants(&self, idle: bool) {
        let looks = !(idle && self.is_blind()) || self.schedule.is_active();
        assert!(looks, "behind the store, and no read is due");
    }
}

impl Contender {
    pub(super) fn contact(&mut self, now: BootTime) {
        self.reads.answers_until = Some(now + self.me.timings().lease_duration());
    }

    pub(crate) fn next_read(&self) -> Option<BootTime> {
        self.reads.schedule.next()
    }

    pub(crate) fn awaits_read(&self, call: CallId) -> bool {
        let reading = self.reads.schedule.in_flight;
        reading.is_some_and(|reading| reading.call == call)
    }

    pub(crate) fn primary_changed(&mut self, leads: bool, turn: &mut Turn<'_>) {
        // The open cursor stays on its member, which may lag behind the new primary.
        turn.effects.extend(self.reads.reopen());
        if !leads && self.reads.schedule.due.is_some() {
            self.reads.schedule.read_at(turn.now);
        }
    }

    pub(crate) fn read_if_due(&mut self, turn: &mut Turn<'_>) {
        if self.next_read().is_some_and(|due| due <= turn.now) {
            self.send_read(false, turn);
        }
    }

    fn send_read(&mut self, checks_stream: bool, turn: &mut Turn<'_>) {
        if let Some(phase) = self.reads.phase() {
            phase.asks(turn.now);
        }
        let note = StreamCheck {
            checks_stream,
            overtaken: false,
        };
        let read = |confirm| turn.effects.send(Operation::Read { confirm });
        self.reads.schedule.send(&self.view.marks, note, read);
    }

    /// Reads even while a stream is open, because the stream may be stale. Reads once per lease
    /// duration, or sooner if the holder's renewals are missing.
    pub(super) fn check_stream(&mut self, turn: &mut Turn<'_>) -> Option<BootTime> {
        if !self.reads.following.is_open() || self.reads.schedule.is_active() {
            return None;
        }
        let (looked_at, timings) = (self.reads.looked_at, self.me.timings());
        let regular = looked_at + timings.lease_duration();
        let silence = looked_at.max(self.view.seen) + 2 * timings.renew_interval();
        let is_held = self.view.lease().is_some_and(|l| l.holder.is_some());
        let checked = regular.min(if is_held { silence } else { regular });
        let due = checked.min(self.renewal_due().unwrap_or(checked));
        if due > turn.now {
            return Some(due);
        }
        self.send_read(true, turn);
        None
    }

    /// Returns when to read if the source does not report renewals in time: after the next expected
    /// renewal.
    fn renewal_due(&self) -> Option<BootTime> {
        if !self.reads.following.needs_phase() {
            return None;
        }
        let (lease, timings) = (self.view.lease(), self.me.timings());
        let renews = lease.is_some_and(|l| l.holder.is_some() && !l.paused);
        let expected = self.reads.phase.next_read(timings.retry_interval());
        let expected = expected.filter(|_| renews);
        let regular = self.reads.looked_at + renewal_interval(lease, timings);
        Some(expected.unwrap_or(regular))
    }

    /// Polls if there is no stream, even during a cooldown, so that the status shows the successor.
    pub(super) fn keep_looking(&mut self, turn: &mut Turn<'_>) {
        let unaware = !self.reads.following.is_open() || self.reads.is_blind();
        if unaware && !self.reads.schedule.is_active() {
            let poll = self.me.retry_at(turn);
            // If the stream was lost shortly before the next regular read, that read precedes the
            // poll.
            let regular = self.reads.looked_at + self.me.timings().lease_duration();
            let regular = Some(regular).filter(|regular| *regular > turn.now);
            self.reads.schedule.due = earliest([regular, Some(poll)]);
        }
    }

    pub(crate) fn read_reply(
        &mut self,
        outcome: Outcome,
        turn: &mut Turn<'_>,
    ) -> Option<ReadDocument> {
        let reading = self.reads.schedule.in_flight.take();
        let (Some(reading), Outcome::Applied(found)) = (reading, outcome) else {
            self.checking = None;
            self.reads.schedule.read_at(self.me.retry_at(turn));
            return None;
        };
        self.reads.schedule.suspicious = false;
        let rollback = self.view.rollback(&found);
        if let Some(rollback) = rollback {
            // A reply may be older than the view, and a deposed primary still answers majority
            // reads. Only a later, linearizable read proves a rollback.
            if !reading.confirm || reading.token_known != Some(rollback.seen) {
                self.reads.suspect(turn.now);
                return None;
            }
            self.rolled_back(rollback, turn);
        }
        Some(ReadDocument {
            found,
            rollback,
            note: reading.note,
        })
    }

    /// Schedules the next read. Returns false if an event was applied while this read was in flight
    /// and the reply shows a different revision. Another read must then precede any write.
    pub(crate) fn accept(
        &mut self,
        read: &ReadDocument,
        contends: bool,
        turn: &mut Turn<'_>,
    ) -> bool {
        let reads = &mut self.reads;
        reads.looked_at = turn.now;
        let lease = read.found.lease();
        let shown = lease.map(|lease| lease.revision);
        if contends && read.note.overtaken && shown != self.view.revision() {
            reads.fall_behind(turn.now);
            return false;
        }
        turn.effects.extend(reads.judge_stream(read, &self.view));
        // Changes reported while the read was in flight may not be in the reply.
        reads.schedule.behind = reads.schedule.due.is_some_and(|due| due <= turn.now);
        if let Some(phase) = reads.phase() {
            phase.shows(lease, renewal_interval(lease, self.me.timings()));
            reads.schedule.behind = false;
        }
        reads.await_release(lease, self.me.timings().retry_interval(), turn.now);
        if contends && (!reads.following.is_open() || matches!(read.found, Found::Foreign(_))) {
            reads.schedule.read_at(self.me.retry_at(turn));
        }
        true
    }

    /// Handles a change event while this candidate leads. An `expected` change needs no read.
    pub(crate) fn changed_while_leading(&mut self, lease: Lease, expected: bool, now: BootTime) {
        self.shown(&lease, false);
        if expected {
            self.note_standby(lease.standby);
        } else {
            self.reads.schedule.read_at(now);
        }
    }

    pub(crate) fn note_standby(&mut self, standby: Option<Standby>) {
        self.view.note_standby(standby);
    }

    pub(crate) fn changed(&mut self, lease: Lease, turn: &mut Turn<'_>) {
        self.shown(&lease, false);
        let older = self.view.is_older_than(&lease);
        let found = Found::Lease(lease);
        if self.reads.is_late() {
            if older {
                self.reads.schedule.read_at(turn.now);
            }
        } else if self.view.rollback(&found).is_none() {
            self.observe(found, turn);
            if let Some(reading) = &mut self.reads.schedule.in_flight {
                reading.note.overtaken = true;
            }
        } else {
            self.reads.fall_behind(turn.now);
        }
    }

    /// Applies the reply to a write. If the reply is older than the view, either an event arrived
    /// first or the store was rolled back. Only a linearizable read can distinguish these cases.
    pub(super) fn observe_written(&mut self, found: Found, turn: &mut Turn<'_>) {
        if self.view.rollback(&found).is_none() {
            self.reads.looked_at = turn.now;
            self.observe(found, turn);
        } else {
            self.reads.suspect(turn.now);
            self.reads.fall_behind(turn.now);
        }
    }

    pub(crate) fn renewed(&mut self, tenure: &Tenure, lease: &Lease, turn: &mut Turn<'_>) {
        turn.effects.extend(self.workload.extend(tenure));
        let found = Found::Lease(lease.clone());
        if self.view.rollback(&found).is_none() {
            self.observe(found, turn);
        } else {
            // The token was lowered, so the next leader might get a token that was already used.
            self.reads.suspect(turn.now);
        }
    }

    pub(crate) fn watch(&mut self, watch: Watch, leads: bool, now: BootTime) -> Option<Lease> {
        let reads = &mut self.reads;
        match watch {
            Watch::Lost => {
                reads.following = Following::Nothing;
                if !leads {
                    reads.schedule.read_at(now);
                }
                return None;
            }
            Watch::Opened => reads.follow(Following::Stream, now),
            Watch::LateStreamOpened => reads.follow(Following::LateStream, now),
            Watch::HintsOpened => reads.follow(Following::Hints, now),
            Watch::Alive | Watch::Changed(_) => {}
            // The view stays usable, because a flood of false hints must not block the candidate.
            Watch::Hint => {
                if let Some(phase) = reads.phase() {
                    phase.hinted();
                }
                reads.schedule.read_at(now);
            }
            Watch::Released(_) if leads => reads.schedule.read_at(now),
            Watch::Released(released) => {
                reads.announce(released, now);
                self.contact(now);
                return None;
            }
            Watch::Unclear if reads.is_late() => reads.schedule.read_at(now),
            Watch::Unclear => reads.read_before_write(now),
        }
        self.contact(now);
        let Watch::Changed(lease) = watch else {
            return None;
        };
        Some(lease)
    }
}

#[cfg(all(test, not(proof)))]
impl Contender {
    /// Requires a read, but does not schedule it, to build a state that no input reaches.
    pub(crate) fn never_read(&mut self, suspicious: bool, now: BootTime) {
        match suspicious {
            true => self.reads.suspect(now),
            false => self.reads.fall_behind(now),
        }
        (self.reads.schedule.in_flight, self.reads.schedule.due) = (None, None);
    }
}
