//! Reads of the document: when to read, and whether to trust a reply.
//!
//! This module does not write. A reply that shows a rolled-back store is not trusted before a
//! linearizable read confirms it.

use super::candidate::Participant;
use super::effect::{CallId, Effect, Operation};
use super::input::{Found, Outcome, Watch};
use super::lease::Lease;
use super::phase::{RenewalPhase, renewal_interval};
use super::time::BootTime;
use super::timings::Timings;
use super::view::{Document, LeaseView};
use crate::claim::{ReadSchedule, Rollback, Turn};

/// The reads of the document, and the source of changes in between.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct LeaseReads {
    /// The open source of changes that others make.
    following: Following,
    pub(super) schedule: ReadSchedule<StreamCheck>,
    /// Instant at which a reply last showed the document.
    looked_at: BootTime,
    /// When the last answer of the store ceases to count; `None` before the first answer. A reload does not shorten it, since
    /// the stream still reports at the pace of the durations before.
    pub(super) answers_until: Option<BootTime>,
}

/// The open source of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Following {
    /// None: the candidate polls.
    Nothing,
    /// A change stream, which reports every change of the document.
    Stream,
    /// A change stream that may report a change seconds later. An event only makes the candidate
    /// read, and renewals are read shortly after each is expected.
    LateStream(RenewalPhase),
    /// Hints of other candidates and of operators, which report no renewals. Renewals are read
    /// shortly after each is expected.
    Hints(RenewalPhase),
}

impl Following {
    fn is_open(self) -> bool {
        self != Self::Nothing
    }

    /// Returns the estimate of the holder's renewals, if they are read and not reported.
    fn phase(&mut self) -> Option<&mut RenewalPhase> {
        match self {
            Self::LateStream(phase) | Self::Hints(phase) => Some(phase),
            Self::Nothing | Self::Stream => None,
        }
    }

    /// Returns true if renewals are read and not reported.
    fn reads_renewals(mut self) -> bool {
        self.phase().is_some()
    }
}

/// The relation of a read to the source of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct StreamCheck {
    /// True if the read checks that the open stream reports all changes.
    checks_stream: bool,
    /// True if an event was applied after the read was sent.
    overtaken: bool,
}

/// A trusted reply to a read.
pub(super) struct ReadDocument {
    pub(super) found: Found,
    /// The rollback of the store that the document proves.
    pub(super) rollback: Option<Rollback>,
    note: StreamCheck,
}

impl LeaseReads {
    pub(super) fn new(now: BootTime) -> Self {
        Self {
            following: Following::Nothing,
            schedule: ReadSchedule {
                in_flight: None,
                due: Some(now),
                behind: true,
                suspicious: false,
            },
            looked_at: now,
            answers_until: None,
        }
    }

    /// Returns true if the view may differ from the stored document.
    pub(super) fn is_blind(&self) -> bool {
        self.schedule.behind || self.schedule.suspicious
    }

    pub(super) fn awaits(&self, call: CallId) -> bool {
        self.schedule
            .in_flight
            .is_some_and(|reading| reading.call == call)
    }

    /// Returns true if an event of the open stream is only a reason to read.
    pub(super) fn is_late(&self) -> bool {
        matches!(self.following, Following::LateStream(_))
    }

    /// Schedules a read at `at`, and lets it precede the next write.
    pub(super) fn read_before_write(&mut self, at: BootTime) {
        self.schedule.behind = true;
        self.schedule.read_at(at);
    }

    /// Marks the view as behind the store, so that a read precedes the next write. A read in flight
    /// may have been answered before, so it does not count.
    pub(super) fn fall_behind(&mut self, now: BootTime) {
        self.schedule.in_flight = None;
        self.read_before_write(now);
    }

    /// Requires a linearizable read.
    pub(super) fn suspect(&mut self, now: BootTime) {
        self.schedule.suspicious = true;
        self.schedule.read_at(now);
    }

    /// Marks the view as behind because of a late reply. A read in flight is sufficient.
    pub(super) fn late_reply(&mut self, now: BootTime) {
        self.schedule.behind = true;
        if self.schedule.in_flight.is_none() {
            self.schedule.read_at(now);
        }
    }

    /// Drops the reads that the reply to a release replaces: it shows more than a concurrent read,
    /// which could be answered from before the release.
    pub(super) fn replace_due(&mut self, now: BootTime) {
        self.schedule.due = self.schedule.due.filter(|due| *due > now);
    }

    /// Drops the read in flight, which may be answered from before a release.
    pub(super) fn drop_in_flight(&mut self) {
        self.schedule.in_flight = None;
    }

    /// Drops all reads, because a claim begins to lead: a read in flight is older than the claim,
    /// and the reply that granted the claim showed the document.
    pub(super) fn begin_to_lead(&mut self) {
        self.schedule.behind = false;
        self.schedule.in_flight = None;
        self.schedule.suspicious = false;
        self.schedule.due = None;
    }

