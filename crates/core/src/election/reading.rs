//! Reads of the document: when to read, what to trust, and what to do with a reply.
//!
//! This module does not write. A reply that shows a rolled-back store is not trusted before a
//! linearizable read confirms it.

use std::time::Duration;

use super::effect::{Notice, Operation};
use super::following::Following;
use super::input::{Found, Outcome};
use super::lead::Loss;
use super::lease::{Holder, Lease, Session, Token};
use super::status::Reason;
use super::time::BootTime;
use super::view::{self, Document};
use super::{Election, Reading, State, Turn};

impl Election {
    pub(super) fn read_soon(&mut self, now: BootTime) {
        self.read_due = Some(self.read_due.map_or(now, |due| due.min(now)));
    }

    /// Returns the instant of the next read; `None` while one is in flight or none is due.
    pub(super) fn next_read(&self) -> Option<BootTime> {
        self.read_due.filter(|_| self.reading.is_none())
    }

    /// Sends a read if one is due and none is in flight.
    pub(super) fn read_if_due(&mut self, turn: &Turn<'_>) {
        if self.reading.is_none() && self.read_due.is_some_and(|due| due <= turn.now) {
            self.read(false);
        }
    }

    fn read(&mut self, checks_stream: bool) {
        let confirm = self.suspicious;
        if let Some(phase) = self.following.phase() {
            phase.asks(self.now);
        }
        let call = self.outbox.call(Operation::Read { confirm });
        let token_known = self.view.document_token();
        self.reading = Some(Reading {
            call,
            confirm,
            token_known,
            checks_stream,
            overtaken: false,
        });
        self.read_due = None;
    }

    /// Sends reads in addition to an open stream, which may be stale although it answers: once per
    /// lease duration, and more often while the holder appears not to renew. Hints report no
    /// renewals, and a late stream reports them too late; then only these reads show renewals.
    /// Returns the instant of the next such read.
    pub(super) fn check_stream(&mut self, turn: &Turn<'_>) -> Option<BootTime> {
        if !self.following.is_open() || self.reading.is_some() || self.read_due.is_some() {
            return None;
        }
        let timings = &self.me.tunables.timings;
        let regular = self.looked_at + timings.lease_duration();
        let silence = self.looked_at.max(self.view.seen) + 2 * timings.renew_interval();
        let is_held = self.view.lease().is_some_and(|l| l.holder.is_some());
        let checked = if is_held {
            regular.min(silence)
        } else {
            regular
        };
        let due = checked.min(self.renewal_due().unwrap_or(checked));
        if due > turn.now {
            return Some(due);
        }
        self.read(true);
        None
    }

    /// Returns the instant of the next read if renewals are not reported: right after the next
    /// renewal is expected, or one interval after the last read if nothing is renewed.
    fn renewal_due(&self) -> Option<BootTime> {
        let mut following = self.following;
        let phase = following.phase()?;
        let interval = self.renewals_every(self.view.lease());
        let renews = self
            .view
            .lease()
            .is_some_and(|l| l.holder.is_some() && !l.paused);
        let retry = self.me.timings().retry_interval();
        let expected = phase.next_read(interval, retry).filter(|_| renews);
        Some(expected.unwrap_or(self.looked_at + interval))
    }

    /// Returns the interval of the holder's renewals, as declared, or this candidate's own.
    fn renewals_every(&self, lease: Option<&Lease>) -> Duration {
        let holder = lease.and_then(|lease| lease.holder.as_ref());
        let declared = holder.and_then(Holder::renewals_every);
        declared.unwrap_or(self.me.timings().renew_interval())
    }

