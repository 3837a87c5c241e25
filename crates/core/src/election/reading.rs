//! Reading the document: when, what is believed, and what a reply shows.
//!
//! Nothing here writes. A reply that claims that the store went back is not
//! believed before a linearizable read says the same.

use super::effect::{Effect, Notice, Operation};
use super::input::{Found, Outcome};
use super::lead::Loss;
use super::lease::{Claim, Lease, Session, Token};
use super::status::Reason;
use super::time::BootTime;
use super::view::{self, Document};
use super::{Election, Reading, State, Turn};

impl Election {
    pub(super) fn read_soon(&mut self, now: BootTime) {
        self.read_due = Some(self.read_due.map_or(now, |due| due.min(now)));
    }

    /// When to come back for a read; `None` while one is under way.
    pub(super) fn next_read(&self) -> Option<BootTime> {
        if self.reading.is_some() {
            None
        } else {
            self.read_due
        }
    }

    /// Reads if that is due and nothing is being read.
    pub(super) fn read_if_due(&mut self, turn: &Turn<'_>) {
        if self.reading.is_none() && self.read_due.is_some_and(|due| due <= turn.now) {
            self.read(false);
        }
    }

    fn read(&mut self, checks_stream: bool) {
        let confirm = self.suspicious;
        let call = self.call(Operation::Read { confirm });
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

    /// Reads beside an open stream, which may be stale although it answers:
    /// once in each lease duration, and more often while the holder seems not
    /// to renew. Returns when the next such read is due.
    pub(super) fn check_stream(&mut self, turn: &Turn<'_>) -> Option<BootTime> {
        if !self.watch_open || self.reading.is_some() || self.read_due.is_some() {
            return None;
        }
        let timings = &self.tunables.timings;
        let regular = self.looked_at + timings.lease_duration();
        let silence = self.looked_at.max(self.view.seen) + 2 * timings.renew_interval();
        let is_held = self.view.lease().is_some_and(|l| l.holder.is_some());
        let due = match (planted!(NoRegularRead), planted!(SilenceTrusted)) {
            (true, true) => return None,
            (true, false) if is_held => silence,
            (true, false) => return None,
            (false, false) if is_held => regular.min(silence),
            (false, _) => regular,
        };
        if due > turn.now {
            return Some(due);
        }
        self.read(true);
        None
    }

    /// The cursor of an open stream stays on the member that it was opened on,
    /// also when that one is not the primary any more and lags behind.
    pub(super) fn leave_old_primary(&mut self) {
        if !planted!(StreamKeptAcrossElections) {
            self.reopen_stream();
        }
    }

    /// The open stream is not to be trusted any more.
    pub(super) fn reopen_stream(&mut self) {
        if std::mem::replace(&mut self.watch_open, false) {
            self.effects.push_back(Effect::ReopenStream);
        }
    }

    /// Takes the document that a read shows for what the stream failed to report.
    fn judge_stream(&mut self, found: &Found) {
        let unchanged = match (found, &self.view.document) {
            (Found::Lease(now), Document::Lease(before)) => now == before,
            (Found::Missing, Document::Missing) | (Found::Foreign(_), Document::Foreign(_)) => true,
            _ => false,
        };
        if !unchanged && !planted!(StaleStreamKept) {
            self.reopen_stream();
        }
    }

    /// Reads again after a while if nothing else will tell what others do: there
    /// is no change stream, or the view is behind it. A candidate's own write
    /// leaves no read due: after its release it would meet its successor only
    /// when it may contend again, and wait a whole lease duration from then on.
    pub(super) fn keep_looking(&mut self, turn: &mut Turn<'_>) {
        let blind = !self.watch_open || self.view.behind || self.suspicious;
        if blind && self.reading.is_none() && self.read_due.is_none() {
            self.read_due = Some(turn.now + turn.jittered(self.tunables.timings.retry_interval()));
        }
    }

    /// A read came back.
    pub(super) fn read_reply(&mut self, outcome: Outcome, turn: &mut Turn<'_>) {
        let Some(reading) = self.reading.take() else {
            return;
        };
        let found = match outcome {
            Outcome::Applied(found) => found,
            Outcome::Rejected | Outcome::Failed | Outcome::Unknown => {
                let retry = turn.now + turn.jittered(self.tunables.timings.retry_interval());
                self.read_due = Some(self.read_due.map_or(retry, |due| due.min(retry)));
                self.settle_check(None, turn);
                return;
            }
        };
        self.suspicious = false;
        if let view::Plausible::WentBack { seen, found: token } = self.view.judge(&found) {
            // What was seen after the read was sent may be newer than what it
            // answers: that needs another one.
            let conclusive = reading.confirm && reading.token_known == Some(seen);
            if conclusive || planted!(StaleReadBelieved) {
                self.store_went_back(seen, token, turn);
            } else {
                // A deposed primary answers a majority read in just this way:
                // only a linearizable read is proof.
                self.suspicious = true;
                self.read_soon(turn.now);
                return;
            }
        }
        self.looked_at = turn.now;
        if reading.overtaken && self.shows_another_revision(&found) {
            // The event may have been older than this, or newer: nothing is
            // written before another read tells.
            self.fall_behind(turn.now);
            return;
        }
        if reading.checks_stream {
            self.judge_stream(&found);
        }
        // News that came while the read was under way may not be in it.
        self.view.behind = self.read_due.is_some_and(|due| due <= turn.now);
        let contending = matches!(self.state, State::Contending(_));
        if contending && (!self.watch_open || matches!(found, Found::Foreign(_))) {
            let poll = turn.now + turn.jittered(self.tunables.timings.retry_interval());
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

    fn shows_another_revision(&self, found: &Found) -> bool {
        let contending = matches!(self.state, State::Contending(_));
        let shown = match found {
            Found::Lease(lease) => Some(lease.revision),
            Found::Missing | Found::Foreign(_) => None,
        };
        contending && shown != self.view.revision()
    }

    /// A rejected claim's document was read, or could not be.
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
            // My claim with a revision that I never sent: a forked machine
            // renews it, or somebody edited the document.
            self.notice(Notice::Duplicate {
                session: self.session,
            });
            self.session = Session::random(turn.random);
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
            self.tunables.timings.lease_duration()
        } else {
            self.view.lease_longest()
        };
        self.quarantine = Some(turn.now + wait);
        self.notice(Notice::StoreWentBack { seen, found, wait });
        // Claims that were open there may be stored again: nothing here can
        // tell them from a stranger's.
        self.pending.clear();
        self.ended.clear();
        if self.tenure().is_some() && !planted!(LeadsAfterStoreWentBack) {
            self.lose(Loss::StoreWentBack, turn);
        } else {
            self.reason = Some(Reason::StoreWentBack);
            if let State::Contending(contending) = &mut self.state {
                contending.checking = None;
            }
        }
    }

    /// Somebody else acquired since: what these claims waited for is gone, and
    /// if a restored document brings it back they are strangers' claims.
    fn forget_superseded(&mut self, lease: &Lease) {
        let holder = lease.holder.as_ref().map(|h| h.claim);
        let recorded = self.remembered.claim;
        let mut forgotten = false;
        let mut keep = |claim: Claim, superseded: bool| {
            let keep = !superseded || holder == Some(claim);
            forgotten |= !keep && recorded == Some(claim);
            keep
        };
        self.pending
            .retain(|p| keep(p.claim, p.token <= lease.token));
        self.ended
            .retain(|e| keep(e.claim, e.entry.token < lease.token));
        if forgotten {
            self.forget_claim();
        }
    }

    /// Takes what a reply or a believed event showed into the view.
    pub(super) fn observe(&mut self, found: Found, turn: &mut Turn<'_>) {
        let foreign_before = matches!(self.view.document, Document::Foreign(_));
        let revision_before = self.view.revision();
        if let Found::Lease(lease) = &found {
            self.heed(lease);
            self.forget_superseded(lease);
            if let (Some(out), Some(holder)) = (self.stay_out, &lease.holder)
                && holder.session != out.session
                && lease.token > out.token
            {
                self.stay_out = None;
            }
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
                self.notice(Notice::AbsurdDuration { identity, millis });
            }
        }
        if let (false, Found::Foreign(why)) = (foreign_before, &found) {
            self.notice(Notice::Foreign { why: why.clone() });
        }
        self.view.observe(found, turn.now);
        if self.view.revision() != revision_before {
            self.new_revision_seen(turn);
        }
    }
}
