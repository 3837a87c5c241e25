//! Connects the calls of contenders to their drivers and change streams, checks each write, and
//! carries out the planned faults.

use super::coverage::Hit;
use super::faults::Fault;
use super::world::{Locks, World};
use crate::election::{CallId, Claim, WallMillis};
use crate::lock::mutation::planted;
use crate::lock::{FoundLock, Grant, Hint, LockInput, LockOperation, LockOutcome};
use crate::proof::sim::coverage::Answer;
use crate::proof::sim::faults::{Kind as _, Planned};
use crate::proof::sim::network::{Calls, Link, Odds};
use crate::proof::sim::replica_set::{self, Access, Landed, Weak};
use crate::proof::sim::{MS, SECOND};
use crate::reference::lock::{self as reference, By};

pub(super) struct Write {
    pub(super) writer: Writer,
    pub(super) at: u64,
    pub(super) granted: Vec<(Claim, Option<Grant>)>,
}

pub(super) enum Writer {
    Process(usize, LockOperation),
    Operator,
}

pub(super) type Committed = replica_set::Committed<FoundLock, Write>;

impl World {
    pub(super) fn send(&mut self, process: usize, call: CallId, operation: LockOperation) {
        self.note(|| super::report::call(process, call, &operation));
        self.check_call(process, call, &operation);
        let driver = &mut self.processes[process].driver;
        driver.sends(call, operation.as_str());
        self.transmit(process, call, operation);
    }
}

impl Calls for Locks {
    const ODDS: Odds = Odds {
        rolls: 240,
        slow: 16,
        other: 8,
    };

    fn interfere(
        world: &mut World,
        process: usize,
        operation: &LockOperation,
        roll: u64,
        quick: u64,
    ) -> u64 {
        let renews = matches!(operation, LockOperation::Renew { .. });
        if renews && roll.is_multiple_of(60) && world.troubles(Fault::Freeze) {
            world.freeze_beyond_the_deadline(process, 10 * quick);
        }
        0
    }

    fn link(world: &World, process: usize) -> Link {
        let p = &world.processes[process];
        let timeout = p.options.timings.operation_timeout();
        Link {
            cut_until: world.machines[p.seat].cut_until,
            timeout: world.stretched(p.seat, timeout),
        }
    }

    /// Some connections of a stale driver already use the new primary.
    fn reaches_deposed(world: &mut World, process: usize) -> bool {
        world.machines[world.processes[process].seat].stale && world.net.one_in(2)
    }

    fn apply(
        world: &mut World,
        process: usize,
        _: CallId,
        operation: &LockOperation,
        stale: bool,
    ) -> (Landed<LockOutcome>, Option<u64>) {
        let access = match operation {
            LockOperation::Read { confirm: false } => Access::Read,
            LockOperation::Read { confirm: true } => Access::Confirm,
            _ => Access::Write,
        };
        let weak = Weak {
            reads: false,
            writes: planted!(WriteConcernOne),
        };
        let seat = &world.machines[world.processes[process].seat];
        let by = By {
            identity: &seat.identity,
            at: WallMillis(0),
            store_now: world.store_now(),
        };
        let (older, at) = (seat.older, world.now);
        let read = |stored: &FoundLock| {
            let mut shown = stored.clone();
            if let FoundLock::Lock(lock) = &mut shown {
                lock.store_now = by.store_now;
            }
            LockOutcome::Applied(shown)
        };
        let write = |stored: &mut FoundLock| {
            let performed = match older {
                true => super::older::apply(stored, by, operation),
                false => super::broken::apply(stored, by, operation),
            };
            let write = (performed.outcome != LockOutcome::Rejected).then(|| Write {
                writer: Writer::Process(process, operation.clone()),
                at,
                granted: performed.granted,
            });
            (performed.outcome, write)
        };
        world.set.land((access, weak), stale, read, write)
    }