    /// Reopens the stream if a read shows a change that the stream did not report. A late stream
    /// may still report it.
    fn judge_stream(&mut self, found: &Found) {
        if matches!(self.following, Following::LateStream(_)) {
            return;
        }
        let unchanged = match (found, &self.view.document) {
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
        if !unchanged {
            self.reopen_stream();
        }
    }

    /// Schedules the next read if nothing else reports what others do: there is no change stream,
    /// or the view is behind. A candidate's own write does not schedule a read. Without this poll,
    /// a candidate that released would see its successor only when it may contend again, and would
    /// wait a whole lease duration from then on.
    pub(super) fn keep_looking(&mut self, turn: &mut Turn<'_>) {
        let blind = !self.following.is_open() || self.view.behind || self.suspicious;
        if blind && self.reading.is_none() && self.read_due.is_none() {
            let poll = self.me.retry_at(turn);
            // The stream may have been lost shortly before the regular read was due.
            let regular = self.looked_at + self.me.timings().lease_duration();
            let regular = Some(regular).filter(|regular| *regular > turn.now);
            self.read_due = regular.into_iter().chain([poll]).min();
        }
    }

    /// Handles the reply to a read.
    pub(super) fn read_reply(&mut self, outcome: Outcome, turn: &mut Turn<'_>) {
        let Some(reading) = self.reading.take() else {
            return;
        };
        let found = match outcome {
            Outcome::Applied(found) => found,
            Outcome::Rejected | Outcome::Failed | Outcome::Unknown => {
                let retry = self.me.retry_at(turn);
                self.read_soon(retry);
                self.settle_check(None, turn);
                return;
            }
        };
        self.suspicious = false;
        if let view::Plausible::WentBack { seen, found: token } = self.view.judge(&found) {
            // Anything seen after the read was sent may be newer than the reply, so another read is
            // needed.
            if reading.confirm && reading.token_known == Some(seen) {
                self.store_went_back(seen, token, turn);
            } else {
                // A deposed primary answers a majority read in the same way, so only a linearizable
                // read is proof.
                self.suspicious = true;
                self.read_soon(turn.now);
                return;
            }
        }
        self.looked_at = turn.now;
        if reading.overtaken && self.shows_another_revision(&found) {
            // The event may be older or newer than this reply. Another read must resolve this
            // before any write.
            self.fall_behind(turn.now);
            return;
        }
        if reading.checks_stream {
            self.judge_stream(&found);
        }
        // Changes reported while the read was in flight may not be in the reply.
        let in_phase = self.following.reads_renewals();
        self.view.behind = !in_phase && self.read_due.is_some_and(|due| due <= turn.now);
        self.note_renewal(&found, turn.now);
        let contending = matches!(self.state, State::Contending(_));
        if contending && (!self.following.is_open() || matches!(found, Found::Foreign(_))) {
            let poll = self.me.retry_at(turn);
            self.read_due = Some(self.read_due.map_or(poll, |due| due.min(poll)));
        }
        match self.state {
            State::Leading(_) | State::Stopping(_) => self.leader_read(found, turn),
            State::Contending(_) => {
                self.settle_check(Some(&found), turn);
                self.observe(found, turn);
            }
            State::Exited => {}
        }
    }

    /// Records the reply to a read for the estimate of the next renewal.
    fn note_renewal(&mut self, found: &Found, now: BootTime) {
        let lease = match found {
            Found::Lease(lease) => Some(lease),
            Found::Missing | Found::Foreign(_) => None,
        };
        let interval = self.renewals_every(lease);
        if let Some(phase) = self.following.phase() {
            phase.shows(lease, interval, now);
        }
    }

    fn shows_another_revision(&self, found: &Found) -> bool {
        let contending = matches!(self.state, State::Contending(_));
        let shown = match found {
            Found::Lease(lease) => Some(lease.revision),
            Found::Missing | Found::Foreign(_) => None,
        };
        contending && shown != self.view.revision()
    }

    /// Ends the check of a rejected claim, after its document was read or the read failed.
    pub(super) fn settle_check(&mut self, found: Option<&Found>, turn: &mut Turn<'_>) {
        let State::Contending(contending) = &mut self.state else {
            return;
        };
        let Some(checking) = contending.checking.take() else {
            return;
        };
        if let Some(Found::Lease(lease)) = found
            && lease
                .holder
                .as_ref()
                .is_some_and(|h| h.claim == checking.claim)
            && !checking.chain.contains(&lease.revision)
        {
            // The stored claim is this process's own, with a revision that it never sent: a forked
            // machine renews it, or the document was edited by hand.
            self.outbox.notice(Notice::Duplicate {
                session: self.me.session,
            });
            self.me.session = Session::random(turn.random);
            self.reason = Some(Reason::Duplicate);
        }
    }

    pub(super) fn store_went_back(
        &mut self,
        seen: Token,
        found: Option<Token>,
        turn: &mut Turn<'_>,
    ) {
        let wait = if planted!(OwnQuarantine) {
            self.me.timings().lease_duration()
        } else {
            self.view.lease_longest()
        };
        self.waits.quarantine_until(Some(turn.now + wait));
        self.outbox
            .notice(Notice::StoreRolledBack { seen, found, wait });
        self.claims.clear();
        if self.state.tenure().is_some() {
            self.lose(Loss::StoreRolledBack, turn);
        } else {
            self.reason = Some(Reason::StoreRolledBack);
            if let State::Contending(contending) = &mut self.state {
                contending.checking = None;
            }
        }
    }

    /// Applies the content of a reply or of a trusted event to the view.
    pub(super) fn observe(&mut self, found: Found, turn: &mut Turn<'_>) {
        let foreign_before = matches!(self.view.document, Document::Foreign(_));
        let revision_before = self.view.revision();
        if let Found::Lease(lease) = &found {
            self.note_seen(lease);
            if self.claims.forget_superseded(lease, self.recorded.claim) {
                self.forget_claim();
            }
            self.waits.observe(lease);
            let claim_before = self
                .view
                .lease()
                .and_then(|l| l.holder.as_ref())
                .map(|h| h.claim);
            if let Some(holder) = &lease.holder
                && holder.lease_duration.valid().is_none()
                && claim_before != Some(holder.claim)
            {
                let (identity, millis) = (holder.identity.clone(), holder.lease_duration.millis);
                self.outbox
                    .notice(Notice::InvalidLeaseDuration { identity, millis });
            }
        }
        if let (false, Found::Foreign(why)) = (foreign_before, &found) {
            self.outbox.notice(Notice::Foreign { why: why.clone() });
        }
        self.view.observe(found, turn.now);
        if self.view.revision() != revision_before {
            self.new_revision_seen(turn);
        }
    }
}
