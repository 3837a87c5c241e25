//! The record that a shim writes before it becomes the child, on a disk that may hang.
//!
//! The shim is a separate process, so a blocked write stops neither the guard nor the daemon. A
//! killed shim never becomes the child, even if its write is still in progress. The guard
//! immediately reports that no child will run, but exits and releases the lock only after the shim
//! has exited.

use super::child::Child;
use super::cluster::World;
use super::coverage::{Hit, Path};
use super::files::Health;
use super::guards::Guard;
use super::invariants::children_start_with_authority as starts;
use super::process::Class;
use crate::deadline_policy::PolicyInput;
use crate::election::mutation::planted;
use crate::election::{BootTime, Input};
use crate::proof::sim::MS;

/// Interval at which the simulation checks for a shim that the daemon must reap.
const REAPED_AGAIN: u64 = 20 * MS;

#[derive(Debug, Clone, Copy)]
pub(super) struct Shim {
    valid_until: BootTime,
    killed: bool,
    given_up: bool,
}

impl Shim {
    pub(super) fn new(valid_until: BootTime) -> Self {
        Self {
            valid_until,
            killed: false,
            given_up: false,
        }
    }

    pub(super) fn killed(self) -> Self {
        Self {
            killed: true,
            ..self
        }
    }
}

impl Guard {
    pub(super) fn shim(&self) -> Option<Shim> {
        match self.child {
            Child::Recording(shim) => Some(shim),
            Child::Unborn | Child::Runs(_) | Child::Gone => None,
        }
    }

    /// Returns true if the guard itself waits for the record, which happens only with a planted
    /// bug.
    pub(super) fn waits_for_record(&self) -> bool {
        planted!(RecordBlocksGuard) && self.shim().is_some()
    }
}

impl World {
    pub(super) fn record_blocks(&self, g: usize) -> bool {
        let directory = self.own.guards[g].directory;
        self.own.directories[directory].health == Health::Hangs
    }

    /// Once the shim's write has returned, turns the shim into the child or ends the shim.
    pub(super) fn end_recording(&mut self, g: usize) {
        let Guard {
            machine, directory, ..
        } = self.own.guards[g];
        let still = self.child_still_until(g) > self.now;
        let Some(shim) = self.own.guards[g].shim() else {
            return;
        };
        let unrecorded = self.record_blocks(g);
        let waits = unrecorded && (shim.killed || !planted!(RunsBeforeRecord));
        if waits || still {
            return;
        }
        if !unrecorded {
            // If a killed shim completes its write, the record stays.
            self.own.directories[directory].child = Some(g);
        }
        let now = self.machine_clock(machine, true);
        let late = now >= shim.valid_until && !planted!(StartedAfterDeadline);
        if shim.killed || late {
            self.note(|| format!("g{g}'s shim ends"));
            self.own.guards[g].child = Child::Gone;
            return;
        }
        let guard = &self.own.guards[g];
        let facts = self.processes[guard.daemon].facts.claim(guard.claim);
        let until = facts.and_then(|facts| facts.until);
        self.found(starts::check(starts::Start { now, until }));
        self.coverage.hit(Hit::Path(Path::ChildStarted));
        self.check_started(g);
        let life = self.drawn_life();
        self.own.guards[g].child = Child::Runs(life);
    }

    /// Reports that a shim was killed, as a guard does. The report does not wait until the shim
    /// has exited.
    pub(super) fn give_up_recording(&mut self, g: usize, now: BootTime) {
        let guard = &mut self.own.guards[g];
        let Child::Recording(shim) = &mut guard.child else {
            return;
        };
        if !shim.killed || std::mem::replace(&mut shim.given_up, true) {
            return;
        }
        guard.judge.handle(now, PolicyInput::Gone);
        self.coverage.hit(Hit::Path(Path::StartGivenUp));
        self.report(g, true);
    }

    /// Handles a report about a guard with a remaining shim, as the guard's client does.
    pub(super) fn reported_without_child(&mut self, g: usize) {
        let Guard {
            daemon,
            token,
            alive,
            ..
        } = self.own.guards[g];
        let given_up = self.own.guards[g].shim().is_some_and(|shim| shim.given_up);
        if given_up {
            self.own.guards[g].heard = true;
            self.input(daemon, Class::Machine, Input::WorkloadGone { token });
        } else if !alive {
            // After the guard was killed, the daemon reaps the shim.
            let at = self.now + REAPED_AGAIN;
            self.at(at, move |world| world.reported(g, true));
        }
    }
}
