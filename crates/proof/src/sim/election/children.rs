//! Checks the observer's records of children against the invariants.

use std::time::Duration;

use super::cluster::World;
use super::coverage::{Hit, Path};
use super::guards::{GUARD_LATE_MAX, Guard, WAKE_MAX};
use super::invariants::children_are_recorded::{self as recorded, Recorded};
use super::invariants::children_end_in_time::{self as in_time, Running};
use super::invariants::children_have_their_time::{self as their_time, End};
use super::invariants::one_child::{self, Child};
use super::invariants::orphaned_children_are_stopped::{self as orphans, Orphan};
use crate::election::mutation::planted;
use crate::election::{BootTime, Claim};

const WAKE: Duration = Duration::from_nanos(WAKE_MAX);
/// Maximum time until a record has arrived and the daemon and the guard have acted on it.
const KNOWN_MAX: Duration = Duration::from_millis(100);

impl World {
    /// Returns the time since `thawed`, or `None` if that instant is in the future.
    pub(super) fn running_since(&self, thawed: u64) -> Option<Duration> {
        (thawed <= self.now).then(|| Duration::from_nanos(self.now - thawed))
    }

    /// Checks that the guard had a valid reason when it last decided to end a child.
    pub(super) fn check_end_of_child(&mut self, g: usize, now: BootTime) {
        let guard = &self.own.guards[g];
        let (told, killed) = (guard.judge.stop_requested(), guard.judge.killed());
        if (told, killed) == guard.ends {
            return;
        }
        let stop = guard.read.stop;
        let end = End {
            killed,
            orphaned: guard.cut || !self.processes[guard.daemon].alive,
            given_up: guard.read.kill,
            stopped: stop.is_some(),
            stop_over: stop.is_some_and(|stop| now >= stop.kill_at),
            left_behind: guard.leader_ended()
                && guard.lingers_until.is_none_or(|until| now >= until),
            expired: guard.passed.is_some_and(|passed| !killed || passed <= now),
            renewed_for: guard.renewed_for,
            latency_max: KNOWN_MAX,
        };
        self.own.guards[g].ends = (told, killed);
        self.found(their_time::check(end));
    }

    /// Returns how long the guard and its daemon have been able to learn of a renewal that extends
    /// the guard's deadline. Returns `None` if no renewal extends this deadline.
    pub(super) fn renewed_for(&self, g: usize, now: BootTime) -> Option<Duration> {
        let guard = &self.own.guards[g];
        let daemon = &self.processes[guard.daemon];
        let facts = daemon.facts.claim(guard.claim)?;
        let renewed = daemon.alive
            && !guard.cut
            && !guard.wanted.lost
            && facts.until.is_some_and(|until| until > now);
        let awake = self.running_since(self.thaws_at(guard.daemon).max(guard.held_until))?;
        renewed.then(|| now.since(facts.until_at).min(awake))
    }

