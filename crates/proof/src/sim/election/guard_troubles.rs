//! Kills, freezes, loses and clones guards and their children.

use super::child::{Child, Life};
use super::cluster::World;
use super::coverage::Hit;
use super::faults::Fault;
use super::guards::{Guard, WAKE_MAX};
use crate::proof::sim::MS;
use crate::proof::sim::rng::Rng;

impl World {
    /// Kills a guard. The kernel ends the leader of the child only after the guard's lock is free,
    /// and the daemon kills the remaining processes.
    pub(super) fn kill_guard(&mut self, g: usize) {
        let now = self.now;
        let guard = &mut self.own.guards[g];
        if !std::mem::replace(&mut guard.alive, false) {
            return;
        }
        guard.child = match guard.child {
            Child::Recording(shim) => Child::Recording(shim.killed()),
            Child::Runs(life) if life.survives > 0 => Child::Runs(life.killed(now).unwrap_or(life)),
            Child::Runs(life) if !life.leader_ended => Child::Runs(Life {
                leader: life.leader.min(now + life.outlives_guard),
                ..life
            }),
            Child::Runs(life) => Child::Runs(life),
            Child::Unborn | Child::Gone => Child::Gone,
        };
        self.note(|| format!("g{g} is killed"));
        self.report_killed(g);
    }

    /// Makes the daemon notice the guard's exit after a moment. The daemon watches the guard's
    /// pidfd.
    fn report_killed(&mut self, g: usize) {
        let at = self.now + self.own.guard_dice.between(1, WAKE_MAX);
        self.at(at, move |world| world.reported(g, true));
    }

    pub(super) fn lose_guards(&mut self, machine: usize) {
        self.lose_containers(machine);
        for g in self.own.guarding.clone() {
            if self.own.guards[g].machine == machine {
                self.own.guards[g].alive = false;
                self.own.guards[g].child = Child::Gone;
            }
        }
    }

    /// Marks the guards of a daemon that has exited. The exit closed the daemon's end of the
    /// sockets.
    pub(super) fn orphan_guards(&mut self, process: usize) {
        self.disconnect(process);
        let now = self.now;
        for g in &self.own.guarding {
            let guard = &mut self.own.guards[*g];
            if guard.daemon == process {
                guard.orphaned_at = Some(now);
            }
        }
    }

    pub(super) fn fork_guards(&mut self, process: usize, twin: usize) {
        let (machine, directory) = (self.processes[twin].machine, self.processes[twin].directory);
        for g in self.own.guarding.clone() {
            if self.own.guards[g].daemon != process || self.own.guards[g].heard {
                continue;
            }
            let mut copy = self.own.guards[g].clone();
            (copy.daemon, copy.machine, copy.directory) = (twin, machine, directory);
            self.own.guards.push(copy);
            let copy = self.own.guards.len() - 1;
            self.own.guarding.push(copy);
            let recorded = &mut self.own.directories[directory].child;
            *recorded = recorded.map(|named| if named == g { copy } else { named });
            if !self.own.guards[copy].alive {
                self.report_killed(copy);
            }
        }
    }

    pub(super) fn inject_into_guard(&mut self, fault: Fault, rng: &mut Rng) {
        let all = self.own.guarding.iter().copied();
        let alive: Vec<_> = all.filter(|g| self.own.guards[*g].alive).collect();
        let (pick, length) = (rng.next_u64(), rng.between(100, 45_000) * MS);
        let index = pick % (alive.len() as u64).max(1);
        let Some(g) = alive
            .get(usize::try_from(index).expect("an index"))
            .copied()
        else {
            return;
        };
        self.coverage.hit(Hit::Fault(fault));
        let until = self.now + length;
        self.note(|| format!("   g{g} until {} ms", until / MS));
        let container = self.own.guards[g].container();
        if let Some(container) = container.filter(|_| fault != Fault::RecordsLate) {
            self.trouble_container(container, fault, until);
        }
        if fault == Fault::GuardKilled {
            return self.kill_guard(g);
        }
        if fault == Fault::BothKilled {
            let Guard {
                daemon,
                machine,
                directory,
                ..
            } = self.own.guards[g];
            self.kill_guard(g);
            self.kill(daemon);
            // The service manager restarts the daemon immediately or a little later.
            let later = self.now + rng.between(1, 1_500) * MS;
            self.start_at(later, machine, directory);
            return self.may_witness(rng, machine, directory);
        }
        if fault == Fault::RecordsLate {
            let guard = &self.own.guards[g];
            let clock = self.machine_clock(guard.machine, true);
            let passes = guard.read.terms.valid_until;
            let passes = self.true_time(guard.machine, clock, passes);
            let until = passes + length % (4_000 * MS);
            return self.own.guards[g].hold_records_until(until);
        }
        if container.is_none() {
            self.own.guards[g].frozen_until = self.own.guards[g].frozen_until.max(until);
        }
        if fault == Fault::BothFrozen && self.processes[self.own.guards[g].daemon].alive {
            self.freeze(self.own.guards[g].daemon, until);
        }
    }

    pub(super) fn heal_guards(&mut self) {
        for g in self.own.guarding.clone() {
            let guard = &mut self.own.guards[g];
            guard.frozen_until = guard.frozen_until.min(self.now);
            guard.hold_records_until(self.now);
            if let Child::Runs(life) = &mut guard.child {
                life.survives = 0;
                if life.survived {
                    (life.leader, life.rest) = (self.now, self.now);
                }
            }
            if let Child::Runs(life) = &mut guard.child
                && !life.survived
                && !life.leader_ended
                && !guard.exited
                && !guard.judge.stop_requested()
            {
                life.leader = u64::MAX;
            }
            // The daemon may have been frozen for longer than the guard, so it learns of the
            // guard's exit only now.
            let guard = &self.own.guards[g];
            let apart = guard.connection.is_some();
            if !apart && !guard.alive && !guard.heard && self.processes[guard.daemon].alive {
                self.report_killed(g);
            }
        }
        self.heal_containers();
    }
}
