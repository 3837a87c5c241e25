//! Connects the calls of candidates to their drivers, checks each write, and notifies the
//! processes of a new primary.

use super::cluster::{Leases, World};
use super::coverage::{Call, Hit, Landing, Path};
use super::document::{Committed, Stored, Writer};
use super::faults::Fault;
use super::process::{CALLS_MAX, Class};
use crate::election::mutation::planted;
use crate::election::{CallId, Found, Input, Operation, Outcome};
use crate::proof::sim::MS;
use crate::proof::sim::coverage::Answer;
use crate::proof::sim::network::{Calls, Link, Odds};
use crate::proof::sim::replica_set::{Access, Landed, Weak};
use crate::proof::sim::world::AtPeace;

impl World {
    pub(super) fn send(&mut self, process: usize, call: CallId, operation: Operation) {
        self.check_call(process, call, &operation);
        self.note(|| {
            let text = super::report::operation(&operation);
            format!("p{process} sends #{call} {text}")
        });
        self.decide(process, operation.as_str().len() as u64);
        let kind = Call::from(&operation);
        let announced = self.announces(process, &operation);
        let p = &mut self.processes[process];
        if p.driver.len() >= CALLS_MAX {
            let outcome = Outcome::Failed;
            p.deliver(Class::Reply, Input::Reply { call, outcome });
            self.coverage.hit(Hit::Path(Path::TooManyCalls));
            self.coverage.hit(Hit::Call(kind, Answer::Failed));
            return;
        }
        if matches!(operation, Operation::Read { confirm: true }) {
            p.confirming = Some(call);
        }
        p.driver.sends(call, kind);
        if let Some(released) = announced {
            p.announced = Some((call, released));
        }
        self.transmit(process, call, operation);
    }

    pub(super) fn primary_elected(&mut self) {
        if self.faults.has(Fault::Routers) {
            return;
        }
        for process in self.live.clone() {
            self.input(process, Class::News, Input::PrimaryChanged);
        }
    }

    pub(super) fn use_new_primary(&mut self) {
        self.set.deposed_learns();
        for machine in &mut self.machines {
            machine.stale = false;
        }
    }

    pub(super) fn deposed_learns(&mut self) {
        self.use_new_primary();
        for process in self.live.clone() {
            // A cursor survives the step-down of its member in half of the cases. Otherwise the
            // cursor is opened again on the new primary.
            if self.own.stream_dice.one_in(2) || !self.processes[process].stream.open {
                self.stream_ends(process);
            }
            if !self.faults.has(Fault::Routers) {
                self.input(process, Class::News, Input::PrimaryChanged);
            }
        }
    }
}

impl Calls for Leases {
    const ODDS: Odds = Odds {
        rolls: 480,
        slow: 40,
        other: 12,
    };

    fn interfere(
        world: &mut World,
        process: usize,
        operation: &Operation,
        _: u64,
        quick: u64,
    ) -> u64 {
        let chance = world.net.next_u64();
        let adopts = matches!(operation, Operation::Renew { .. });
        if adopts && !world.processes[process].facts.holds && world.troubles(Fault::Meddling) {
            world.meddle(process, chance);
        }
        match operation {
            Operation::Acquire(new)
            | Operation::TakeOver {
                acquisition: new, ..
            } => {
                world.disturb_connection(process);
                world.disturb_acquisition(process, new, quick, chance)
            }
            Operation::Release { claim, .. } => {
                world.disturb_release(process, *claim, quick, chance);
                0
            }
            _ => 0,
        }
    }

    fn link(world: &World, process: usize) -> Link {
        let p = &world.processes[process];
        let machine = &world.machines[p.machine];
        Link {
            cut_until: machine.cut_until,
            timeout: machine.clock.stretched(p.operation_timeout),
        }
    }

    fn reaches_deposed(world: &mut World, process: usize) -> bool {
        world.machines[world.processes[process].machine].stale
    }

