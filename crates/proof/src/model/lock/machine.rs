//! One contender's machine: its clock, its process, the memory that each process leaves to the
//! next, and the calls and events in flight between machine and store.

use std::hash::Hasher;
use std::time::Duration;

use crate::election::{BootTime, Claim, Identity, Revision, Token};
use crate::lock::{
    Hint, LockContender, LockOperation, LockOutcome, Observations, OncePer, Options, WorkKey,
};
use crate::proof::flawed::lock as flawed;
use crate::proof::model::calls::{self, Payload};
use crate::proof::model::canonical::{Canonical, EPOCH};
use crate::proof::model::draw::Draw;
use crate::proof::model::lock::bounds::Seat;
use crate::proof::model::lock::canonical::{Live, LockForm, put_operation, revision_of};
use crate::proof::model::lock::monitor::Monitor;
use crate::proof::model::lock::store::Store;
use crate::proof::sim::lock::invariants::exclusion::Held;

pub(crate) type Calls = calls::Calls<LockOperation>;
pub(crate) type Call = calls::Call<LockOperation, LockOutcome>;
/// Progress of a call.
pub(crate) type Place = calls::Place<LockOutcome>;

impl Payload for LockOperation {
    type Outcome = LockOutcome;

    fn may_be_late(&self) -> bool {
        true
    }

    fn writes(&self) -> bool {
        !matches!(self, Self::Read { .. })
    }
}

/// A machine that runs contenders one after another.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    /// Name of its contenders.
    pub(crate) identity: Identity,
    /// Clock rate, durations and requests.
    pub(crate) seat: Seat,
    /// The process, if one runs.
    pub(crate) contender: Option<LockContender>,
    /// True if the process is paused.
    pub(crate) frozen: bool,
    /// True if work runs under the lock.
    pub(crate) works: bool,
    /// Memory for the next process.
    pub(crate) memory: Memory,
    /// Calls in flight, including calls of processes that have exited.
    pub(crate) calls: Calls,
    pub(crate) stream: Stream,
    /// Notes of the observer.
    pub(crate) monitor: Monitor,
}

/// Memory that a process leaves to its successor on the machine.
#[derive(Debug, Clone, Default)]
pub(crate) struct Memory {
    pub(crate) token: Token,
    pub(crate) observations: Observations,
}

/// Change stream of one claim.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Stream {
    /// The claim to follow, if the process requested a stream.
    pub(crate) claim: Option<Claim>,
    /// True if the stream reports events.
    pub(crate) open: bool,
    /// Events that have not arrived yet, in order.
    pub(crate) events: Vec<Hint>,
    /// Delayed events.
    pub(crate) late_events: Vec<Hint>,
}

impl Stream {
    /// Returns the revisions in grant events that have not arrived.
    pub(crate) fn granted_revisions(&self) -> impl Iterator<Item = Revision> {
        let events = self.events.iter().chain(&self.late_events);
        events.filter_map(|event| match event {
            Hint::Granted(grant) => grant.map(|grant| grant.revision),
            Hint::Opened { .. } | Hint::Alive | Hint::Next | Hint::Changed | Hint::Lost => None,
        })
    }
}

/// Moduli of a contender's draws: per mille of jitter, and per mille that a delay is shortened.
const JITTER: u128 = 401;
const SHORTENED: u128 = 201;
/// The number that yields the middle of both ranges.
const MIDDLE: u128 = {
    let mut number = 0;
    while number % JITTER != JITTER / 2 || number % SHORTENED != SHORTENED / 2 {
        number += 1;
    }
    number
};

/// Returns a source in which every draw gives the middle of the jitter.
pub(crate) fn draw(drawn: &mut u64) -> Draw<'_> {
    Draw {
        drawn,
        first: MIDDLE,
        step: JITTER * SHORTENED,
    }
}

impl Machine {
    /// Creates a machine whose process has not started.
    pub(crate) fn new(identity: Identity, seat: Seat) -> Self {
        Self {
            identity,
            seat,
            contender: None,
            frozen: false,
            works: false,
            memory: Memory::default(),
            calls: Calls::default(),
            stream: Stream::default(),
            monitor: Monitor::default(),
        }
    }

    /// Returns the machine's clock after `ticks`.
    pub(crate) fn clock(&self, ticks: u64) -> BootTime {
        let milliseconds = ticks * self.seat.pace.milliseconds_per_tick;
        BootTime::from_nanos(EPOCH + milliseconds * 1_000_000)
    }

    /// Starts a process with the memory of its predecessor.
    pub(crate) fn start(&mut self, ticks: u64, drawn: &mut u64) {
        let now = self.clock(ticks);
        let Memory {
            token,
            observations,
        } = std::mem::take(&mut self.memory);
        self.monitor = Monitor::remembering(&observations);
        let options = Options {
            identity: self.identity.clone(),
            mode: self.seat.mode,
            timings: self.seat.pace.timings(),
            non_blocking: self.seat.non_blocking,
            min_hold: self.seat.min_hold,
            once_per: self.seat.once.then(|| OncePer {
                period: Duration::MAX,
                key: WorkKey::default(),
            }),
            watch_first: false,
            token_remembered: token,
            observations,
        };
        self.contender = Some(flawed::contender(options, now, &mut draw(drawn)));
    }

