//! Options of a candidate.

use std::time::Duration;

use super::effect::Acquisition;
use super::input::Tunables;
use super::lease::{Claim, Declared, Identity, Revision, Session, Token};
use super::time::BootTime;
use super::timings::Timings;
use crate::claim::Turn;

/// Identity and behavior of a candidate: [`Candidate::new`] and assignments to the fields.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Candidate {
    /// Name of the candidate.
    pub identity: Identity,
    /// Durations of the candidate.
    pub tunables: Tunables,
    /// The highest token recorded in the status directory.
    pub token_remembered: Token,
    /// The longest lease duration seen up to that token, if the status directory has one.
    pub lease_longest_remembered: Option<Duration>,
    /// True if the candidate supervises its workload, so that [`Effect::Workload`](super::Effect::Workload) is carried out.
    pub supervises: bool,
    /// The claim recorded in the status directory, if the process that made it has provably exited:
    /// this process holds the claim's lock, in the same boot.
    pub predecessor_claim: Option<Claim>,
    /// True if the candidate registers as the standby of a leader that has none.
    pub stands_by: bool,
    /// Priority of the candidate; a higher one is preferred as the standby.
    pub priority: u32,
}

impl Candidate {
    /// Creates a candidate with the default durations that remembers nothing.
    pub fn new(identity: Identity) -> Self {
        Self {
            identity,
            tunables: Tunables::default(),
            token_remembered: Token::ZERO,
            lease_longest_remembered: None,
            supervises: false,
            predecessor_claim: None,
            stands_by: true,
            priority: 0,
        }
    }
}

/// Identity and current settings of this process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Participant {
    pub(super) identity: Identity,
    pub(super) session: Session,
    pub(super) priority: u32,
    pub(super) tunables: Tunables,
}

impl Participant {
    pub(super) fn new(candidate: &Candidate, session: Session) -> Self {
        Self {
            identity: candidate.identity.clone(),
            session,
            priority: candidate.priority,
            tunables: candidate.tunables,
        }
    }

    pub(super) fn timings(&self) -> &Timings {
        &self.tunables.timings
    }

    /// Returns the instant of the next attempt after a failure or a poll.
    pub(super) fn retry_at(&self, turn: &mut Turn<'_>) -> BootTime {
        turn.now + turn.jittered(self.timings().retry_interval())
    }

    pub(super) fn acquisition(
        &self,
        token: Token,
        expected: Revision,
        turn: &mut Turn<'_>,
    ) -> Acquisition {
        Acquisition {
            claim: Claim::random(turn.random),
            revision: Revision::random(turn.random),
            token,
            expected,
            session: self.session,
            lease_duration: Declared::of(self.timings().lease_duration()),
            renew_interval: Some(self.timings().renew_interval()),
        }
    }

    /// Draws a new session, because another process uses this session.
    pub(super) fn renew_session(&mut self, turn: &mut Turn<'_>) {
        self.session = Session::random(turn.random);
    }
}
