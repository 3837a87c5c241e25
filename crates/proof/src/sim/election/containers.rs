//! Supervision in two containers of a pod: the daemon runs in one container, the guard and its
//! child in the other. A socket on the volume of the status directory connects them.
//!
//! The guard is process 1 of its container. The guard applies only the orders of its current
//! connection, and starts a child at most once per connection. When the connection closes, the
//! guard ends its child, records `gone`, releases the claim lock, and connects again. The daemon
//! uses one guard at a time, and contends only while a guard is connected. A closed connection
//! proves nothing to the daemon. The daemon has proof that the workload is gone once the guard
//! reports this, connects again or has exited. The kernel reports the exit of process 1 only after
//! all other processes of its container have exited. The daemon waits for the guard that received
//! its last order, because that guard may write its record late.
//!
//! Freezing a container stops both the guard and its child. Machines with these containers are
//! never forked.

use super::child::Child;
use super::cluster::World;
use super::coverage::{Hit, Path};
use super::files::Health;
use super::guards::Guard;
use super::process::Class;
use crate::election::mutation::planted;
use crate::election::{Claim, Input, Terms, Token};
use crate::proof::sim::MS;

/// Maximum time that a guard takes to connect to a running daemon.
const CONNECTS_MAX: u64 = 500 * MS;
/// Maximum time until a process notices an order, an exit, or the closing of a connection.
const NOTICED_MAX: u64 = 20 * MS;

/// A container with a guard. Keeps its number when it restarts.
#[derive(Debug, Clone)]
pub(super) struct Container {
    pub(super) machine: usize,
    pub(super) directory: usize,
    pub(super) runs: bool,
    pub(super) frozen_until: u64,
    pub(super) connection: Option<Connection>,
    /// The guard that received the last order; `None` once this guard has released the claim lock.
    pub(super) guard: Option<usize>,
    ordered_last: Option<usize>,
    pub(super) restarts: u32,
    /// The serial number of the last connection before the container's last start.
    pub(super) started: u64,
}

/// One end of a connection: the number of the peer, which is a daemon or a container, and the
/// serial number of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Connection {
    pub(super) peer: usize,
    pub(super) serial: u64,
}

impl World {
    /// Adds the guards of a new directory. In a third of all cases, a guard in another pod uses the
    /// same volume.
    pub(super) fn furnish(&mut self, directory: usize) {
        let machine = self.own.directories[directory].machine;
        if !self.machines[machine].contained {
            return;
        }
        let guards = if self.own.container_dice.one_in(3) {
            2
        } else {
            1
        };
        for _ in 0..guards {
            self.own.containers.push(Container {
                machine,
                directory,
                runs: true,
                frozen_until: 0,
                connection: None,
                guard: None,
                ordered_last: None,
                restarts: 0,
                started: self.own.connections,
            });
        }
    }

    pub(super) fn is_contained(&self, process: usize) -> bool {
        self.machines[self.processes[process].machine].contained
    }

    /// Delivers the health of the workload. Without a guard, no workload is healthy.
    pub(super) fn checked(&mut self, process: usize, healthy: bool) {
        self.processes[process].checks_pass = healthy;
        self.tell_health(process);
    }

    fn tell_health(&mut self, process: usize) {
        let p = &self.processes[process];
        let guarded = p.connection.is_some() || !self.is_contained(process);
        let healthy = p.checks_pass && (guarded || planted!(LeadsWithoutGuard));
        self.input(process, Class::Machine, Input::Health { healthy });
    }

    /// Makes each unconnected guard of a directory connect soon.
    pub(super) fn invite(&mut self, directory: usize) {
        for c in 0..self.own.containers.len() {
            if self.own.containers[c].directory == directory {
                let at = self.now + self.own.container_dice.between(MS, CONNECTS_MAX);
                self.at(at, move |world| world.connects(c));
            }
        }
    }