    /// Records that the store answered.
    pub(super) fn contact(&mut self, timings: &Timings, now: BootTime) {
        self.answers_until = Some(now + timings.lease_duration());
    }

    /// Records that a reply shows the present document.
    pub(super) fn looked(&mut self, now: BootTime) {
        self.looked_at = now;
    }

    /// Records that an event was applied to the view.
    pub(super) fn overtake(&mut self) {
        if let Some(reading) = &mut self.schedule.in_flight {
            reading.note.overtaken = true;
        }
    }

    /// Sends a read if one is due and none is in flight.
    pub(super) fn send_if_due(&mut self, view: &LeaseView, turn: &mut Turn<'_>) {
        if self.schedule.next().is_some_and(|due| due <= turn.now) {
            self.send(false, view, turn);
        }
    }

    fn send(&mut self, checks_stream: bool, view: &LeaseView, turn: &mut Turn<'_>) {
        if let Some(phase) = self.following.phase() {
            phase.asks(turn.now);
        }
        let note = StreamCheck {
            checks_stream,
            overtaken: false,
        };
        let read = |confirm| turn.effects.send(Operation::Read { confirm });
        self.schedule.send(&view.marks, note, read);
    }

    /// Sends reads in addition to an open stream, which may be stale although it answers: once per
    /// lease duration, and more often while the holder appears not to renew. Hints report no
    /// renewals, and a late stream reports them too late; then only these reads show renewals.
    /// Returns the instant of the next such read.
    pub(super) fn check_stream(
        &mut self,
        view: &LeaseView,
        timings: &Timings,
        turn: &mut Turn<'_>,
    ) -> Option<BootTime> {
        if !self.following.is_open()
            || self.schedule.in_flight.is_some()
            || self.schedule.due.is_some()
        {
            return None;
        }
        let regular = self.looked_at + timings.lease_duration();
        let silence = self.looked_at.max(view.seen) + 2 * timings.renew_interval();
        let is_held = view.lease().is_some_and(|l| l.holder.is_some());
        let checked = if is_held {
            regular.min(silence)
        } else {
            regular
        };
        let due = checked.min(self.renewal_due(view, timings).unwrap_or(checked));
        if due > turn.now {
            return Some(due);
        }
        self.send(true, view, turn);
        None
    }

    /// Returns the instant of the next read if renewals are not reported: right after the next
    /// renewal is expected, or one interval after the last read if nothing is renewed.
    fn renewal_due(&self, view: &LeaseView, timings: &Timings) -> Option<BootTime> {
        let mut following = self.following;
        let phase = following.phase()?;
        let lease = view.lease();
        let interval = renewal_interval(lease, timings);
        let renews = lease.is_some_and(|l| l.holder.is_some() && !l.paused);
        let expected = phase.next_read(interval, timings.retry_interval());
        let expected = expected.filter(|_| renews);
        Some(expected.unwrap_or(self.looked_at + interval))
    }

    /// Schedules the next read if nothing else reports what others do: there is no change stream,
    /// or the view is behind. A candidate's own write does not schedule a read. Without this poll,
    /// a candidate that released would see its successor only when it may contend again, and would
    /// wait a whole lease duration from then on.
    pub(super) fn keep_looking(&mut self, me: &Participant, turn: &mut Turn<'_>) {
        let unaware = !self.following.is_open() || self.is_blind();
        if unaware && self.schedule.in_flight.is_none() && self.schedule.due.is_none() {
            let poll = me.retry_at(turn);
            // The stream may have been lost shortly before the regular read was due.
            let regular = self.looked_at + me.timings().lease_duration();
            let regular = Some(regular).filter(|regular| *regular > turn.now);
            self.schedule.due = regular.into_iter().chain([poll]).min();
        }
    }

    /// Handles the reply to the read in flight; returns the document if it is to be trusted.
    pub(super) fn reply(
        &mut self,
        outcome: Outcome,
        view: &LeaseView,
        me: &Participant,
        turn: &mut Turn<'_>,
    ) -> Option<ReadDocument> {
        let reading = self.schedule.in_flight.take();
        let (Some(reading), Outcome::Applied(found)) = (reading, outcome) else {
            self.schedule.read_at(me.retry_at(turn));
            return None;
        };
        self.schedule.suspicious = false;
        let rollback = view.rollback(&found);
        // Anything seen after the read was sent may be newer than the reply, so another read is
        // needed. A deposed primary answers a majority read in the same way, so only a linearizable
        // read is proof.
        if let Some(Rollback { seen, .. }) = rollback
            && (!reading.confirm || reading.token_known != Some(seen))
        {
            self.suspect(turn.now);
            return None;
        }
        Some(ReadDocument {
            found,
            rollback,
            note: reading.note,
        })
    }