    /// Ends the process normally. The process's memory passes to its successor, if another process
    /// can start.
    pub(crate) fn exit(&mut self, remember: bool) {
        if let Some(contender) = self.contender.as_ref().filter(|_| remember) {
            self.memory = Memory {
                token: contender.token_highest(),
                observations: contender.observations().clone(),
            };
        }
        self.die();
    }

    /// Ends the process. The process's calls in flight may still land.
    pub(crate) fn die(&mut self) {
        self.contender = None;
        self.frozen = false;
        self.works = false;
        self.stream = Stream::default();
        self.monitor = Monitor::default();
        self.calls.abandon();
    }

    pub(crate) fn runs(&self) -> bool {
        self.contender.is_some() && !self.frozen
    }

    /// Returns true if the timer of the process is due.
    pub(crate) fn due(&self, ticks: u64) -> bool {
        let now = self.clock(ticks);
        let wakeup = self.contender.as_ref().and_then(|c| c.next_wakeup());
        self.runs() && wakeup.is_some_and(|at| at <= now)
    }

    /// Returns true if an action must happen before time passes.
    pub(crate) fn is_prompt(&self, ticks: u64) -> bool {
        let now = self.clock(ticks);
        let late = |sent| sent < now;
        self.due(ticks)
            || self.calls.are_prompt(self.frozen, late)
            || (!self.frozen && !self.stream.events.is_empty())
    }

    /// Returns the lock that the process holds if the process has authority by its own clock.
    pub(crate) fn held(&self, ticks: u64) -> Option<Held> {
        let contender = self.contender.as_ref()?;
        let authority = contender.authority_at(self.clock(ticks));
        authority.map(|_| Held {
            mode: self.seat.mode,
            slot: contender.status().slot,
        })
    }

    /// Returns true if the call can be forgotten. Either its answer would be too late, or it can no
    /// longer change the document and its sender would ignore the rejection.
    pub(crate) fn is_over(&self, call: &Call, ticks: u64, storable: &Live) -> bool {
        if call.waiting {
            return false;
        }
        let timings = self.seat.pace.timings();
        let age = self.clock(ticks).since(call.sent);
        match &call.operation {
            LockOperation::Read { .. } => age > 2 * timings.operation_timeout(),
            _ if matches!(call.place, Place::Answered(_)) => age > timings.lease_duration(),
            _ if call.place != Place::Delayed
                || call.id.is_some_and(|id| self.monitor.is_newest(id)) =>
            {
                false
            }
            LockOperation::Renew { mine, .. } | LockOperation::Keep { mine, .. } => {
                !mine.iter().any(|mine| storable.contains(*mine))
            }
            LockOperation::Evict { entries, .. } => {
                !entries.iter().any(|e| storable.contains(e.revision))
            }
            LockOperation::Create { .. }
            | LockOperation::Join { .. }
            | LockOperation::Leave { .. }
            | LockOperation::Break { .. } => false,
        }
    }

    /// Returns true if a call in flight carries this revision, or an event names it.
    pub(crate) fn carries(&self, revision: Revision) -> bool {
        let mut carried = self.calls.iter().filter_map(|c| revision_of(&c.operation));
        carried.any(|(_, carried)| carried == revision)
            || self.stream.granted_revisions().any(|it| it == revision)
    }

    /// Returns the notes without irrelevant parts, or `None` if nothing remains. `carried` is true
    /// for revisions of calls in flight.
    pub(crate) fn settled(
        &self,
        store: &Store,
        carried: impl Fn(Revision) -> bool,
    ) -> Option<Monitor> {
        let claim = self.contender.as_ref()?.claim();
        let settled = self.monitor.settled(claim, store, carried);
        (settled != self.monitor).then_some(settled)
    }

    /// Writes the canonical form.
    pub(crate) fn canonicalise<H: Hasher>(
        &self,
        ticks: u64,
        live: &Live,
        to: &mut Canonical<'_, H>,
    ) {
        let pending = self.calls.iter().filter_map(|call| call.id);
        let now = self.clock(ticks);
        to.contender(now.as_nanos(), pending.map(|id| id.0).collect());
        let Self {
            identity: _,
            seat: _,
            contender,
            frozen,
            works,
            memory,
            calls,
            stream,
            monitor,
        } = self;
        to.put(&(contender.is_some(), frozen, works, memory.token));
        let mut form = LockForm { to, live };
        memory.observations.compare(&mut form);
        if let Some(contender) = contender {
            contender.compare(now, &mut form);
        }
        calls.canonicalise(to, |operation, to| put_operation(operation, live, to));
        to.put(&(stream, monitor));
    }
}