    pub(super) fn check_children(&mut self) {
        if self.own.guarding.is_empty() {
            return;
        }
        let mut children = Vec::new();
        let mut found = None;
        let mut slept = false;
        for index in 0..self.own.guarding.len() {
            self.check_start(self.own.guarding[index]);
        }
        for g in self.own.guarding.iter().copied() {
            let guard = &self.own.guards[g];
            if !guard.child_runs() || self.child_still_until(g) > self.now {
                continue;
            }
            let named = self.own.directories[guard.directory].child;
            found = found.or(recorded::check(Recorded {
                guarded: guard.alive,
                named: named == Some(g),
            }));
            let now = self.machine_clock(guard.machine, true);
            let daemon = &self.processes[guard.daemon];
            let facts = daemon.facts.claim(guard.claim);
            let thaws = self.guard_thaws_at(g);
            let guarded = self.running_since(thaws).filter(|_| guard.alive);
            let kept = self.running_since(self.thaws_at(guard.daemon));
            let earned = facts.and_then(|f| Some(f.until? + f.timings.loss_grace()));
            let told = guard.read.stop.map(|stop| stop.kill_at);
            let running = Running {
                now,
                due: earned.map(|earned| told.map_or(earned, |told| told.min(earned))),
                passed: guard.passed,
                guarded,
                // A daemon cannot kill a guard in another container.
                kept: kept.filter(|_| daemon.alive && guard.connection.is_none()),
                wake_max: WAKE,
                // The daemon notices the exit of a killed guard a moment later.
                guard_late_max: GUARD_LATE_MAX + WAKE,
            };
            let stuck = guard.is_stuck();
            found = found.or(in_time::check(running).filter(|_| !stuck));
            if let (Some(since), Some(guarded)) = (guard.orphaned_at, guarded) {
                found = found.or(orphans::check(Orphan {
                    asked: guard.judge.stop_requested() || guard.leader_ended(),
                    alone: guarded.min(Duration::from_nanos(self.now - since)),
                    wake_max: WAKE,
                }));
            }
            let late = in_time::is_late(running);
            slept |= late;
            let left = !guard.alive && !daemon.alive;
            let until = facts.and_then(|f| f.until).unwrap_or_default();
            let tolerated = facts.is_some_and(|f| f.tolerated_until > self.now);
            let mut forks = self.own.forks.iter();
            let of_twins = forks.any(|fork| fork.tolerates(guard.claim, until));
            children.push(Child {
                process: guard.daemon,
                claim: guard.claim,
                tolerated: late || stuck || left || tolerated || of_twins,
            });
        }
        let rates = self.machines.iter().map(|m| m.clock.rate);
        let rates = rates.clone().min().zip(rates.max()).unwrap_or((1, 1));
        self.found(found.or(one_child::check(&children, rates)));
        self.coverage.hit_if(slept, Hit::Path(Path::ChildLate));
    }

    /// Returns true if a child of this process runs. Until the child of a claim exits, the process
    /// must not release this claim, and no other claim may lead.
    pub(super) fn child_runs(&self, process: usize) -> bool {
        self.any_guard(|guard| guard.daemon == process && guard.child_runs())
    }

    /// Returns true if a child runs under a claim whose daemon has exited, whether or not the
    /// child's guard runs. The exit of the daemon then proves nothing about the workload.
    pub(super) fn orphan_runs(&self, directory: usize, claim: Claim) -> bool {
        let same = |guard: &Guard| guard.directory == directory && guard.claim == claim;
        self.any_guard(|guard| same(guard) && guard.child_runs())
    }

    /// Returns true if the record of a directory names a running child. The record omits a child
    /// once a guard or a daemon has seen the child exit.
    pub(super) fn recorded_child_runs(&self, directory: usize) -> bool {
        let named = self.own.directories[directory].child;
        named.is_some_and(|g| match self.own.guards[g].connection {
            // The record is from another PID namespace, so a daemon cannot check the record and
            // must trust it.
            Some(_) => !planted!(FreeLockIsProof),
            None => self.own.guards[g].child_runs(),
        })
    }

    /// Removes a child from the record, because the guard, or the daemon of a killed guard, has
    /// seen the child exit.
    pub(super) fn record_end_of_child(&mut self, g: usize) {
        let recorded = &mut self.own.directories[self.own.guards[g].directory].child;
        *recorded = recorded.filter(|named| *named != g);
    }

    /// Returns true if the process does not know yet that every workload has ended.
    pub(super) fn awaits_child(&self, process: usize) -> bool {
        self.any_guard(|guard| guard.daemon == process && !guard.heard)
    }

    pub(super) fn leads_without_child(&self) -> Option<usize> {
        self.live.iter().copied().find(|process| {
            let p = &self.processes[*process];
            let leads = p.published.at(self.clock(*process)).authority.is_some();
            leads && p.supervises && !self.child_runs(*process)
        })
    }

    /// Returns a process that cannot lead, because it waits for an earlier workload or for a guard.
    pub(super) fn waits_for_guard(&self) -> Option<usize> {
        let waits = |process: &usize| {
            let p = &self.processes[*process];
            let led = p.published.at(self.clock(*process)).authority;
            let led = led.map(|authority| authority.token);
            let earlier = |guard: &Guard| {
                guard.daemon == *process && !guard.heard && Some(guard.token) != led
            };
            let alone = self.is_contained(*process) && p.connection.is_none();
            !p.exiting && (alone || self.any_guard(earlier))
        };
        self.live.iter().copied().find(waits)
    }

    pub(super) fn longest_end(&self) -> Duration {
        let supervised = self.machines.iter().filter(|m| m.supervises);
        supervised.map(|m| m.stop_grace).max().unwrap_or_default()
    }
}
