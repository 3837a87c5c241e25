//! One candidate's machine: its clock, its process, its status directory, and
//! what is under way between it and the store.

use std::hash::Hasher;
use std::time::Duration;

use crate::election::{
    BootTime, CallId, Candidate, Claim, Election, Identity, Lease, Operation, Outcome, Randomness,
    Token,
};
use crate::model::bounds::{Pace, tunables};
use crate::model::canonical::{Canonical, EPOCH};
use crate::model::monitor::Monitor;

/// A machine.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    /// The candidate's name: the same after a restart.
    pub(crate) identity: Identity,
    /// How time passes for it.
    pub(crate) pace: Pace,
    /// The process, if it runs.
    pub(crate) election: Option<Election>,
    /// The process does not get to run.
    pub(crate) frozen: bool,
    /// What the status directory remembers.
    pub(crate) directory: Memory,
    /// The claim that was proven dead when this process started.
    pub(crate) proven_dead: Option<Claim>,
    /// What is under way, the oldest first; also of processes that died.
    pub(crate) calls: Vec<Call>,
    /// Events that have not come yet, in order.
    pub(crate) events: Vec<Lease>,
    /// Events that are late.
    pub(crate) late_events: Vec<Lease>,
    /// The observer's notes.
    pub(crate) monitor: Monitor,
}

/// What a status directory remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Memory {
    /// The newest claim that was sent.
    pub(crate) claim: Option<Claim>,
    /// The highest token that was seen.
    pub(crate) token: Token,
    /// The longest lease duration that was seen.
    pub(crate) lease_longest: Option<Duration>,
}

/// A call that was sent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Call {
    /// Its number, and the process that waits: `None` once that has died.
    pub(crate) id: Option<CallId>,
    /// What is asked.
    pub(crate) operation: Operation,
    /// When it was sent, by the sender's clock.
    pub(crate) sent: BootTime,
    /// The process has not had any answer.
    pub(crate) waiting: bool,
    /// Where it is.
    pub(crate) place: Place,
    /// Names the call for actions; calls of dead processes included.
    pub(crate) number: u64,
}

/// How far a call has got.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// On its way, prompt.
    Sent,
    /// On its way, late or lost.
    Delayed,
    /// Applied on the primary only; the outcome if a majority gets it.
    Lagging(Outcome),
    /// Its answer is on its way, late or lost.
    Answered(Outcome),
    /// No answer will come.
    Lost,
}

/// Ids in sequence; what they are taken modulo for jitter and spread is always
/// the same: the middle of the jitter, no spread.
#[derive(Debug)]
pub(crate) struct Draw<'a>(pub &'a mut u64);

/// The moduli for which the election draws: per mille of jitter, and the spreads
/// of 5, 10, 20 and 40 ms in nanoseconds.
const JITTER: u128 = 401;
const SPREADS: u128 = 5_000_001 * 10_000_001 * 20_000_001 * 40_000_001;
/// `SPREADS * MIDDLE` leaves the middle of the jitter.
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
    /// A machine whose process has not started.
    pub(crate) fn new(identity: Identity, pace: Pace) -> Self {
        Self {
            identity,
            pace,
            election: None,
            frozen: false,
            directory: Memory::default(),
            proven_dead: None,
            calls: Vec::new(),
            events: Vec::new(),
            late_events: Vec::new(),
            monitor: Monitor::default(),
        }
    }

    /// Its clock after `ticks`.
    pub(crate) fn clock(&self, ticks: u64) -> BootTime {
        BootTime::from_nanos(EPOCH + ticks * self.pace.milliseconds_per_tick * 1_000_000)
    }

    /// Starts a process.
    pub(crate) fn start(&mut self, remembers: bool, ticks: u64, drawn: &mut u64) {
        let now = self.clock(ticks);
        if !remembers {
            self.directory = Memory::default();
        }
        let Memory {
            claim,
            token,
            lease_longest,
        } = self.directory;
        let candidate = Candidate {
            identity: self.identity.clone(),
            tunables: tunables(self.pace),
            token_remembered: token,
            lease_longest_remembered: lease_longest,
            supervises: false,
            predecessor_claim: claim,
        };
        self.proven_dead = claim;
        self.election = Some(Election::new(candidate, now, &mut Draw(drawn)));
    }

    /// The process is gone; what it sent may still land.
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

    /// Forgets calls of which nothing can come any more: answers to the dead,
    /// and reads that nobody waits for.
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

    /// Whether it runs.
    pub(crate) fn runs(&self) -> bool {
        self.election.is_some() && !self.frozen
    }

    /// Whether its timer is due.
    pub(crate) fn due(&self, ticks: u64) -> bool {
        let now = self.clock(ticks);
        let wakeup = self.election.as_ref().and_then(Election::next_wakeup);
        self.runs() && wakeup.is_some_and(|at| at <= now)
    }

    /// Whether it has authority, by its own clock.
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
            election,
            frozen,
            directory,
            proven_dead,
            calls,
            events,
            late_events,
            monitor,
        } = self;
        to.put(election);
        to.put(frozen);
        to.put(directory);
        to.put(proven_dead);
        to.put(&calls.len());
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
            to.put(sent);
            to.put(waiting);
            to.put(place);
        }
        to.put(events);
        to.put(late_events);
        to.put(monitor);
    }
}