    fn committed(world: &mut World, all: Vec<Committed>) {
        for committed in all {
            world.note(|| super::report::committed(&committed));
            world.check_commit(&committed);
            world.notify_streams(&committed);
        }
    }

    fn answered(world: &mut World, process: usize, call: CallId, outcome: LockOutcome) {
        if let Some(driven) = world.processes[process].driver.returned(call) {
            let answer = Answer::from(&outcome);
            world.coverage.hit(Hit::Call(driven.kind, answer));
            if let ("join", LockOutcome::Applied(_)) = (driven.kind, &outcome) {
                let p = &mut world.processes[process];
                p.stream.joined = Some(p.contender.claim());
            }
            let mut outcome = match world.is_older(process) {
                true => super::older::read(outcome),
                false => outcome,
            };
            super::broken::read(&mut outcome);
            world.input(process, LockInput::Reply { call, outcome });
        }
    }

    fn timed_out(world: &mut World, process: usize, call: CallId) {
        if let Some(operation) = world.processes[process].driver.timed_out(call) {
            let outcome = LockOutcome::Unknown;
            world.coverage.hit(Hit::Call(operation, Answer::Unknown));
            world.input(process, LockInput::Reply { call, outcome });
        }
    }
}

impl World {
    /// Sends an event to each open stream whose claim was granted or has become the head of the
    /// queue.
    fn notify_streams(&mut self, committed: &Committed) {
        let next = |found: &FoundLock| match found {
            FoundLock::Lock(lock) => reference::next(lock),
            FoundLock::Missing | FoundLock::Foreign(_) => None,
        };
        let after = next(&committed.after);
        let moved = after != next(&committed.before);
        let events = &mut self.own.events;
        for (claim, grant) in &committed.write.granted {
            events.push((*claim, Hint::Granted(*grant)));
        }
        if let Some(claim) = after.filter(|_| moved) {
            events.push((claim, Hint::Next));
        }
        for process in self.live.clone() {
            let stream = &self.processes[process].stream;
            let Some(claim) = stream.claim.filter(|_| stream.open) else {
                continue;
            };
            let mut granted = committed.write.granted.iter();
            if let Some((_, grant)) = granted.find(|(granted, _)| *granted == claim) {
                self.notify(process, Hint::Granted(*grant));
            } else if moved && after == Some(claim) {
                self.notify(process, Hint::Next);
            }
        }
    }

    fn notify(&mut self, process: usize, hint: Hint) {
        let hint = match self.is_older(process) {
            true => super::older::hint(hint),
            false => hint,
        };
        let mut latency = self.net.between(1, 10) * MS;
        if self.net.one_in(8) && self.troubles(Fault::StreamLag) {
            latency = self.net.between(10, 9_000) * MS;
            self.coverage.hit(Hit::Fault(Fault::StreamLag));
        }
        let stream = &mut self.processes[process].stream;
        stream.last_at = (self.now + latency).max(stream.last_at);
        let (at, opening) = (stream.last_at, stream.opening);
        self.at(at, move |world| {
            if world.processes[process].stream.opening == opening {
                world.input(process, LockInput::Hint(hint));
            }
        });
    }

    pub(super) fn stream_opens(&mut self, process: usize, opening: u64) {
        let p = &self.processes[process];
        if !p.alive || p.stream.opening != opening {
            return;
        }
        let cut = self.machines[p.seat].cut_until > self.now;
        if cut || self.set.no_primary_until > self.now {
            return self.stream_ends(process);
        }
        let stream = &mut self.processes[process].stream;
        stream.open = true;
        let since = stream.joined.take().filter(|it| stream.claim == Some(*it));
        let since_join = since.is_some();
        self.notify(process, Hint::Opened { since_join });
        let missed = self.own.events.iter().filter(|(of, _)| since == Some(*of));
        for (_, hint) in missed.copied().collect::<Vec<_>>() {
            self.notify(process, hint);
        }
    }

