//! Brings what the onlooker knows of children to the invariants.

use std::time::Duration;

use super::cluster::World;
use super::coverage::{Hit, Path};
use super::guards::{GUARD_LATE_MAX, Phase, WAKE_MAX};
use super::invariants::children_end_in_time::{self as in_time, Running};
use super::invariants::children_have_their_time::{self as their_time, End};
use super::invariants::one_child::{self, Child};
use super::invariants::orphans_are_told::{self as orphans, Orphan};
use crate::election::{BootTime, Claim};

const WAKE: Duration = Duration::from_nanos(WAKE_MAX);
/// A record of before has arrived, and daemon and guard have acted on it.
const KNOWN_MAX: Duration = Duration::from_millis(100);

impl World {
    /// How long somebody who went on at `thawed` has been running.
    fn running_since(&self, thawed: u64) -> Option<Duration> {
        (thawed <= self.now).then(|| Duration::from_nanos(self.now - thawed))
    }

    /// What its guard has just judged: with what right a child ends.
    pub(super) fn check_end_of_child(&mut self, g: usize, now: BootTime) {
        let guard = &self.guards[g];
        let (told, killed) = (guard.judge.told_to_end(), guard.judge.killed());
        if (told, killed) == guard.ends {
            return;
        }
        let stop = guard.read.stop;
        let end = End {
            killed,
            orphaned: !self.processes[guard.daemon].alive,
            stopped: stop.is_some(),
            stop_over: stop.is_some_and(|stop| now >= stop.kill_at),
            left_behind: guard.leader_ended(),
            expired: guard.passed.is_some_and(|passed| !killed || passed <= now),
            renewed_for: guard.renewed_for,
            latency_max: KNOWN_MAX,
        };
        self.guards[g].ends = (told, killed);
        self.found(their_time::check(end));
    }

    /// The deadline that a guard knows has passed: for how long it and its
    /// daemon could have known of a renewal that carries it on.
    pub(super) fn renewed_for(&self, g: usize, now: BootTime) -> Option<Duration> {
        let guard = &self.guards[g];
        let daemon = &self.processes[guard.daemon];
        let lost = matches!(guard.phase, Phase::Lost { .. });
        let facts = daemon.facts.claim(guard.claim)?;
        let renewed = daemon.alive && !lost && facts.until.is_some_and(|until| until > now);
        let awake = self.running_since(self.thaws_at(guard.daemon).max(guard.held_until))?;
        renewed.then(|| now.since(facts.until_at).min(awake))
    }

    /// After every step: which children run, and with what right.
    pub(super) fn check_children(&mut self) {
        if self.guarding.is_empty() {
            return;
        }
        let mut children = Vec::new();
        let mut found = None;
        let mut slept = false;
        for g in self.guarding.iter().copied() {
            let guard = &self.guards[g];
            let asleep = self.machines[guard.machine].asleep_until > self.now;
            if !guard.child_runs() || asleep {
                continue;
            }
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
                kept: kept.filter(|_| daemon.alive),
                wake_max: WAKE,
                // A guard that is killed is seen to be gone a moment later.
                guard_late_max: GUARD_LATE_MAX + WAKE,
            };
            found = found.or(in_time::check(running));
            if let (Some(since), Some(guarded)) = (guard.orphaned_at, guarded) {
                found = found.or(orphans::check(Orphan {
                    told: guard.judge.told_to_end() || guard.leader_ended(),
                    alone: guarded.min(Duration::from_nanos(self.now - since)),
                    wake_max: WAKE,
                }));
            }
            let late = in_time::is_late(running);
            slept |= late;
            let left = !guard.alive && !daemon.alive;
            let until = facts.and_then(|f| f.until).unwrap_or_default();
            let excused = facts.is_some_and(|f| f.excused_until > self.now);
            children.push(Child {
                process: guard.daemon,
                claim: guard.claim,
                excused: late || left || excused || self.is_of_twins(guard.claim, until),
            });
        }
        let rates = self.machines.iter().map(|m| m.rate);
        let rates = rates.clone().min().zip(rates.max()).unwrap_or((1, 1));
        self.found(found.or(one_child::check(&children, rates)));
        if slept {
            self.coverage.hit(Hit::Path(Path::ChildLate));
        }
    }

    /// By a write that was sent before the machine was forked.
    fn is_of_twins(&self, claim: Claim, until: BootTime) -> bool {
        let claims = self.forks.iter().flat_map(|f| &f.claims);
        let mut of_both = claims.filter(|(c, _)| *c == claim);
        of_both.any(|(_, sent_before)| until <= *sent_before)
    }

    /// Whether anything of an earlier claim of this process runs: neither is
    /// that claim released meanwhile, nor does another one lead.
    pub(super) fn child_runs(&self, process: usize) -> bool {
        let runs = |g: &usize| self.guards[*g].daemon == process && self.guards[*g].child_runs();
        self.guarding.iter().any(runs)
    }

    /// Whether anything of a claim runs whose daemon is dead, with its guard or
    /// without: it is no proof of death then.
    pub(super) fn orphan_runs(&self, directory: usize, claim: Claim) -> bool {
        let runs = |g: &usize| {
            let guard = &self.guards[*g];
            let same = guard.directory == directory && guard.claim == claim;
            same && guard.child_runs()
        };
        self.guarding.iter().any(runs)
    }

    /// Whether the record of a directory names a child that runs. What a guard
    /// or a daemon saw the end of is not in it any more.
    pub(super) fn recorded_child_runs(&self, directory: usize) -> bool {
        let named = self.directories[directory].child;
        named.is_some_and(|g| self.guards[g].child_runs())
    }

    /// A guard, or a daemon whose guard was killed, has seen the end of a child.
    pub(super) fn record_end_of_child(&mut self, g: usize) {
        let recorded = &mut self.directories[self.guards[g].directory].child;
        *recorded = recorded.filter(|named| *named != g);
    }

    /// Whether the process still waits for the end of a workload, as it knows.
    pub(super) fn awaits_child(&self, process: usize) -> bool {
        let awaits = |g: &usize| self.guards[*g].daemon == process && !self.guards[*g].heard;
        self.guarding.iter().any(awaits)
    }

    /// For the end of a run: whether each that leads and supervises has its child.
    pub(super) fn leads_without_child(&self) -> Option<usize> {
        self.live.iter().copied().find(|process| {
            let p = &self.processes[*process];
            let leads = p.published.at(self.clock(*process)).authority.is_some();
            leads && p.supervises && !self.child_runs(*process)
        })
    }

    /// For so long a workload may be ending when peace comes.
    pub(super) fn longest_end(&self) -> Duration {
        let supervised = self.machines.iter().filter(|m| m.supervises);
        supervised.map(|m| m.stop_grace).max().unwrap_or_default()
    }
}