    fn connects(&mut self, c: usize) {
        let container = &self.own.containers[c];
        let busy = container.connection.is_some() || container.guard.is_some();
        let daemon = self.own.directories[container.directory].locked_by;
        let Some(daemon) = daemon.filter(|_| container.runs && !busy) else {
            return;
        };
        let awake = self.still_until(c).max(self.thaws_at(daemon));
        if awake > self.now {
            return self.at(awake, move |world| world.connects(c));
        }
        // The daemon waits for the guard that received its last order, because this guard may write
        // its record late.
        let open = self.processes[daemon].ordered;
        let same = |g: usize| self.own.guards[g].container() == Some(c);
        let of_other = open.is_some_and(|g| !same(g) || self.own.guards[g].exited);
        let taken = self.processes[daemon].connection.is_some();
        if (taken || (of_other && !planted!(AnyGuardProves))) && !planted!(TwoGuardsOrdered) {
            self.coverage.hit(Hit::Path(Path::GuardWaits));
            return;
        }
        self.own.connections += 1;
        let serial = self.own.connections;
        let end = |peer| Some(Connection { peer, serial });
        self.own.containers[c].connection = end(daemon);
        self.note(|| format!("p{daemon} accepts the guard of container {c}"));
        if !taken {
            self.processes[daemon].connection = end(c);
            self.processes[daemon].facts.alone_since = None;
        }
        if let Some(g) = open {
            // A guard connects again only once the workload of its last connection is gone.
            self.processes[daemon].ordered = None;
            let unproven = !self.own.guards[g].heard;
            self.coverage
                .hit_if(unproven, Hit::Path(Path::ProvenByGuard));
            self.proven(g);
        }
        if planted!(OldOrderObeyed)
            && let Some(last) = self.own.containers[c].ordered_last
        {
            let guard = &self.own.guards[last];
            let order = (guard.claim, guard.token, guard.read.terms);
            self.add_guard(
                daemon,
                order,
                self.own.containers[c].daemons_end(c),
                self.now,
            );
        }
        self.tell_health(daemon);
    }

    /// Orders the guard of this daemon to start the workload.
    pub(super) fn order_container(&mut self, process: usize, token: Token, terms: Terms) {
        let claim = self.processes[process].facts.of_token(token);
        let order = (claim.expect("it leads").claim, token, terms);
        let arrives = self.now + self.own.container_dice.between(MS, NOTICED_MAX);
        let used = self.processes[process].connection;
        let mut reached = false;
        for c in 0..self.own.containers.len() {
            let container = &self.own.containers[c];
            let connected = container.connection.is_some_and(|end| end.peer == process);
            let end = container.daemons_end(c);
            let ordered = end == used || planted!(TwoGuardsOrdered);
            if connected && ordered && container.guard.is_none() {
                reached = true;
                let g = self.add_guard(process, order, end, arrives);
                self.processes[process].ordered = Some(g);
            }
        }
        match used.filter(|_| !reached) {
            Some(closed) => self.order_lost(process, order, closed),
            // The daemon gave no order, so no workload runs.
            None if !reached => self.at(arrives, move |world| {
                world.input(process, Class::Machine, Input::WorkloadEnded { token });
                world.input(process, Class::Machine, Input::WorkloadGone { token });
            }),
            None => {}
        }
    }

    /// Sends an order over a connection that the guard has closed. The daemon has not noticed yet
    /// that the connection is closed.
    fn order_lost(&mut self, process: usize, order: (Claim, Token, Terms), closed: Connection) {
        self.coverage.hit(Hit::Path(Path::OrderLost));
        let container = &self.own.containers[closed.peer];
        let exited = !container.runs || closed.serial <= container.started;
        let (before, last) = (container.guard, container.ordered_last);
        let g = self.add_guard(process, order, Some(closed), self.now);
        let container = &mut self.own.containers[closed.peer];
        (container.guard, container.ordered_last) = (before, last);
        let guard = &mut self.own.guards[g];
        (guard.alive, guard.cut, guard.unheard) = (false, true, true);
        (guard.child, guard.exited) = (Child::Gone, exited);
        self.processes[process].ordered = Some(g);
        self.notice_exit(g);
    }

    /// Records that a container has received the order for guard `g`.
    pub(super) fn ordered(&mut self, c: usize, g: usize) {
        self.own.containers[c].guard = Some(g);
        self.own.containers[c].ordered_last = Some(g);
    }

    /// Returns the time when a container's processes resume after a freeze or a suspension.
    pub(super) fn still_until(&self, c: usize) -> u64 {
        let container = &self.own.containers[c];
        container
            .frozen_until
            .max(self.machines[container.machine].asleep_until)
    }

    /// Closes the connection of a guard. Messages in flight arrive unless the connection `breaks`.
    pub(super) fn closes(&mut self, c: usize, breaks: bool) {
        let Some(connection) = self.own.containers[c].connection.take() else {
            return;
        };
        if let Some(g) = self.own.containers[c].guard {
            let guard = &mut self.own.guards[g];
            guard.cut = true;
            guard.unheard |= breaks;
            guard.orphaned_at.get_or_insert(self.now);
        }
        let g = self.own.containers[c].guard;
        let at = self.now + self.own.container_dice.between(MS, NOTICED_MAX);
        let (daemon, serial) = (connection.peer, connection.serial);
        let here = Connection { peer: c, serial };
        self.at(at, move |world| world.close_noticed(daemon, here, g));
    }

