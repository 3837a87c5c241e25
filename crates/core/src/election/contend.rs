//! A candidate without a claim: what it may do about the lease as last seen.
//!
//! Nothing here has authority. A follower writes only if the lease is free, expired by its own
//! observation, held by its own ended claim, or held by a process that has provably exited (I8).
//! Each such write is a compare-and-set on the revision seen.

use super::claims::{Attempt, EndedClaim};
use super::decide::{Decision, Predecessor};
use super::effect::{Acquisition, CallId, HistoryEntry, Operation};
use super::input::{Found, Outcome};
use super::lease::{Claim, Declared, Lease, Revision};
use super::status::Reason;
use super::tenure::Tenure;
use super::time::BootTime;
use super::view::Plausible;
use super::{Election, State, Turn, earliest};

/// A candidate without a claim.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Contending {
    doing: Doing,
    /// A claim that was just rejected, kept until a read shows why.
    pub(super) checking: Option<Checking>,
}

/// A claim whose renewal the store rejected.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Checking {
    pub(super) claim: Claim,
    pub(super) chain: Vec<Revision>,
}

/// The write in flight, at most one at a time.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) enum Doing {
    #[default]
    Nothing,
    Creating {
        call: CallId,
        revision: Revision,
        /// True if another document was seen since. A successful insert then proves that it is
        /// gone.
        overtaken: bool,
    },
    Acquiring {
        attempt: Attempt,
        from: Predecessor,
    },
    /// Renewing an acquisition whose outcome was unknown.
    Adopting {
        attempt: Attempt,
        call: CallId,
        revision: Revision,
        sent: BootTime,
    },
    Releasing {
        call: CallId,
        claim: Claim,
    },
}

impl Contending {
    pub(super) fn is_checking(&self) -> bool {
        self.checking.is_some()
    }

    pub(super) fn checking(claim: Claim, chain: Vec<Revision>) -> Self {
        Self {
            doing: Doing::Nothing,
            checking: Some(Checking { claim, chain }),
        }
    }
}

impl Election {
    /// Does everything that is due; returns the next wakeup.
    pub(super) fn contend(&mut self, turn: &mut Turn<'_>) -> Option<BootTime> {
        if let Some(shutdown) = self.shutdown {
            return self.finish(shutdown, turn);
        }
        if !self.is_busy() {
            self.reads.keep_looking(&self.me, turn);
        }
        self.reads
            .send_if_due(&self.view, &mut self.outbox, turn.now);
        if self.is_busy() || self.reads.is_blind() {
            return self.reads.next();
        }
        let mut wait = None;
        match self.decide(turn.now) {
            Decision::Wait(until) => {
                let checked = self.reads.check_stream(
                    &self.view,
                    self.me.timings(),
                    &mut self.outbox,
                    turn.now,
                );
                wait = earliest([until, checked, self.stand_by(turn)]);
            }
            Decision::Create => self.create(turn),
            Decision::Acquire(lease, from) => self.acquire(&lease, None, from, turn),
            Decision::TakeOver(lease, ended, from) => {
                self.acquire(&lease, Some(ended), from, turn);
            }
            #[cfg(proof)]
            Decision::Adopt(attempt) if planted!(AdoptedWithoutRenewal) => {
                self.lead_unrenewed(attempt, turn);
            }
            Decision::Adopt(attempt) => self.adopt(attempt, turn),
            Decision::Release(ended) => {
                self.reads.replace_due(turn.now);
                self.release(&ended, turn);
            }
        }
        earliest([wait, self.reads.next()])
    }