    fn apply(
        world: &mut World,
        process: usize,
        call: CallId,
        operation: &Operation,
        stale: bool,
    ) -> (Landed<Outcome>, Option<u64>) {
        let access = match operation {
            Operation::Read { confirm: false } => Access::Read,
            Operation::Read { confirm: true } => Access::Confirm,
            _ => Access::Write,
        };
        let announced = world.processes[process].announced.as_ref();
        let announced = announced.is_some_and(|(id, _)| *id == call);
        let weak = Weak {
            reads: planted!(LocalReadConcern),
            writes: planted!(WriteConcernOne) || announced,
        };
        let sent = operation;
        let operation = &world.declared_by(process, sent);
        let mut acquired = None;
        let declares = world.declared_by_renewal(process);
        let machine = &world.machines[world.processes[process].machine];
        let wall = machine.wall_skew / 1_000_000;
        let write = |stored: &mut Stored| {
            let standby = stored.lease().and_then(|lease| lease.standby.clone());
            if !stored.write(&machine.identity, wall, operation) {
                // Another primary may have the claim's newest renewal.
                let outcome = match announced {
                    true => Outcome::Unknown,
                    false => Outcome::Rejected,
                };
                return (outcome, None);
            }
            if let Operation::Acquire(acquisition) | Operation::TakeOver { acquisition, .. } = sent
            {
                acquired = acquisition.renew_interval;
            }
            if let (Operation::Renew { .. }, Some(lease)) = (operation, stored.lease_mut()) {
                let holder = lease.holder.as_mut();
                holder
                    .into_iter()
                    .for_each(|holder| holder.renew_interval = declares);
            }
            if let (false, Some(lease)) = (machine.stands_by, stored.lease_mut()) {
                lease.standby = standby;
            }
            let outcome = match announced && !planted!(PrimaryTrusted) {
                true => Outcome::PrimaryOnly,
                false => stored.shown(),
            };
            (outcome, Some(Writer::Process(process)))
        };
        let done = world.set.land((access, weak), stale, Stored::shown, write);
        let p = &mut world.processes[process];
        p.tenure_interval = acquired.or(p.tenure_interval);
        let late = p.driver.gave_up(call);
        let landed = |landing| (late, Hit::Landed(Call::from(operation), landing));
        let (counts, hit) = match &done.0 {
            Landed::Answered(Outcome::Applied(_) | Outcome::PrimaryOnly)
            | Landed::Waits(_, Outcome::Applied(_)) => landed(Landing::Matched),
            Landed::Answered(_) | Landed::Waits(..) => landed(Landing::Refused),
            Landed::Silence => (true, Hit::Path(Path::DeposedSilent)),
        };
        world.coverage.hit_if(counts, hit);
        done
    }

    fn committed(world: &mut World, all: Vec<Committed>) {
        let newest = world.set.newest();
        let archive = &mut world.own.archive;
        let tokens: Vec<_> = all
            .iter()
            .map(|c| archive.record(&c.after, newest))
            .collect();
        for (committed, token_before) in all.into_iter().zip(tokens) {
            world.note(|| super::report::committed(&committed));
            world.check_commit(&committed, token_before);
            world.note_renewal(&committed.before, &committed.after);
            world.notify_streams(committed);
        }
    }

    fn answered(world: &mut World, process: usize, call: CallId, outcome: Outcome) {
        if let Some(driven) = world.processes[process].driver.returned(call) {
            if let Outcome::Applied(found) = &outcome {
                world.processes[process].newest = match found {
                    Found::Lease(lease) => Some(lease.clone()),
                    Found::Missing | Found::Foreign(_) => None,
                };
                world.processes[process].hearing.document_seen = true;
            }
            if matches!(outcome, Outcome::Applied(_) | Outcome::PrimaryOnly) {
                world.hint_after(process, call, driven.kind);
            }
            let answer = Answer::from(&outcome);
            world.coverage.hit(match driven.timed_out {
                true => Hit::Late(answer),
                false => Hit::Call(driven.kind, answer),
            });
            world.input(process, Class::Reply, Input::Reply { call, outcome });
            world.choose_stream(process);
        }
    }

    /// Reports an unknown outcome to the process, unless the driver has already delivered an
    /// answer.
    fn timed_out(world: &mut World, process: usize, call: CallId) {
        if world.is_frozen(process) && world.net.one_in(2) {
            // After a thaw, the process may first handle events that arrived during the freeze.
            let at = world.thaws_at(process) + MS;
            return world.at_or(AtPeace::HappenNow, at, move |world| {
                Self::time_out(world, process, call);
            });
        }
        Self::time_out(world, process, call);
    }
}

impl Leases {
    fn time_out(world: &mut World, process: usize, call: CallId) {
        if let Some(kind) = world.processes[process].driver.timed_out(call) {
            let outcome = Outcome::Unknown;
            world.coverage.hit(Hit::Call(kind, Answer::Unknown));
            world.input(process, Class::Reply, Input::Reply { call, outcome });
        }
    }
}