    /// Breaks the stream. The process opens another stream after a while.
    pub(super) fn stream_ends(&mut self, process: usize) {
        let p = &mut self.processes[process];
        if !p.alive || p.stream.claim.is_none() {
            return;
        }
        p.stream.opening += 1;
        p.stream.open = false;
        let opening = p.stream.opening;
        let (seat, retry) = (p.seat, p.options.timings.retry_interval());
        let at = self.now + self.stretched(seat, retry);
        self.at(at, move |world| world.stream_opens(process, opening));
        self.input(process, LockInput::Hint(Hint::Lost));
    }

    pub(super) fn inject(&mut self, planned: Planned<Fault>) {
        let Planned { fault, chance, .. } = planned;
        let lasts = |most: u64| (chance >> 16) % most * MS;
        self.note(|| format!("trouble: {}", fault.words()));
        let seat = usize::try_from(chance % self.machines.len() as u64).expect("few");
        let process = (!self.live.is_empty()).then(|| {
            let index = usize::try_from((chance >> 8) % self.live.len() as u64).expect("few");
            self.live[index]
        });
        if process.is_some() {
            self.coverage.hit(Hit::Fault(fault));
        }
        match (fault, process) {
            (Fault::Failover | Fault::Deposed, _) => self.fail_over(fault, chance, lasts(20_000)),
            (Fault::MajorityLost, _) => self.set.no_majority_until = self.now + lasts(30_000),
            (Fault::Partition, _) => self.machines[seat].cut_until = self.now + lasts(60_000),
            (Fault::Freeze, Some(process)) => self.freeze(process, self.now + lasts(60_000)),
            (Fault::Kill, Some(process)) => self.kill(process),
            (Fault::StreamLost, Some(process)) => self.stream_ends(process),
            (Fault::PrimaryChanged, Some(process)) => {
                self.input(process, LockInput::PrimaryChanged)
            }
            (Fault::Edited, Some(_)) => self.edited(chance),
            (Fault::Fork, Some(process)) => self.fork(process, chance),
            (_, None) => {}
            (unplanned, _) => unreachable!("{unplanned:?} has no instant"),
        }
    }

    /// Freezes a holder while a renewal is in flight, until just after the holder's authority
    /// ends. The delayed acknowledgement must not extend the authority.
    pub(super) fn freeze_beyond_the_deadline(&mut self, process: usize, late: u64) {
        let now = self.clock(process);
        if let Some(authority) = self.processes[process].contender.authority_at(now) {
            let ends = self.true_time(process, authority.valid_until);
            self.freeze(process, ends + late);
        }
    }

    fn fail_over(&mut self, fault: Fault, chance: u64, lasts: u64) {
        let open = self.set.open_writes() as u64;
        let kept = usize::try_from((chance >> 24) % (open + 1)).expect("few");
        let deposed = fault == Fault::Deposed;
        self.set.no_primary_until = self.now + lasts % (12 * SECOND);
        self.replace_primary(kept, deposed, |world| world.net.between(1, 3_000) * MS);
        for (index, seat) in self.machines.iter_mut().enumerate() {
            seat.stale = deposed && chance >> (32 + index) & 1 == 1;
        }
        if deposed {
            self.at(self.now + lasts + SECOND, Self::deposed_learns);
        }
        for process in self.live.clone() {
            if self.net.one_in(2) {
                self.stream_ends(process);
            }
            if self.net.one_in(2) {
                self.input(process, LockInput::PrimaryChanged);
            }
        }
    }

    pub(super) fn is_older(&self, process: usize) -> bool {
        self.machines[self.processes[process].seat].older
    }

    pub(super) fn committed_entry(&self, claim: Claim) -> Option<&crate::lock::Entry> {
        match self.set.committed() {
            FoundLock::Lock(lock) => super::entries::all(lock).find(|entry| entry.claim == claim),
            FoundLock::Missing | FoundLock::Foreign(_) => None,
        }
    }
}
