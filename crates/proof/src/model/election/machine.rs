//! One candidate's machine: its clock, its process, its status directory, and the calls and events
//! in flight between the machine and the store.

use std::hash::Hasher;
use std::time::Duration;

use crate::election::{
    BootTime, Candidate, Claim, Election, Identity, Operation, Outcome, Released, Token, Watch,
};
use crate::proof::model::calls::{self, Payload};
use crate::proof::model::canonical::{Canonical, EPOCH};
use crate::proof::model::draw::Draw;
use crate::proof::model::election::bounds::{Bounds, tunables};
use crate::proof::model::election::monitor::Monitor;
use crate::proof::model::pace::Pace;

#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(crate) identity: Identity,
    pub(crate) pace: Pace,
    pub(crate) election: Option<Election>,
    pub(crate) frozen: bool,
    pub(crate) directory: RecoveredState,
    /// The claim of the previous process, if that process is proven to have exited.
    pub(crate) proven_dead: Option<Claim>,
    /// The calls in flight, oldest first, including the calls of processes that have exited.
    pub(crate) calls: Calls,
    /// The events of the change stream, and the hints.
    pub(crate) events: Vec<Watch>,
    pub(crate) late_events: Vec<Watch>,
    /// The last release that the process announces with a hint. Later releases of the same claim
    /// are not announced.
    pub(crate) announced: Option<Released>,
    pub(crate) monitor: Monitor,
    stands_by: bool,
    hints: bool,
    priority: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct RecoveredState {
    pub(crate) claim: Option<Claim>,
    pub(crate) token: Token,
    pub(crate) lease_longest: Option<Duration>,
}

pub(crate) type Calls = calls::Calls<Operation>;
pub(crate) type Call = calls::Call<Operation, Outcome>;
pub(crate) type Place = calls::Place<Outcome>;

impl Payload for Operation {
    type Outcome = Outcome;

    fn may_be_late(&self) -> bool {
        self.writes()
    }

    fn writes(&self) -> bool {
        !matches!(self, Self::Read { .. })
    }
}

/// The election derives two kinds of values from a draw: the jitter in per mille is the draw modulo
/// `JITTER`, and each random delay in nanoseconds (at most 5, 10, 20 or 40 ms) is the draw modulo a
/// factor of `SPREADS`.
const JITTER: u128 = 401;
const SPREADS: u128 = 5_000_001 * 10_000_001 * 20_000_001 * 40_000_001;
/// `SPREADS * MIDDLE` modulo `JITTER` is the middle of the jitter's range.
const MIDDLE: u128 = {
    let mut factor = 0;
    while factor * (SPREADS % JITTER) % JITTER != JITTER / 2 {
        factor += 1;
    }
    factor
};

/// Returns a source whose draws all yield the middle of the jitter's range and no random delay.
pub(crate) fn draw(drawn: &mut u64) -> Draw<'_> {
    Draw {
        drawn,
        first: SPREADS * MIDDLE,
        step: SPREADS * JITTER,
    }
}

impl Machine {
    pub(crate) fn new(
        identity: Identity,
        pace: Pace,
        bounds: &Bounds,
        priority: Option<u32>,
    ) -> Self {
        Self {
            identity,
            pace,
            election: None,
            frozen: false,
            directory: RecoveredState::default(),
            proven_dead: None,
            calls: Calls::default(),
            events: Vec::new(),
            late_events: Vec::new(),
            announced: None,
            monitor: Monitor::default(),
            stands_by: bounds.standby,
            hints: bounds.hints,
            priority,
        }
    }

    pub(crate) fn clock(&self, ticks: u64) -> BootTime {
        BootTime::from_nanos(EPOCH + ticks * self.pace.milliseconds_per_tick * 1_000_000)
    }

    /// Starts a process. If `remembers` is true, the process finds its predecessor's status
    /// directory.
    pub(crate) fn start(&mut self, remembers: bool, ticks: u64, drawn: &mut u64) {
        let now = self.clock(ticks);
        if !remembers {
            self.directory = RecoveredState::default();
        }
        let candidate = Candidate {
            identity: self.identity.clone(),
            tunables: tunables(self.pace, self.priority.is_some()),
            token_remembered: self.directory.token,
            lease_longest_remembered: self.directory.lease_longest,
            supervises: false,
            predecessor_claim: self.directory.claim,
            releases_predecessor: false,
            stands_by: self.stands_by,
            priority: self.priority.unwrap_or(0),
            shared_clock_offset: None,
        };
        self.proven_dead = self.directory.claim;
        self.election = Some(Election::new(candidate, now, &mut draw(drawn)));
    }

    /// Ends the process. The store may still apply the calls in flight.
    pub(crate) fn die(&mut self) {
        self.election = None;
        self.frozen = false;
        self.events.clear();
        self.late_events.clear();
        self.announced = None;
        self.monitor = Monitor::default();
        self.calls.abandon();
    }

    /// Records the release if the process announces it. A process announces only the first release
    /// of a claim.
    pub(crate) fn announce(&mut self, operation: &Operation) {
        if let Operation::Release {
            claim,
            revision,
            reserved_for: Some(reserved_for),
            ..
        } = operation
            && self.hints
            && self.announced.as_ref().is_none_or(|it| it.claim != *claim)
        {
            self.announced = Some(Released {
                claim: *claim,
                revision: *revision,
                reserved_for: reserved_for.identity.clone(),
            });
        }
    }

    /// Returns true if the primary alone acknowledges this write.
    pub(crate) fn announces(&self, operation: &Operation) -> bool {
        let Operation::Release { revision, .. } = operation else {
            return false;
        };
        let announced = self.announced.as_ref();
        announced.is_some_and(|it| it.revision == *revision)
    }

    pub(crate) fn runs(&self) -> bool {
        self.election.is_some() && !self.frozen
    }

    pub(crate) fn due(&self, ticks: u64) -> bool {
        let now = self.clock(ticks);
        let wakeup = self.election.as_ref().and_then(Election::next_wakeup);
        self.runs() && wakeup.is_some_and(|at| at <= now)
    }

    /// Returns true if the process has authority by its own clock.
    pub(crate) fn leads(&self, ticks: u64) -> bool {
        let now = self.clock(ticks);
        self.election
            .as_ref()
            .is_some_and(|election| election.status().leads_at(now))
    }

    pub(crate) fn canonicalise<H: Hasher>(&self, ticks: u64, to: &mut Canonical<'_, H>) {
        to.candidate(self.clock(ticks).as_nanos());
        let Self {
            identity: _,
            pace: _,
            stands_by: _,
            hints: _,
            priority: _,
            election,
            frozen,
            directory,
            proven_dead,
            calls,
            events,
            late_events,
            announced,
            monitor,
        } = self;
        to.put(&(election, frozen, directory, proven_dead));
        calls.canonicalise(to, |operation, to| to.put(operation));
        to.put(&(events, late_events, announced, monitor));
    }
}