    /// Returns false if an event overtook the reply, which may then be older or newer. Another read
    /// must resolve this before any write.
    pub(super) fn is_current(
        &mut self,
        read: &ReadDocument,
        contends: bool,
        view: &LeaseView,
        now: BootTime,
    ) -> bool {
        let shown = match &read.found {
            Found::Lease(lease) => Some(lease.revision),
            Found::Missing | Found::Foreign(_) => None,
        };
        let current = !contends || !read.note.overtaken || shown == view.revision();
        if !current {
            self.fall_behind(now);
        }
        current
    }

    /// Reopens the stream if the read was to check it and shows a change that the stream did not
    /// report. A late stream may still report it.
    pub(super) fn judge_stream(&mut self, read: &ReadDocument, view: &LeaseView) -> Option<Effect> {
        if !read.note.checks_stream || self.is_late() {
            return None;
        }
        let unchanged = match (&read.found, &view.document) {
            // The standby may be assumed. Hints do not report renewals.
            (Found::Lease(now), Document::Lease(before)) => {
                let standby = now.standby.clone();
                let mut before = before.clone();
                if matches!(self.following, Following::Hints(_)) {
                    before.revision = now.revision;
                }
                *now == Lease { standby, ..before }
            }
            (Found::Missing, Document::Missing) | (Found::Foreign(_), Document::Foreign(_)) => true,
            _ => false,
        };
        if unchanged { None } else { self.reopen() }
    }

    /// Schedules what follows a current reply.
    pub(super) fn follow_up(
        &mut self,
        found: &Found,
        contends: bool,
        me: &Participant,
        turn: &mut Turn<'_>,
    ) {
        // Changes reported while the read was in flight may not be in the reply.
        let in_phase = self.following.reads_renewals();
        self.schedule.behind = !in_phase && self.schedule.due.is_some_and(|due| due <= turn.now);
        let lease = match found {
            Found::Lease(lease) => Some(lease),
            Found::Missing | Found::Foreign(_) => None,
        };
        if let Some(phase) = self.following.phase() {
            phase.shows(lease, renewal_interval(lease, me.timings()), turn.now);
        }
        if contends && (!self.following.is_open() || matches!(found, Found::Foreign(_))) {
            self.schedule.read_at(me.retry_at(turn));
        }
    }

    /// Handles an event of the source of changes; returns the document that it shows, if any.
    pub(super) fn watch(
        &mut self,
        watch: Watch,
        leads: bool,
        timings: &Timings,
        now: BootTime,
    ) -> Option<Lease> {
        match watch {
            Watch::Lost => {
                self.following = Following::Nothing;
                if !leads {
                    self.schedule.read_at(now);
                }
                return None;
            }
            Watch::Opened => self.follow(Following::Stream, now),
            Watch::LateStreamOpened => {
                self.follow(Following::LateStream(RenewalPhase::default()), now)
            }
            Watch::HintsOpened => self.follow(Following::Hints(RenewalPhase::default()), now),
            Watch::Alive | Watch::Changed(_) => {}
            // The view stays usable: a hint may be false, and hints without end must not keep a
            // candidate from acting on what it has read.
            Watch::Hint => self.schedule.read_at(now),
            Watch::Unclear if self.is_late() => self.schedule.read_at(now),
            Watch::Unclear => self.read_before_write(now),
        }
        self.contact(timings, now);
        if let Watch::Changed(lease) = watch {
            Some(lease)
        } else {
            None
        }
    }

    /// Handles the opening of a source of changes.
    fn follow(&mut self, following: Following, now: BootTime) {
        // The read must follow the opening so that no change in between is missed. A read in flight
        // may have been answered before the opening, so it is dropped.
        self.following = following;
        self.schedule.in_flight = None;
        self.schedule.read_at(now);
    }

    /// Requests a new stream or cursor, because the open one can no longer be trusted.
    pub(super) fn reopen(&mut self) -> Option<Effect> {
        let open = std::mem::replace(&mut self.following, Following::Nothing).is_open();
        open.then_some(Effect::ReopenStream)
    }

    /// Reads immediately if a read is scheduled.
    pub(super) fn hurry(&mut self, now: BootTime) {
        if self.schedule.due.is_some() {
            self.schedule.read_at(now);
        }
    }

    /// Checks that a candidate which is not busy does not stay behind the store.
    pub(super) fn check_invariants(&self, idle: bool) {
        let looks = self.schedule.is_active();
        assert!(
            !(idle && self.is_blind()) || looks,
            "behind the store, and no read is due"
        );
    }
}

#[cfg(all(test, not(proof)))]
impl LeaseReads {
    /// Drops all reads, which no input does while the view is behind.
    pub(super) fn never(&mut self) {
        (self.schedule.in_flight, self.schedule.due) = (None, None);
    }
}