    /// Called when the daemon notices that a guard's connection has closed.
    pub(super) fn close_noticed(
        &mut self,
        daemon: usize,
        connection: Connection,
        g: Option<usize>,
    ) {
        if !self.processes[daemon].alive || self.processes[daemon].connection != Some(connection) {
            return;
        }
        if self.is_frozen(daemon) {
            let at = self.thaws_at(daemon);
            return self.at(at, move |world| world.close_noticed(daemon, connection, g));
        }
        let now = self.clock(daemon);
        let p = &mut self.processes[daemon];
        (p.connection, p.facts.alone_since) = (None, Some(now));
        let directory = p.directory;
        self.note(|| format!("p{daemon} has no guard"));
        if let Some(g) = g.filter(|g| !self.own.guards[*g].heard) {
            match planted!(ClosedIsGone) {
                true => self.proven(g),
                false => self.ended_hint(g),
            }
        }
        self.tell_health(daemon);
        self.invite(directory);
    }

    fn ended_hint(&mut self, g: usize) {
        let Guard { daemon, token, .. } = self.own.guards[g];
        if self.own.guards[g].asked_at.is_none() {
            self.input(daemon, Class::Machine, Input::WorkloadEnded { token });
        }
    }

    /// Informs the daemon that every process of this guard's workload has provably exited.
    pub(super) fn proven(&mut self, g: usize) {
        let Guard { daemon, token, .. } = self.own.guards[g];
        if !self.processes[daemon].alive || self.own.guards[g].heard {
            return;
        }
        if self.is_frozen(daemon) {
            let at = self.thaws_at(daemon);
            return self.at(at, move |world| world.proven(g));
        }
        self.ended_hint(g);
        self.own.guards[g].heard = true;
        self.input(daemon, Class::Machine, Input::WorkloadGone { token });
    }

    /// Handles the report of a guard in another container.
    pub(super) fn reported_by_container(&mut self, g: usize, gone: bool) {
        let Guard {
            daemon, connection, ..
        } = self.own.guards[g];
        if !self.processes[daemon].alive || self.own.guards[g].unheard {
            return;
        }
        if self.is_frozen(daemon) {
            let at = self.thaws_at(daemon);
            return self.at(at, move |world| world.reported_by_container(g, gone));
        }
        if !gone {
            return self.ended_hint(g);
        }
        self.proven(g);
        // A connection carries only one order to start a child, so this guard must connect again.
        if let Some(end) = connection.filter(|end| self.processes[daemon].connection == Some(*end))
        {
            self.close_noticed(daemon, end, None);
        }
    }

    /// Handles the end of a guard's child. The guard reports and records the end. If the child
    /// exited by itself, the container then ends; otherwise, the guard releases the lock and
    /// connects again.
    pub(super) fn end_order(&mut self, g: usize, c: usize) {
        let guard = &mut self.own.guards[g];
        let directory = guard.directory;
        let by_itself = guard.ended_by_itself;
        if !std::mem::replace(&mut guard.reported, true) && !guard.cut {
            self.report(g, true);
        }
        match self.own.directories[directory].health {
            Health::Hangs => return,
            // Without the record, only the exit of the guard can prove the end of the child.
            Health::ReadOnly | Health::Full => return self.container_ends(c),
            Health::Good | Health::Slow => self.record_end_of_child(g),
        }
        self.own.guards[g].alive = false;
        if by_itself {
            return self.container_ends(c);
        }
        self.closes(c, false);
        self.own.containers[c].guard = None;
        self.invite(directory);
    }

    /// Makes the daemon notice the exit of process 1 of a container, after all other processes have
    /// exited.
    pub(super) fn notice_exit(&mut self, g: usize) {
        let guard = &mut self.own.guards[g];
        let left = guard.child_runs() || guard.shim().is_some();
        if guard.exited && !left && !std::mem::replace(&mut guard.exit_noticed, true) {
            let used = self.processes[guard.daemon].alive && !guard.heard;
            self.coverage.hit_if(used, Hit::Path(Path::ProvenByExit));
            let at = self.now + self.own.container_dice.between(MS, NOTICED_MAX);
            self.at(at, move |world| world.exited_guard(g));
        }
    }

    /// Called when the daemon notices the exit of a guard that had an order.
    pub(super) fn exited_guard(&mut self, g: usize) {
        let Guard {
            daemon, directory, ..
        } = self.own.guards[g];
        if !self.processes[daemon].alive {
            return;
        }
        if self.is_frozen(daemon) {
            let at = self.thaws_at(daemon);
            return self.at(at, move |world| world.exited_guard(g));
        }
        self.proven(g);
        let ordered = &mut self.processes[daemon].ordered;
        *ordered = ordered.filter(|last| *last != g);
        self.invite(directory);
    }

    /// Closes the connections of a daemon that has exited.
    pub(super) fn disconnect(&mut self, daemon: usize) {
        for c in 0..self.own.containers.len() {
            let connection = self.own.containers[c].connection;
            if connection.is_some_and(|connection| connection.peer == daemon) {
                self.closes(c, true);
            }
        }
    }
}

impl Container {
    /// Returns the daemon's end of this container's connection.
    fn daemons_end(&self, own: usize) -> Option<Connection> {
        let serial = self.connection?.serial;
        Some(Connection { peer: own, serial })
    }
}
