//! One candidate's machine: its clock, its process, its status directory, and the calls and events
//! in flight between it and the store.

use std::hash::Hasher;
use std::time::Duration;

use crate::election::{
    BootTime, CallId, Candidate, Claim, Election, Identity, Lease, Operation, Outcome, Randomness,
    Token,
};
use crate::model::bounds::{Pace, tunables};
use crate::model::canonical::{Canonical, EPOCH};
use crate::model::monitor::Monitor;

/// A machine that runs one candidate.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    /// Name of the candidate, the same after a restart.
    pub(crate) identity: Identity,
    /// Clock rate and lease duration.
    pub(crate) pace: Pace,
    /// The process, if one runs.
    pub(crate) election: Option<Election>,
    /// True if the process is paused.
    pub(crate) frozen: bool,
    /// Contents of the status directory.
    pub(crate) directory: RecoveredState,
    /// Claim of the previous process, proven to have exited when this process started.
    pub(crate) proven_dead: Option<Claim>,
    /// Calls in flight, oldest first, including those of processes that have exited.
    pub(crate) calls: Vec<Call>,
    /// Events that have not arrived yet, in order.
    pub(crate) events: Vec<Lease>,
    /// Delayed events.
    pub(crate) late_events: Vec<Lease>,
    /// Notes of the observer.
    pub(crate) monitor: Monitor,
    /// True if the candidate registers as standby.
    stands_by: bool,
    /// Its priority, if leaders prefer higher ones.
    priority: Option<u32>,
}

/// Contents of a status directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct RecoveredState {
    /// Newest claim sent.
    pub(crate) claim: Option<Claim>,
    /// Highest token seen.
    pub(crate) token: Token,
    /// Longest lease duration seen.
    pub(crate) lease_longest: Option<Duration>,
}

/// A call that was sent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Call {
    /// Id by which the waiting process knows the call; `None` once that process has exited.
    pub(crate) id: Option<CallId>,
    /// Requested operation.
    pub(crate) operation: Operation,
    /// Time of sending, by the sender's clock.
    pub(crate) sent: BootTime,
    /// True if the process has not received an answer.
    pub(crate) waiting: bool,
    /// Progress of the call.
    pub(crate) place: Place,
    /// Number by which actions name the call, unique across processes of the candidate.
    pub(crate) number: u64,
}

/// Progress of a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// On its way, to be served promptly.
    Sent,
    /// On its way, late or lost.
    Delayed,
    /// Applied on the primary only. The outcome is valid if a majority receives the write.
    Lagging(Outcome),
    /// Its answer is on its way, late or lost.
    Answered(Outcome),
    /// No answer will come.
    Lost,
}

/// Source of sequential ids. Modulo the numbers used for jitter and spread, every draw gives the
/// same values: the middle of the jitter, and no spread.
#[derive(Debug)]
pub(crate) struct Draw<'a>(pub &'a mut u64);

/// Moduli for which the election draws: per mille of jitter, and the spreads of 5, 10, 20 and 40 ms
/// in nanoseconds.
const JITTER: u128 = 401;
const SPREADS: u128 = 5_000_001 * 10_000_001 * 20_000_001 * 40_000_001;
/// Factor for which `SPREADS * MIDDLE` yields the middle of the jitter.
const MIDDLE: u128 = {
    let mut factor = 0;
    while factor * (SPREADS % JITTER) % JITTER != JITTER / 2 {
        factor += 1;
    }
    factor
};

impl Randomness for Draw<'_> {
    fn bits(&mut self) -> u128 {
        *self.0 += 1;
        SPREADS * (MIDDLE + JITTER * u128::from(*self.0))
    }
}

impl Machine {
    /// Creates a machine whose process has not started.
    pub(crate) fn new(
        identity: Identity,
        pace: Pace,
        stands_by: bool,
        priority: Option<u32>,
    ) -> Self {
        Self {
            identity,
            pace,
            election: None,
            frozen: false,
            directory: RecoveredState::default(),
            proven_dead: None,
            calls: Vec::new(),
            events: Vec::new(),
            late_events: Vec::new(),
            monitor: Monitor::default(),
            stands_by,
            priority,
        }
    }

    /// Returns the machine's clock after `ticks`.
    pub(crate) fn clock(&self, ticks: u64) -> BootTime {
        BootTime::from_nanos(EPOCH + ticks * self.pace.milliseconds_per_tick * 1_000_000)
    }

    /// Starts a process, on the same status directory if it `remembers`.
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
            stands_by: self.stands_by,
            priority: self.priority.unwrap_or(0),
        };
        self.proven_dead = self.directory.claim;
        self.election = Some(Election::new(candidate, now, &mut Draw(drawn)));
    }

    /// Ends the process. Calls that it sent may still land.
    pub(crate) fn die(&mut self) {
        self.election = None;
        self.frozen = false;
        self.events.clear();
        self.late_events.clear();
        self.monitor = Monitor::default();
        for call in &mut self.calls {
            call.id = None;
            call.waiting = false;
            call.sent = BootTime::default();
            if call.place == Place::Sent {
                call.place = Place::Delayed;
            }
        }
        self.tidy();
    }

    /// Removes calls that can have no further effect: answers for processes that have exited, and
    /// reads that no process waits for.
    pub(crate) fn tidy(&mut self) {
        self.calls.retain(|call| match call.place {
            Place::Sent | Place::Lagging(_) => true,
            Place::Delayed => call.waiting || !matches!(call.operation, Operation::Read { .. }),
            Place::Answered(_) => {
                call.id.is_some()
                    && (call.waiting || !matches!(call.operation, Operation::Read { .. }))
            }
            Place::Lost => call.waiting,
        });
    }

    /// Returns true if the process runs.
    pub(crate) fn runs(&self) -> bool {
        self.election.is_some() && !self.frozen
    }

    /// Returns true if its timer is due.
    pub(crate) fn due(&self, ticks: u64) -> bool {
        let now = self.clock(ticks);
        let wakeup = self.election.as_ref().and_then(Election::next_wakeup);
        self.runs() && wakeup.is_some_and(|at| at <= now)
    }

    /// Returns true if it has authority by its own clock.
    pub(crate) fn leads(&self, ticks: u64) -> bool {
        let now = self.clock(ticks);
        self.election
            .as_ref()
            .is_some_and(|election| election.status().leads_at(now))
    }

    /// Writes the canonical form.
    pub(crate) fn canonicalise<H: Hasher>(&self, ticks: u64, to: &mut Canonical<'_, H>) {
        to.candidate(self.clock(ticks).as_nanos());
        let Self {
            identity: _,
            pace: _,
            stands_by: _,
            priority: _,
            election,
            frozen,
            directory,
            proven_dead,
            calls,
            events,
            late_events,
            monitor,
        } = self;
        to.put(&(election, frozen, directory, proven_dead, calls.len()));
        for call in calls {
            let Call {
                id,
                operation,
                sent,
                waiting,
                place,
                number: _,
            } = call;
            to.put(id);
            to.put(operation);
            to.put(&(sent, waiting, place));
        }
        to.put(&(events, late_events, monitor));
    }
}
