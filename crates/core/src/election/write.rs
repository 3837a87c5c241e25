//! The writes of a candidate without a claim that leads: create, acquire, adopt and release.
//!
//! None grants authority by itself. This module does not decide which one is sent.

use super::claims::{Attempt, EndedClaim, OpenClaims};
use super::decide::Predecessor;
use super::effect::{Acquisition, CallId, HistoryEntry, Operation};
use super::input::{Found, Outcome};
use super::lease::{Claim, Lease, Revision, Token};
use super::time::BootTime;
use super::timings::Timings;
use crate::claim::Turn;

/// The write in flight, at most one at a time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum WriteInFlight {
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

pub(super) enum WriteReply {
    /// The document was created; true if another one was seen during the insert.
    Created(Found, bool),
    /// A document exists although none was read.
    Exists,
    Acquired(Box<Acquired>),
    Released(Found),
    /// Another candidate was faster to acquire the free lease.
    RaceLost,
    /// The holder renewed, or another candidate was faster, and the stream reported neither.
    Unreported,
    Rejected,
    /// The write failed, or its outcome is unknown.
    Retry,
}

/// An acknowledged acquisition, which may lead.
pub(super) struct Acquired {
    pub(super) attempt: Attempt,
    /// The acknowledged revision, and the instant at which it was sent.
    pub(super) revision: Revision,
    pub(super) sent: BootTime,
    pub(super) lease: Lease,
    pub(super) from: Predecessor,
}

impl WriteInFlight {
    pub(super) fn create(token: Token, turn: &mut Turn<'_>) -> Self {
        let revision = Revision::random(turn.random);
        Self::Creating {
            call: turn.effects.send(Operation::Create { revision, token }),
            revision,
            overtaken: false,
        }
    }

    /// Acquires `lease`; with the history entry of its holder, from the holder.
    pub(super) fn acquire(
        acquisition: Acquisition,
        (lease, ended): (&Lease, Option<HistoryEntry>),
        from: Predecessor,
        timings: Timings,
        turn: &mut Turn<'_>,
    ) -> Self {
        let (claim, revision, token) = (acquisition.claim, acquisition.revision, acquisition.token);
        let holder = lease.holder.as_ref().map(|holder| holder.claim);
        let call = turn.effects.send(match holder.zip(ended) {
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
        Self::Acquiring { attempt, from }
    }

    pub(super) fn adopt(attempt: Attempt, turn: &mut Turn<'_>) -> Self {
        let revision = Revision::random(turn.random);
        let call = turn.effects.send(Operation::Renew {
            claim: attempt.claim,
            revision,
            chain: attempt.chain.clone(),
        });
        Self::Adopting {
            attempt,
            call,
            revision,
            sent: turn.now,
        }
    }

    pub(super) fn release(ended: &EndedClaim, turn: &mut Turn<'_>) -> Self {
        let call = turn.effects.send(Operation::Release {
            claim: ended.claim,
            revision: Revision::random(turn.random),
            chain: ended.chain.clone(),
            ended: ended.entry.clone(),
            reserved_for: ended.reserved_for.clone(),
        });
        Self::Releasing {
            call,
            claim: ended.claim,
        }
    }

    pub(super) fn call(&self) -> CallId {
        match self {
            Self::Acquiring { attempt, .. } => attempt.call,
            Self::Creating { call, .. }
            | Self::Adopting { call, .. }
            | Self::Releasing { call, .. } => *call,
        }
    }

    pub(super) fn is_acquisition(&self) -> bool {
        matches!(self, Self::Acquiring { .. })
    }

    fn attempt_mut(&mut self) -> Option<&mut Attempt> {
        match self {
            Self::Acquiring { attempt, .. } | Self::Adopting { attempt, .. } => Some(attempt),
            Self::Creating { .. } | Self::Releasing { .. } => None,
        }
    }

    /// Records that a reply or event, trusted or not, showed this document.
    pub(super) fn shown(&mut self, lease: &Lease, is_reply: bool) {
        if let Self::Creating {
            revision,
            overtaken,
            ..
        } = self
        {
            *overtaken |= *revision != lease.revision;
        }
        if let Some(attempt) = self.attempt_mut() {
            attempt.shown(lease, is_reply);
        }
    }

    /// Marks an acquisition as cancelled; returns false for any other write.
    pub(super) fn cancel(&mut self) -> bool {
        let attempt = self.attempt_mut();
        attempt.map(|attempt| attempt.cancelled = true).is_some()
    }

    /// Handles the reply to this write.
    pub(super) fn reply(
        self,
        outcome: Outcome,
        claims: &mut OpenClaims,
        now: BootTime,
    ) -> WriteReply {
        match self {
            Self::Creating { overtaken, .. } => match outcome {
                Outcome::Applied(found) => WriteReply::Created(found, overtaken),
                Outcome::Rejected => WriteReply::Exists,
                Outcome::Failed | Outcome::Unknown => WriteReply::Retry,
            },
            Self::Acquiring { attempt, from } => match outcome {
                Outcome::Applied(Found::Lease(lease)) if attempt.holds(&lease) => {
                    let late = planted!(AcquisitionFromReply);
                    WriteReply::Acquired(Box::new(Acquired {
                        revision: attempt.chain[0],
                        sent: if late { now } else { attempt.sent },
                        attempt,
                        lease,
                        from,
                    }))
                }
                Outcome::Rejected => match from {
                    Predecessor::Nobody => WriteReply::RaceLost,
                    Predecessor::Expired { .. } | Predecessor::Dead { .. } => {
                        WriteReply::Unreported
                    }
                    Predecessor::Myself => WriteReply::Rejected,
                },
                Outcome::Failed => WriteReply::Retry,
                Outcome::Applied(_) | Outcome::Unknown => {
                    claims.add_pending(attempt);
                    WriteReply::Retry
                }
            },
            Self::Adopting {
                mut attempt,
                revision,
                sent,
                ..
            } => match outcome {
                Outcome::Applied(Found::Lease(lease)) if attempt.holds(&lease) => {
                    // Authority counts from the renewal, because the reply to the acquisition never
                    // came.
                    attempt.chain.push(revision);
                    WriteReply::Acquired(Box::new(Acquired {
                        attempt,
                        revision,
                        sent,
                        lease,
                        from: Predecessor::Nobody,
                    }))
                }
                Outcome::Rejected => {
                    claims.remove_pending(attempt.claim);
                    WriteReply::Rejected
                }
                Outcome::Failed => WriteReply::Retry,
                Outcome::Applied(_) | Outcome::Unknown => {
                    claims.extend_pending(attempt.claim, revision);
                    WriteReply::Retry
                }
            },
            Self::Releasing { claim, .. } => match outcome {
                Outcome::Applied(found) => {
                    claims.remove_ended(claim);
                    WriteReply::Released(found)
                }
                Outcome::Rejected => {
                    claims.remove_ended(claim);
                    WriteReply::Rejected
                }
                Outcome::Failed | Outcome::Unknown => WriteReply::Retry,
            },
        }
    }
}
