//! How a candidate learns of changes: by a change stream, by hints, or not at all.
//!
//! An event or a hint is never authority. It makes a candidate read, or shows it a document on which
//! it may try a compare-and-set.

use super::input::{Found, Watch};
use super::lease::Lease;
use super::phase::Phase;
use super::time::BootTime;
use super::{Effect, Election, Turn, view};

/// The open source of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Following {
    /// None: the candidate polls.
    Nothing,
    /// A change stream, which reports every change of the document.
    Stream,
    /// A change stream that may report a change seconds later. An event only makes the candidate
    /// read, and renewals are read shortly after each is expected.
    LateStream(Phase),
    /// Hints of other candidates and of operators, which report no renewals. Renewals are read
    /// shortly after each is expected.
    Hints(Phase),
}

impl Following {
    pub(super) fn is_open(self) -> bool {
        self != Self::Nothing
    }

    /// Returns the estimate of the holder's renewals, if they are read and not reported.
    pub(super) fn phase(&mut self) -> Option<&mut Phase> {
        match self {
            Self::LateStream(phase) | Self::Hints(phase) => Some(phase),
            Self::Nothing | Self::Stream => None,
        }
    }

    /// Returns true if renewals are read and not reported.
    pub(super) fn reads_renewals(mut self) -> bool {
        self.phase().is_some()
    }
}

impl Election {
    pub(super) fn watch(&mut self, watch: Watch, turn: &mut Turn<'_>) {
        match watch {
            Watch::Lost => {
                self.following = Following::Nothing;
                if self.state.tenure().is_none() {
                    self.read_soon(turn.now);
                }
                return;
            }
            Watch::Opened => self.follow(Following::Stream, turn.now),
            Watch::LateStreamOpened => {
                self.follow(Following::LateStream(Phase::default()), turn.now);
            }
            Watch::HintsOpened => self.follow(Following::Hints(Phase::default()), turn.now),
            Watch::Alive => {}
            // The view stays usable: a hint may be false, and hints without end must not keep a
            // candidate from acting on what it has read.
            Watch::Hint => self.read_soon(turn.now),
            Watch::Unclear if self.is_late() => self.read_soon(turn.now),
            Watch::Unclear => {
                self.view.behind = true;
                self.read_soon(turn.now);
            }
            Watch::Changed(lease) => self.changed(lease, turn),
        }
        self.contact(turn.now);
    }

    /// Handles the opening of a source of changes.
    fn follow(&mut self, following: Following, now: BootTime) {
        // The read must follow the opening so that no change in between is missed. A read in flight
        // may have been answered before the opening, so it is dropped.
        self.following = following;
        self.reading = None;
        self.read_soon(now);
    }

    /// Handles a change event. An event is a hint: it may be older than the last read, and it
    /// grants nothing.
    fn changed(&mut self, lease: Lease, turn: &mut Turn<'_>) {
        self.note_seen(&lease);
        self.shown_while_acquiring(&lease, false);
        let found = Found::Lease(lease);
        let believed = self.view.judge(&found) == view::Plausible::Yes;
        let Found::Lease(lease) = found else { return };
        #[cfg(proof)]
        if let (true, Some(tenure)) = (planted!(EventAsAuthority), self.state.tenure_mut()) {
            tenure.acknowledged_by_event(lease.revision);
        }
        match self.state.tenure() {
            Some(tenure) => {
                if !tenure.sent(lease.revision) || self.demand(&lease).is_some() {
                    self.read_soon(turn.now);
                } else {
                    self.view.note_standby(lease.standby);
                }
            }
            None if self.is_late() => {
                if self.is_newer(&lease) {
                    self.read_soon(turn.now);
                }
            }
            None if believed => {
                self.observe(Found::Lease(lease), turn);
                if let Some(reading) = &mut self.reading {
                    reading.overtaken = true;
                }
            }
            None => self.fall_behind(turn.now),
        }
    }

    fn is_late(&self) -> bool {
        matches!(self.following, Following::LateStream(_))
    }

    /// Returns true if an event of a late stream may show more than the last read did. Renewals of
    /// the known holder do not, because they are read when they are expected.
    fn is_newer(&self, lease: &Lease) -> bool {
        let Some(known) = self.view.lease() else {
            return true;
        };
        let claim = |lease: &Lease| lease.holder.as_ref().map(|holder| holder.claim);
        let changed = claim(lease) != claim(known) || lease.paused != known.paused;
        lease.token >= known.token && changed
    }

    pub(super) fn primary_changed(&mut self, turn: &mut Turn<'_>) {
        // The cursor of an open stream, or of hints, stays on the member that it was opened on, even
        // if that member is no longer the primary and lags behind.
        self.reopen_stream();
        if let Some(tenure) = self.state.tenure_mut() {
            tenure.hurry();
        } else if self.read_due.is_some() {
            self.read_soon(turn.now);
        }
    }

    /// Requests a new stream or cursor, because the open one can no longer be trusted.
    pub(super) fn reopen_stream(&mut self) {
        if std::mem::replace(&mut self.following, Following::Nothing).is_open() {
            self.outbox.push(Effect::ReopenStream);
        }
    }
}
