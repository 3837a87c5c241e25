use std::time::Duration;

use super::{BootTime, Claim, Identity, Session, Timings, Token, Tunables};
use crate::claim::Turn;

/// Identity and settings of a candidate. Call [`Candidate::new`], then assign the other fields.
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
    /// The longest lease duration that is recorded with `token_remembered`, if any.
    pub lease_longest_remembered: Option<Duration>,
    /// True if the workload is supervised with [`Effect::Workload`](super::Effect::Workload).
    pub supervises: bool,
    /// The claim of the previous process on this status directory, if that process has provably
    /// exited.
    pub predecessor_claim: Option<Claim>,
    /// True if the candidate releases `predecessor_claim` instead of leading again immediately.
    #[cfg_attr(feature = "serde", serde(default))]
    pub releases_predecessor: bool,
    /// True if the candidate registers as the standby of a leader that has none.
    pub stands_by: bool,
    /// Priority of the candidate. The candidate with the highest priority is the preferred standby.
    pub priority: u32,
    /// Difference between a clock that all candidates share, such as the wall clock, and the boot
    /// clock. If set, a leader sends renewals up to 1/1024 of an interval early, so that renewals
    /// of different leases coincide.
    #[cfg_attr(feature = "serde", serde(default))]
    pub shared_clock_offset: Option<Duration>,
}

impl Candidate {
    /// Creates a candidate with the default durations and without values of an earlier process.
    pub fn new(identity: Identity) -> Self {
        Self {
            identity,
            tunables: Tunables::default(),
            token_remembered: Token::ZERO,
            lease_longest_remembered: None,
            supervises: false,
            predecessor_claim: None,
            releases_predecessor: false,
            stands_by: true,
            priority: 0,
            shared_clock_offset: None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Participant {
    pub(super) identity: Identity,
    pub(super) session: Session,
    pub(super) priority: u32,
    pub(super) releases_predecessor: bool,
    pub(super) tunables: Tunables,
    pub(super) shared_clock_offset: Option<Duration>,
}

impl Participant {
    pub(super) fn timings(&self) -> &Timings {
        &self.tunables.timings
    }

    pub(super) fn retry_at(&self, turn: &mut Turn<'_>) -> BootTime {
        turn.now + turn.jittered(self.timings().retry_interval())
    }
}
