//! Kills, freezes and disconnects the containers of guards, and restarts them.

use super::child::{Child, Life};
use super::cluster::World;
use super::containers::Connection;
use super::coverage::{Hit, Path};
use super::faults::Fault;
use crate::proof::sim::rng::Rng;
use crate::proof::sim::{MS, SECOND};

/// The longest back-off before the kubelet restarts a container.
const BACK_OFF_MAX: u64 = 60 * SECOND;

impl Life {
    /// Returns the remaining life after the guard, process 1 of the container, was killed at `now`.
    /// The kernel kills all other processes of the container, but only after it has closed the
    /// guard's files.
    fn without_container(self, now: u64) -> Self {
        if let Some(stuck) = self.killed(now) {
            return stuck;
        }
        let ends = now + self.outlives_guard.min(SECOND);
        Self {
            leader: self.leader.min(ends),
            rest: self.rest.min(ends),
            leaves: 0,
            ..self
        }
    }
}

impl World {
    /// Ends a container, because its guard exits or is killed.
    pub(super) fn container_ends(&mut self, c: usize) {
        if !std::mem::replace(&mut self.own.containers[c].runs, false) {
            return;
        }
        self.note(|| format!("container {c} ends"));
        self.closes(c, false);
        let now = self.now;
        self.own.containers[c].guard = None;
        let awaited = self.live.iter().filter_map(|p| self.processes[*p].ordered);
        for g in awaited.chain(self.own.guarding.clone()).collect::<Vec<_>>() {
            if self.own.guards[g].container() == Some(c) && !self.own.guards[g].exited {
                self.guard_ends(g);
            }
        }
        let container = &mut self.own.containers[c];
        container.frozen_until = container.frozen_until.min(now);
        let longest = ((100 * MS) << container.restarts.min(10)).min(BACK_OFF_MAX);
        container.restarts += 1;
        let at = now + self.own.container_dice.between(10 * MS, longest);
        self.at(at, move |world| world.container_starts(c));
    }

    fn guard_ends(&mut self, g: usize) {
        let running = self.own.guards[g].child_runs();
        self.coverage
            .hit_if(running, Hit::Path(Path::ContainerKilled));
        let now = self.now;
        let guard = &mut self.own.guards[g];
        (guard.alive, guard.exited) = (false, true);
        guard.child = match guard.child {
            Child::Recording(shim) => Child::Recording(shim.killed()),
            Child::Runs(life) => Child::Runs(life.without_container(now)),
            Child::Unborn | Child::Gone => Child::Gone,
        };
        self.notice_exit(g);
    }

    fn container_starts(&mut self, c: usize) {
        let container = &mut self.own.containers[c];
        if !std::mem::replace(&mut container.runs, true) {
            container.started = self.own.connections;
            let directory = container.directory;
            self.invite(directory);
        }
    }

    /// Ends all containers of a machine that reboots.
    pub(super) fn lose_containers(&mut self, machine: usize) {
        for c in 0..self.own.containers.len() {
            if self.own.containers[c].machine == machine {
                self.container_ends(c);
            }
        }
    }

    /// Applies a fault of guards to a guard's container.
    pub(super) fn trouble_container(&mut self, c: usize, fault: Fault, until: u64) {
        match fault {
            Fault::GuardKilled | Fault::BothKilled | Fault::ContainerKilled => {
                self.container_ends(c);
            }
            Fault::ConnectionBroken => {
                let guard = self.own.containers[c].guard;
                let running = guard.is_some_and(|g| self.own.guards[g].child_runs());
                let broken = running && self.own.containers[c].connection.is_some();
                self.coverage
                    .hit_if(broken, Hit::Path(Path::ConnectionBroken));
                self.closes(c, true);
                let directory = self.own.containers[c].directory;
                self.invite(directory);
            }
            _ => {
                let container = &mut self.own.containers[c];
                container.frozen_until = container.frozen_until.max(until);
            }
        }
    }

    pub(super) fn inject_into_container(&mut self, fault: Fault, rng: &mut Rng) {
        let (pick, length) = (rng.next_u64(), rng.between(100, 45_000) * MS);
        let all = 0..self.own.containers.len();
        let used = |c: &usize| self.own.containers[*c].connection.is_some();
        let used: Vec<_> = all.filter(used).collect();
        if used.is_empty() {
            return;
        }
        let c = used[usize::try_from(pick % used.len() as u64).expect("an index")];
        self.coverage.hit(Hit::Fault(fault));
        self.note(|| format!("   container {c}"));
        self.trouble_container(c, fault, self.now + length);
    }

    /// May break the connection of a process at about the time of its acquisition.
    pub(super) fn disturb_connection(&mut self, process: usize) {
        let connection = self.processes[process].connection;
        if let Some(Connection { peer: c, .. }) = connection
            && self.troubles(Fault::ConnectionBroken)
            && self.own.container_dice.one_in(4)
        {
            let at = self.now + self.own.container_dice.below(20 * MS);
            self.at(at, move |world| {
                world.trouble_container(c, Fault::ConnectionBroken, 0);
            });
        }
    }

    /// Ends the faults of containers. Events that waited for a frozen process then happen soon.
    pub(super) fn heal_containers(&mut self) {
        for c in 0..self.own.containers.len() {
            let container = &mut self.own.containers[c];
            container.frozen_until = container.frozen_until.min(self.now);
            container.restarts = 0;
            if !container.runs {
                let at = self.now + self.own.container_dice.between(MS, SECOND);
                self.at(at, move |world| world.container_starts(c));
            }
        }
        for daemon in self.live.clone() {
            let ordered = self.processes[daemon].ordered;
            if let Some(g) = ordered.filter(|g| self.own.guards[*g].exit_noticed) {
                self.at(self.now + MS, move |world| world.exited_guard(g));
            }
        }
        for daemon in self.live.clone() {
            let Some(connection) = self.processes[daemon].connection else {
                self.invite(self.processes[daemon].directory);
                continue;
            };
            let Connection { peer: c, serial } = connection;
            let other = self.own.containers[c].connection;
            if other.is_none_or(|other| other.serial != serial) {
                let at = self.now + MS;
                self.at(at, move |world| {
                    world.close_noticed(daemon, connection, None);
                });
            }
        }
    }
}
