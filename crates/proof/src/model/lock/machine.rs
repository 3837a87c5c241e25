//! One contender's machine: its clock, its process, the memory that each process leaves to its
//! successor, and the calls and events in flight between the machine and the store.

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

#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(crate) identity: Identity,
    pub(crate) seat: Seat,
    pub(crate) contender: Option<LockContender>,
    pub(crate) frozen: bool,
    pub(crate) works: bool,
    pub(crate) memory: Memory,
    pub(crate) calls: Calls,
    pub(crate) stream: Stream,
    pub(crate) monitor: Monitor,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Memory {
    pub(crate) token: Token,
    pub(crate) observations: Observations,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Stream {
    pub(crate) claim: Option<Claim>,
    pub(crate) open: bool,
    pub(crate) events: Vec<Hint>,
    pub(crate) late_events: Vec<Hint>,
}

impl Stream {
    pub(crate) fn granted_revisions(&self) -> impl Iterator<Item = Revision> {
        let events = self.events.iter().chain(&self.late_events);
        events.filter_map(|event| match event {
            Hint::Granted(grant) => grant.map(|grant| grant.revision),
            Hint::Opened { .. } | Hint::Alive | Hint::Next | Hint::Changed | Hint::Lost => None,
        })
    }
}

/// A contender computes two values from a draw, both in per mille: the jitter is the draw modulo
/// `JITTER`, and the reduction of a delay is the draw modulo `SHORTENED`.
const JITTER: u128 = 401;
const SHORTENED: u128 = 201;
/// A draw whose two remainders are both in the middle of their ranges.
const MIDDLE: u128 = {
    let mut number = 0;
    while number % JITTER != JITTER / 2 || number % SHORTENED != SHORTENED / 2 {
        number += 1;
    }
    number
};

pub(crate) fn draw(drawn: &mut u64) -> Draw<'_> {
    Draw {
        drawn,
        first: MIDDLE,
        step: JITTER * SHORTENED,
    }
}

impl Machine {
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

    pub(crate) fn clock(&self, ticks: u64) -> BootTime {
        let milliseconds = ticks * self.seat.pace.milliseconds_per_tick;
        BootTime::from_nanos(EPOCH + milliseconds * 1_000_000)
    }

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
            went_back: None,
            observations,
        };
        self.contender = Some(flawed::contender(options, now, &mut draw(drawn)));
    }

    /// Ends the process normally. If `remember` is true, the next process gets this process's
    /// memory.
    pub(crate) fn exit(&mut self, remember: bool) {
        if let Some(contender) = self.contender.as_ref().filter(|_| remember) {
            self.memory = Memory {
                token: contender.token_highest(),
                observations: contender.observations().clone(),
            };
        }
        self.die();
    }

    /// Ends the process. The store may still apply the calls in flight.
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

    pub(crate) fn due(&self, ticks: u64) -> bool {
        let now = self.clock(ticks);
        let wakeup = self.contender.as_ref().and_then(|c| c.next_wakeup());
        self.runs() && wakeup.is_some_and(|at| at <= now)
    }

    /// Returns true if something must happen on this machine before time passes.
    pub(crate) fn is_prompt(&self, ticks: u64) -> bool {
        let now = self.clock(ticks);
        let late = |sent| sent < now;
        self.due(ticks)
            || self.calls.are_prompt(self.frozen, late)
            || (!self.frozen && !self.stream.events.is_empty())
    }

    /// Returns the lock that the process holds, if the process has authority by its own clock.
    pub(crate) fn held(&self, ticks: u64) -> Option<Held> {
        let contender = self.contender.as_ref()?;
        let authority = contender.authority_at(self.clock(ticks));
        authority.map(|_| Held {
            mode: self.seat.mode,
            slot: contender.status().slot,
        })
    }

    /// Returns true if the call can have no further effect. A read or an answered write is over
    /// once its answer would be too late. A delayed renewal, `keep` or eviction is over once its
    /// filter can no longer match and its sender would ignore the rejection. Other delayed writes
    /// are never over.
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

    /// Returns true if a call in flight carries this revision, or an undelivered event names it.
    pub(crate) fn carries(&self, revision: Revision) -> bool {
        let mut carried = self.calls.iter().filter_map(|c| revision_of(&c.operation));
        carried.any(|(_, carried)| carried == revision)
            || self.stream.granted_revisions().any(|it| it == revision)
    }

    /// Returns the notes without the parts that no longer matter, or `None` if all parts still
    /// matter or if no process runs. `carried` returns true for a revision that a call in flight
    /// carries or an undelivered event names.
    pub(crate) fn settled(
        &self,
        store: &Store,
        carried: impl Fn(Revision) -> bool,
    ) -> Option<Monitor> {
        let claim = self.contender.as_ref()?.claim();
        let settled = self.monitor.settled(claim, store, carried);
        (settled != self.monitor).then_some(settled)
    }

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