    pub(super) fn doing(&mut self) -> Option<&mut Doing> {
        match &mut self.state {
            State::Contending(contending) => Some(&mut contending.doing),
            State::Leading(_) | State::Stopping(_) | State::Exited => None,
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        match &self.state {
            State::Contending(contending) => {
                contending.doing != Doing::Nothing || contending.checking.is_some()
            }
            State::Leading(_) | State::Stopping(_) | State::Exited => false,
        }
    }

    /// Returns true if an acquisition is in flight.
    pub(super) fn is_acquiring(&self) -> bool {
        match &self.state {
            State::Contending(contending) => matches!(contending.doing, Doing::Acquiring { .. }),
            State::Leading(_) | State::Stopping(_) | State::Exited => false,
        }
    }

    pub(super) fn start(&mut self, doing: Doing) {
        if let State::Contending(contending) = &mut self.state {
            contending.doing = doing;
        }
    }

    fn acquire(
        &mut self,
        lease: &Lease,
        ended: Option<HistoryEntry>,
        from: Predecessor,
        turn: &mut Turn<'_>,
    ) {
        let Some(token) = self.view.next_token(lease) else {
            return;
        };
        let timings = self.me.tunables.timings;
        let acquisition = Acquisition {
            claim: Claim::random(turn.random),
            revision: Revision::random(turn.random),
            token,
            expected: lease.revision,
            session: self.me.session,
            lease_duration: Declared::of(timings.lease_duration()),
            renew_interval: Some(timings.renew_interval()),
        };
        let (claim, revision) = (acquisition.claim, acquisition.revision);
        // The next process on this directory must find the claim that may be stored. The token is
        // recorded only after it was seen in the store. Otherwise the next process would mistake a
        // store that never had the token for a store that was rolled back.
        self.record(Some(claim));
        let holder = lease.holder.as_ref().map(|holder| holder.claim);
        let call = self.outbox.call(match holder.zip(ended) {
            Some((holder, ended)) => Operation::TakeOver {
                acquisition,
                holder,
                ended,
            },
            None => Operation::Acquire(acquisition),
        });
        let attempt = Attempt {
            call,
            claim,
            chain: vec![revision],
            token,
            replaces: (lease.revision, lease.token),
            sent: turn.now,
            timings,
            overtaken: None,
            cancelled: false,
        };
        self.start(Doing::Acquiring { attempt, from });
    }

    fn adopt(&mut self, attempt: Attempt, turn: &mut Turn<'_>) {
        let revision = Revision::random(turn.random);
        let (claim, chain) = (attempt.claim, attempt.chain.clone());
        let call = self.outbox.call(Operation::Renew {
            claim,
            revision,
            chain,
        });
        self.start(Doing::Adopting {
            attempt,
            call,
            revision,
            sent: turn.now,
        });
    }

    /// Sends a release. From now on the claim is ended (for all callers it already was).
    pub(super) fn release(&mut self, ended: &EndedClaim, turn: &mut Turn<'_>) {
        self.claims.releasing(ended);
        self.reads.drop_in_flight();
        let call = self.outbox.call(Operation::Release {
            claim: ended.claim,
            revision: Revision::random(turn.random),
            chain: ended.chain.clone(),
            ended: ended.entry.clone(),
            reserved_for: ended.reserved_for.clone(),
        });
        self.start(Doing::Releasing {
            call,
            claim: ended.claim,
        });
    }

    /// Handles the reply to the write in flight, or a late reply to an earlier call.
    pub(super) fn contender_reply(&mut self, call: CallId, outcome: Outcome, turn: &mut Turn<'_>) {
        let doing = self.doing().map(std::mem::take).unwrap_or_default();
        match doing {
            Doing::Creating {
                call: id,
                overtaken,
                ..
            } if id == call => self.created(outcome, overtaken, turn),
            Doing::Acquiring { attempt, from } if attempt.call == call => {
                self.acquire_reply(attempt, from, outcome, turn);
            }
            Doing::Adopting {
                attempt,
                call: id,
                revision,
                sent,
            } if id == call => {
                self.adopt_reply(attempt, revision, sent, outcome, turn);
            }
            Doing::Releasing { call: id, claim } if id == call => {
                self.release_reply(claim, outcome, turn);
            }
            other @ (Doing::Nothing
            | Doing::Creating { .. }
            | Doing::Acquiring { .. }
            | Doing::Adopting { .. }
            | Doing::Releasing { .. }) => {
                self.start(other);
                self.late_reply(call, &outcome, turn);
            }
        }
    }

    /// Handles the true outcome of a call that had counted as unknown. The outcome grants no
    /// authority and at most triggers a read.
    fn late_reply(&mut self, call: CallId, outcome: &Outcome, turn: &mut Turn<'_>) {
        match outcome {
            Outcome::Rejected | Outcome::Failed => self.claims.remove_call(call),
            Outcome::Applied(_) if self.claims.awaits(call) => {
                self.reads.fall_behind(turn.now);
            }
            // The reply to an old read. The filters protect a foreign document from being written
            // to, but the next write should still be preceded by a read.
            Outcome::Applied(Found::Foreign(_)) => self.reads.fall_behind(turn.now),
            // It shows a claim that follows the document as last seen. If that document is stored
            // again, the claim may still lead, which only a read can notice.
            Outcome::Applied(Found::Lease(lease))
                if (self.view.lease()).is_some_and(|known| lease.token > known.token) =>
            {
                self.reads.late_reply(turn.now);
            }
            Outcome::Applied(_) | Outcome::Unknown => {}
        }
    }

    fn acquire_reply(
        &mut self,
        attempt: Attempt,
        from: Predecessor,
        outcome: Outcome,
        turn: &mut Turn<'_>,
    ) {
        match outcome {
            Outcome::Applied(Found::Lease(lease)) if attempt.holds(&lease) => {
                let (revision, mut sent) = (attempt.chain[0], attempt.sent);
                if planted!(AcquisitionFromReply) {
                    sent = turn.now;
                }
                self.begin(attempt, revision, sent, lease, from, turn);
            }
            Outcome::Rejected => {
                match from {
                    Predecessor::Nobody => {
                        self.waits.race_lost();
                    }
                    // The holder renewed, or another candidate was faster, and the stream reported
                    // neither.
                    Predecessor::Expired { .. } | Predecessor::Dead { .. } => {
                        self.outbox.extend(self.reads.reopen());
                    }
                    Predecessor::Myself => {}
                }
                self.reads.fall_behind(turn.now);
            }
            Outcome::Failed => self.retry_later(turn),
            Outcome::Applied(_) | Outcome::Unknown => {
                self.claims.add_pending(attempt);
                self.retry_later(turn);
            }
        }
    }

    fn adopt_reply(
        &mut self,
        mut attempt: Attempt,
        revision: Revision,
        sent: BootTime,
        outcome: Outcome,
        turn: &mut Turn<'_>,
    ) {
        match outcome {
            Outcome::Applied(Found::Lease(lease)) if attempt.holds(&lease) => {
                // Authority counts from the renewal, because the reply to the acquisition never
                // came.
                attempt.chain.push(revision);
                self.begin(attempt, revision, sent, lease, Predecessor::Nobody, turn);
            }
            Outcome::Rejected => {
                self.claims.remove_pending(attempt.claim);
                self.reads.fall_behind(turn.now);
            }
            Outcome::Failed => self.retry_later(turn),
            Outcome::Applied(_) | Outcome::Unknown => {
                self.claims.extend_pending(attempt.claim, revision);
                self.retry_later(turn);
            }
        }
    }

    /// Applies the reply to a write. A reply older than the view was overtaken by an event, or the
    /// store was rolled back; only a linearizable read can distinguish the two.
    pub(super) fn observe_written(&mut self, found: Found, turn: &mut Turn<'_>) {
        if self.view.judge(&found) == Plausible::Yes {
            self.reads.looked(turn.now);
            self.observe(found, turn);
        } else {
            self.reads.suspect(turn.now);
            self.reads.fall_behind(turn.now);
        }
    }

    fn release_reply(&mut self, claim: Claim, outcome: Outcome, turn: &mut Turn<'_>) {
        match outcome {
            Outcome::Applied(found) => {
                self.claims.remove_ended(claim);
                self.observe_written(found, turn);
            }
            Outcome::Rejected => {
                self.claims.remove_ended(claim);
                self.reads.fall_behind(turn.now);
            }
            Outcome::Failed | Outcome::Unknown => self.retry_later(turn),
        }
    }

    /// Schedules a read after a write that failed or has an unknown outcome.
    pub(super) fn retry_later(&mut self, turn: &mut Turn<'_>) {
        self.reads.read_before_write(self.me.retry_at(turn));
    }

    /// Returns the ended claim that remains of a tenure.
    pub(super) fn end(
        &self,
        tenure: &Tenure,
        reason: Reason,
        reserved_for: Option<super::Reservation>,
    ) -> EndedClaim {
        // While the lease is paused, no candidate may use a head start.
        let head_start = || (reason != Reason::Paused).then(|| self.reservation_of_standby());
        EndedClaim {
            claim: tenure.claim,
            chain: tenure.chain(),
            entry: HistoryEntry {
                token: tenure.token,
                identity: self.me.identity.clone(),
                acquired_at: tenure.acquired_at,
                reason,
            },
            reserved_for: reserved_for.or_else(|| head_start().flatten()),
        }
    }
}
