use super::decide::Predecessor;
use super::{AfterWrite, Contender};
use crate::claim::{Rollback, Turn};
use crate::election::claims::{Attempt, EndedClaim};
use crate::election::{
    Acquisition, BootTime, CallId, Claim, Declared, Found, HEAD_START, HistoryEntry, Lease,
    Operation, Outcome, Revision, Token,
};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum WriteInFlight {
    Creating {
        call: CallId,
        revision: Revision,
        /// True if another document was seen after the insert was sent.
        overtaken: bool,
    },
    Acquiring {
        attempt: Attempt,
        from: Predecessor,
    },
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

pub(crate) struct Acquired {
    pub(crate) attempt: Attempt,
    pub(crate) revision: Revision,
    pub(crate) sent: BootTime,
    pub(crate) lease: Lease,
    pub(super) from: Predecessor,
}

impl WriteInFlight {
    pub(super) fn call(&self) -> CallId {
        match self {
            Self::Acquiring { attempt, .. } => attempt.call,
            Self::Creating { call, .. }
            | Self::Adopting { call, .. }
            | Self::Releasing { call, .. } => *call,
        }
    }

    pub(super) fn shown(&mut self, lease: &Lease, is_reply: bool) {
        match self {
            Self::Creating {
                revision,
                overtaken,
                ..
            } => *overtaken |= *revision != lease.revision,
            Self::Acquiring { attempt, .. } | Self::Adopting { attempt, .. } => {
                attempt.shown(lease, is_reply);
            }
            Self::Releasing { .. } => {}
        }
    }

    pub(super) fn cancel(&mut self) -> bool {
        let (Self::Acquiring { attempt, .. } | Self::Adopting { attempt, .. }) = self else {
            return false;
        };
        attempt.cancelled = true;
        true
    }
}

impl Contender {
    pub(super) fn create(&mut self, turn: &mut Turn<'_>) {
        let (revision, token) = (Revision::random(turn.random), self.view.marks.token_highest);
        let call = turn.effects.send(Operation::Create { revision, token });
        self.write = Some(WriteInFlight::Creating {
            call,
            revision,
            overtaken: false,
        });
    }

    pub(super) fn acquire(
        &mut self,
        token: Token,
        (lease, ended): (&Lease, Option<HistoryEntry>),
        from: Predecessor,
        turn: &mut Turn<'_>,
    ) {
        if let Some(announced) = &mut self.reads.announced {
            announced.tried = true;
        }
        let timings = *self.me.timings();
        let (claim, revision) = (Claim::random(turn.random), Revision::random(turn.random));
        let acquisition = Acquisition {
            claim,
            revision,
            token,
            expected: lease.revision,
            session: self.me.session,
            lease_duration: Declared::of(timings.lease_duration()),
            renew_interval: Some(timings.renew_interval()),
        };
        // The next process on this directory must know the claim. The record must not contain a
        // token that no document has shown, because a store without this token would then seem
        // rolled back.
        let recorded = self.record.set(Some(claim), &self.view);
        turn.effects.push(recorded);
        let call = turn.effects.send(match lease.claim().zip(ended) {
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
        self.write = Some(WriteInFlight::Acquiring { attempt, from });
    }

    pub(super) fn adopt(&mut self, attempt: Attempt, turn: &mut Turn<'_>) {
        let revision = Revision::random(turn.random);
        let call = turn.effects.send(Operation::Renew {
            claim: attempt.claim,
            revision,
            chain: attempt.chain.clone(),
        });
        self.write = Some(WriteInFlight::Adopting {
            attempt,
            call,
            revision,
            sent: turn.now,
        });
    }

    pub(super) fn release(&mut self, ended: &EndedClaim, turn: &mut Turn<'_>) {
        self.claims.releasing(ended);
        // The reply to a read in flight may predate the release.
        self.reads.schedule.in_flight = None;
        let (claim, revision) = (ended.claim, Revision::random(turn.random));
        let call = turn.effects.send(Operation::Release {
            claim,
            revision,
            chain: ended.chain.clone(),
            ended: ended.entry.clone(),
            reserved_for: ended.reserved_for.clone(),
        });
        self.write = Some(WriteInFlight::Releasing { call, claim });
    }

    pub(crate) fn write_reply(
        &mut self,
        call: CallId,
        outcome: Outcome,
        turn: &mut Turn<'_>,
    ) -> AfterWrite {
        let Some(write) = self.write.take_if(|write| write.call() == call) else {
            self.late_reply(call, &outcome, turn.now);
            return AfterWrite::Nothing;
        };
        match (write, outcome) {
            (WriteInFlight::Creating { overtaken, .. }, Outcome::Applied(found)) => {
                let begun = self.created(&found, overtaken, turn);
                self.observe(found, turn);
                return begun;
            }
            (WriteInFlight::Creating { .. }, Outcome::Rejected) => {
                self.view.marks.note_existence();
                self.reads.fall_behind(turn.now);
            }
            (WriteInFlight::Acquiring { attempt, from }, Outcome::Applied(Found::Lease(lease)))
                if attempt.holds(&lease) =>
            {
                let acquired = Acquired {
                    revision: attempt.chain[0],
                    sent: planted!(AcquisitionFromReply, turn.now, attempt.sent),
                    attempt,
                    lease,
                    from,
                };
                return self.begin(acquired, turn);
            }
            (WriteInFlight::Acquiring { from, .. }, Outcome::Rejected) => {
                match from {
                    Predecessor::Nobody => self.waits.race_lost(),
                    // The stream missed a renewal or another candidate's acquisition.
                    Predecessor::Expired { .. } | Predecessor::Dead { .. } => {
                        turn.effects.extend(self.reads.reopen());
                    }
                    Predecessor::Myself => {}
                }
                self.reads.fall_behind(turn.now);
            }
            (
                WriteInFlight::Acquiring { attempt, .. },
                Outcome::Applied(_) | Outcome::PrimaryOnly | Outcome::Unknown,
            ) => {
                self.claims.add_pending(attempt);
                self.retry_write(turn);
            }
            (
                WriteInFlight::Adopting {
                    mut attempt,
                    revision,
                    sent,
                    ..
                },
                Outcome::Applied(Found::Lease(lease)),
            ) if attempt.holds(&lease) => {
                // Authority starts at this renewal, because the acquisition is unacknowledged.
                attempt.chain.push(revision);
                let acquired = Acquired {
                    attempt,
                    revision,
                    sent,
                    lease,
                    from: Predecessor::Nobody,
                };
                return self.begin(acquired, turn);
            }
            (WriteInFlight::Adopting { attempt, .. }, Outcome::Rejected) => {
                self.claims.remove_pending(attempt.claim);
                self.forget_recorded(attempt.claim, turn);
                self.reads.fall_behind(turn.now);
            }
            (
                WriteInFlight::Adopting {
                    attempt, revision, ..
                },
                Outcome::Applied(_) | Outcome::PrimaryOnly | Outcome::Unknown,
            ) => {
                self.claims.extend_pending(attempt.claim, revision);
                self.retry_write(turn);
            }
            (WriteInFlight::Releasing { claim, .. }, Outcome::Applied(found)) => {
                self.released(claim, turn);
                self.observe_written(found, turn);
            }
            (WriteInFlight::Releasing { claim, .. }, Outcome::PrimaryOnly) => {
                match self.shutdown.requested {
                    true => self.released(claim, turn),
                    // The claim is released again if a read shows that its release was rolled back.
                    false => self.claims.unconfirmed = Some(claim),
                }
                // The reply to a read in flight may predate the release. During the head start, the
                // successor usually acquires the lease.
                self.reads.schedule.in_flight = None;
                self.reads.read_before_write(turn.now + HEAD_START);
            }
            (WriteInFlight::Releasing { claim, .. }, Outcome::Rejected) => {
                // A late renewal of an exited process can cause the rejection. The claim of that
                // process is still proof. Any other stored claim has a renewal of a twin.
                match self.claims.exited.is_some_and(|it| it.claim == claim) {
                    true => self.claims.remove_ended(claim),
                    false => self.released(claim, turn),
                }
                self.reads.fall_behind(turn.now);
            }
            (_, Outcome::Failed)
            | (WriteInFlight::Creating { .. }, Outcome::PrimaryOnly)
            | (
                WriteInFlight::Creating { .. } | WriteInFlight::Releasing { .. },
                Outcome::Unknown,
            ) => self.retry_write(turn),
        }
        AfterWrite::Nothing
    }

    pub(super) fn released(&mut self, claim: Claim, turn: &mut Turn<'_>) {
        self.claims.remove_ended(claim);
        self.forget_recorded(claim, turn);
    }

    /// Removes a claim that is no longer stored from the record in the status directory. If a
    /// restored document or a twin's renewal brings the claim back, another candidate may lead.
    pub(super) fn forget_recorded(&mut self, claim: Claim, turn: &mut Turn<'_>) {
        if self.record.claim == Some(claim) {
            turn.effects.push(self.record.set(None, &self.view));
        }
    }

    fn retry_write(&mut self, turn: &mut Turn<'_>) {
        self.reads.read_before_write(self.me.retry_at(turn));
    }

    /// Handles a created document. If another document was seen after the insert was sent, that
    /// document's holder may still lead.
    fn created(&mut self, found: &Found, overtaken: bool, turn: &mut Turn<'_>) -> AfterWrite {
        let rollback = match (self.view.rollback(found), found) {
            (Some(rollback), _) => rollback,
            (None, Found::Lease(lease)) if overtaken => Rollback {
                seen: self.view.marks.token_highest,
                found: Some(lease.token),
            },
            (None, _) => return AfterWrite::Nothing,
        };
        self.rolled_back(rollback, turn);
        AfterWrite::StoreRolledBack
    }

    /// Handles the late reply to a call whose outcome counted as unknown. The reply grants nothing,
    /// but may trigger a read.
    fn late_reply(&mut self, call: CallId, outcome: &Outcome, now: BootTime) {
        let pending = &mut self.claims.pending;
        match outcome {
            Outcome::Rejected | Outcome::Failed => pending.retain(|p| p.call != call),
            Outcome::Applied(_) if pending.iter().any(|p| p.call == call) => {
                self.reads.fall_behind(now);
            }
            // The late reply shows a foreign document, so a read should precede the next write.
            Outcome::Applied(Found::Foreign(_)) => self.reads.fall_behind(now),
            // After a rollback, the newer claim may still lead, and only a read shows the rollback.
            Outcome::Applied(Found::Lease(lease))
                if (self.view.lease()).is_some_and(|known| lease.token > known.token) =>
            {
                self.reads.late_reply(now);
            }
            Outcome::Applied(_) | Outcome::PrimaryOnly | Outcome::Unknown => {}
        }
    }
}
