//! The supervised workload: the requests of its daemon (`crates/supervisor/src/lib.rs` and
//! `crates/guard/src/client.rs`), the guard, and the guard's child.
//!
//! The shipped `DeadlinePolicy` makes a guard's decisions. The simulation models the code of
//! `crates/guard/src/guard.rs` around the policy: a guard reads everything that has arrived, checks
//! the child, decides, and acts. Once the child is gone, the guard releases the claim lock and
//! exits.

use std::collections::VecDeque;
use std::time::Duration;

use super::child::{Child, LINGER};
use super::cluster::World;
use super::containers::Connection;
use super::coverage::{Hit, Path};
use super::faults::Fault;
use super::invariants::one_child_a_token;
use super::process::Class;
use super::recording::Shim;
use crate::deadline_policy::{
    Action, DeadlinePolicy, DesiredState, Leftovers, PolicyInput, PolicyOptions, Stop,
};
use crate::election::mutation::planted;
use crate::election::{BootTime, Claim, Input, Order, OrderKind, Terms, Token};
use crate::proof::sim::MS;

/// Must equal the value in `crates/guard/src/client.rs`.
pub(super) const GUARD_LATE_MAX: Duration = Duration::from_millis(100);
/// Must equal the value in `crates/supervisor/src/command.rs`.
pub(super) const CONFIRMED_WITHIN: Duration = Duration::from_secs(1);
/// Maximum time until a record or a report arrives.
const LATENCY_MAX: u64 = 20 * MS;
/// Maximum time until the scheduler runs a process after a sleep or a freeze.
pub(super) const WAKE_MAX: u64 = 10 * MS;
const SIGTERM: i32 = 15;

#[derive(Clone)]
pub(super) struct Guard {
    pub(super) daemon: usize,
    pub(super) machine: usize,
    pub(super) directory: usize,
    pub(super) token: Token,
    pub(super) claim: Claim,
    pub(super) judge: DeadlinePolicy,
    pub(super) alive: bool,
    pub(super) frozen_until: u64,
    pub(super) child: Child,
    /// The records in flight, in the order in which they were sent, each with its arrival time.
    pipe: VecDeque<(u64, DesiredState)>,
    pub(super) held_until: u64,
    pub(super) read: DesiredState,
    pub(super) wanted: DesiredState,
    pub(super) asked_at: Option<BootTime>,
    /// The daemon knows that every process of the workload has exited.
    pub(super) heard: bool,
    told_leader_ended: bool,
    pub(super) told_stuck: bool,
    pub(super) told_at: u64,
    pub(super) ordered_at: BootTime,
    /// The time when the daemon gave up the start and ordered the guard to kill the child.
    pub(super) start_given_up: Option<BootTime>,
    /// Descendants of a child that has exited may run until this time.
    pub(super) lingers_until: Option<BootTime>,
    /// The child must be gone by this time, even if a later record extends the deadline. The guard
    /// sets this time when its newest deadline has passed.
    pub(super) passed: Option<BootTime>,
    /// The value that `World::renewed_for` returned when the guard set `passed`.
    pub(super) renewed_for: Option<Duration>,
    /// At the guard's last check: whether the child had received a stop signal, and whether it had
    /// received SIGKILL.
    pub(super) ends: (bool, bool),
    pub(super) orphaned_at: Option<u64>,
    /// The daemon's end of the connection, if the guard runs in another container.
    pub(super) connection: Option<Connection>,
    /// The connection has closed.
    pub(super) cut: bool,
    /// The messages in flight were lost with the connection.
    pub(super) unheard: bool,
    pub(super) reported: bool,
    /// The child's leader exited without a signal.
    pub(super) ended_by_itself: bool,
    /// The guard's container has ended.
    pub(super) exited: bool,
    pub(super) exit_noticed: bool,
}

impl Guard {
    pub(super) fn child_runs(&self) -> bool {
        matches!(self.child, Child::Runs(_))
    }

    pub(super) fn container(&self) -> Option<usize> {
        self.connection.map(|connection| connection.peer)
    }

    pub(super) fn leader_ended(&self) -> bool {
        matches!(self.child, Child::Runs(life) if life.leader_ended)
    }

    /// Returns true if some process of the child has survived SIGKILL so far.
    pub(super) fn is_stuck(&self) -> bool {
        matches!(self.child, Child::Runs(life) if life.survived)
    }

    pub(super) fn hold_records_until(&mut self, until: u64) {
        self.held_until = until;
        self.told_at = self.told_at.max(until);
        self.pipe.iter_mut().for_each(|(at, _)| *at = until);
    }

    fn is_over(&self, daemon_lives: bool) -> bool {
        let ended = !self.alive && !self.child_runs() && self.shim().is_none();
        ended && (self.heard || !daemon_lives)
    }
}

impl World {
    pub(super) fn order(&mut self, process: usize, order: Order) {
        let Order { token, kind } = order;
        self.note(|| format!("p{process} orders {kind:?} for token {token}"));
        if let OrderKind::Start(terms) = kind {
            return self.start_guard(process, token, terms);
        }
        let served = |g: &usize| {
            let guard = &self.own.guards[*g];
            guard.daemon == process && guard.token == token && !guard.heard
        };
        let Some(g) = self.own.guarding.iter().copied().find(served) else {
            return;
        };
        let machine = self.own.guards[g].machine;
        let now = self.machine_clock(machine, true);
        let graceful = Stop {
            signal: SIGTERM,
            kill_at: now + self.machines[machine].stop_grace,
        };
        let guard = &mut self.own.guards[g];
        guard.wanted = guard.wanted.ordered(kind, graceful);
        if !guard.wanted.runs() {
            guard.asked_at.get_or_insert(now);
        }
        self.send_newest_record(g);
    }

    fn start_guard(&mut self, process: usize, token: Token, terms: Terms) {
        if self.is_contained(process) {
            return self.order_container(process, token, terms);
        }
        let facts = self.processes[process].facts.of_token(token);
        let claim = facts.expect("it leads").claim;
        let slow = self.own.guard_dice.one_in(6) && self.troubles(Fault::GuardFrozen);
        let begins = match slow {
            true => self.own.guard_dice.between(1_000, 30_000) * MS,
            false => self.own.guard_dice.between(1, 20) * MS,
        };
        self.add_guard(process, (claim, token, terms), None, self.now + begins);
    }

    pub(super) fn add_guard(
        &mut self,
        process: usize,
        (claim, token, terms): (Claim, Token, Terms),
        connection: Option<Connection>,
        begins_at: u64,
    ) -> usize {
        let p = &self.processes[process];
        let leftovers = Leftovers {
            linger: match planted!(LingerCutShort) {
                true => Duration::ZERO,
                false => LINGER,
            },
            grace: terms.kill_at.since(terms.valid_until),
        };
        let g = self.own.guards.len();
        let guard = Guard {
            daemon: process,
            machine: p.machine,
            directory: p.directory,
            token,
            claim,
            judge: DeadlinePolicy::new(PolicyOptions {
                leftovers,
                ..PolicyOptions::new(patient(terms), SIGTERM)
            }),
            alive: true,
            frozen_until: begins_at,
            child: Child::Unborn,
            pipe: VecDeque::new(),
            held_until: 0,
            read: DesiredState::run(terms),
            wanted: DesiredState::run(terms),
            asked_at: None,
            heard: false,
            told_leader_ended: false,
            told_stuck: false,
            told_at: 0,
            ordered_at: self.clock(process),
            start_given_up: None,
            lingers_until: None,
            passed: None,
            renewed_for: None,
            ends: (false, false),
            orphaned_at: None,
            connection,
            cut: false,
            unheard: false,
            reported: false,
            ended_by_itself: false,
            exited: false,
            exit_noticed: false,
        };
        if let Some(c) = guard.container() {
            self.ordered(c, g);
        }
        self.own.guards.push(guard);
        self.own.guarding.push(g);
        g
    }

    pub(super) fn send_newest_record(&mut self, g: usize) {
        let latency = self.own.guard_dice.below(LATENCY_MAX);
        let guard = &mut self.own.guards[g];
        if guard.cut {
            return;
        }
        let last = guard.pipe.back().map_or(0, |(at, _)| *at);
        let at = (self.now + latency).max(last).max(guard.held_until);
        guard.pipe.push_back((at, guard.wanted));
        guard.told_at = at;
    }

    /// Returns the time when the guard and its child resume after a suspension of the machine or a
    /// freeze of the container.
    pub(super) fn child_still_until(&self, g: usize) -> u64 {
        let guard = &self.own.guards[g];
        match guard.container().filter(|_| !guard.exited) {
            Some(container) => self.still_until(container),
            None => self.machines[guard.machine].asleep_until,
        }
    }

    pub(super) fn guard_thaws_at(&self, g: usize) -> u64 {
        let guard = &self.own.guards[g];
        let asleep = self.child_still_until(g);
        let woken = match asleep > 0 {
            true => asleep + WAKE_MAX / 2,
            false => 0,
        };
        guard.frozen_until.max(woken)
    }

    pub(super) fn next_of_guards(&self) -> Option<u64> {
        let each = self.own.guarding.iter().filter_map(|g| {
            let guard = &self.own.guards[*g];
            let thaws = self.guard_thaws_at(*g);
            let (machine, clock) = (guard.machine, self.machine_clock(guard.machine, true));
            let on_time = |at| self.true_time(machine, clock, at);
            let acts = guard.alive && !guard.waits_for_record();
            let of_guard = acts.then(|| {
                let woken = (thaws > self.now).then_some(thaws);
                let record = guard.pipe.front().map(|(at, _)| *at);
                let due = guard.judge.next_wakeup().map(on_time);
                let all = [woken, record, due].into_iter().flatten();
                all.min().map(|at| at.max(thaws))
            });
            let awake_at = self.child_still_until(*g);
            let of_child = match guard.child {
                Child::Runs(life) if life.leader_ended => Some(life.rest.max(awake_at)),
                Child::Runs(life) => Some(life.leader.max(awake_at)),
                Child::Recording(_) if self.record_blocks(*g) => None,
                Child::Recording(_) => Some(awake_at),
                Child::Unborn | Child::Gone => None,
            };
            let of_daemon = [self.guard_due(*g), self.stuck_at(*g), self.start_due(*g)];
            let of_daemon = of_daemon.into_iter().flatten().min().map(on_time);
            let of_daemon = of_daemon.map(|at| at.max(self.thaws_at(guard.daemon)));
            let all = [of_guard.flatten(), of_child, of_daemon];
            all.into_iter().flatten().min()
        });
        each.min()
    }

    pub(super) fn pump_guards(&mut self) {
        for index in 0..self.own.guarding.len() {
            let g = self.own.guarding[index];
            self.keep(g);
            self.give_up_start(g);
            self.report_stuck(g);
            for _ in 0..100 {
                if !self.attend(g) {
                    break;
                }
            }
        }
        let (guards, processes) = (&self.own.guards, &self.processes);
        let over = |g: &usize| guards[*g].is_over(processes[guards[*g].daemon].alive);
        self.own.guarding.retain(|g| !over(g));
    }

    /// Performs one round of a guard. Returns true if another round may be needed.
    fn attend(&mut self, g: usize) -> bool {
        self.end_due_child(g);
        self.end_recording(g);
        self.notice_exit(g);
        if !self.own.guards[g].alive || self.guard_thaws_at(g) > self.now {
            return false;
        }
        if self.own.guards[g].waits_for_record() {
            return false;
        }
        let now = self.machine_clock(self.own.guards[g].machine, true);
        let guard = &mut self.own.guards[g];
        let closed = guard.cut || !self.processes[guard.daemon].alive;
        let mut records = 0;
        while let Some((at, record)) = guard.pipe.front().copied()
            && (at <= self.now || closed)
        {
            guard.pipe.pop_front();
            let terms = patient(record.terms);
            let order = PolicyInput::Order(DesiredState { terms, ..record });
            guard.judge.handle(now, order);
            if planted!(EachRecordJudged) {
                guard.judge.handle(now, PolicyInput::Time);
            }
            guard.read = record;
            records += 1;
        }
        if closed && !planted!(ClosedPipeIgnored) {
            guard.judge.handle(now, PolicyInput::Closed);
        }
        if guard.leader_ended() && !std::mem::replace(&mut guard.told_leader_ended, true) {
            guard.judge.handle(now, PolicyInput::LeaderEnded);
            guard.lingers_until = Some(now + LINGER);
        }
        if matches!(guard.child, Child::Gone) {
            guard.judge.handle(now, PolicyInput::Gone);
        }
        if now >= guard.read.terms.valid_until && guard.passed.is_none() {
            guard.passed = Some(guard.read.terms.kill_at);
            let renewed_for = self.renewed_for(g, now);
            self.own.guards[g].renewed_for = renewed_for;
        }
        let guard = &mut self.own.guards[g];
        let kill_at = guard.read.terms.kill_at;
        let revived = guard.passed.is_some_and(|passed| passed < kill_at);
        guard.judge.handle(now, PolicyInput::Time);
        let action = guard.judge.next_action();
        let coverage = &mut self.coverage;
        coverage.hit_if(records > 1, Hit::Path(Path::ManyRecords));
        coverage.hit_if(revived && records > 0, Hit::Path(Path::RecordTooLate));
        self.check_end_of_child(g, now);
        if let Some(action) = action {
            self.act(g, action);
        }
        self.give_up_recording(g, now);
        if matches!(self.own.guards[g].child, Child::Gone) {
            self.own.guards[g].judge.handle(now, PolicyInput::Gone);
            if let Some(container) = self.own.guards[g].container() {
                self.end_order(g, container);
                return action.is_some();
            }
            self.record_end_of_child(g);
            self.own.guards[g].alive = false;
            self.report(g, true);
        }
        action.is_some()
    }

    fn act(&mut self, g: usize, action: Action) {
        self.note(|| format!("g{g} {action:?}"));
        match action {
            Action::Start => {
                let valid_until = self.own.guards[g].judge.valid_until();
                self.own.guards[g].child = Child::Recording(Shim::new(valid_until));
                self.coverage
                    .hit_if(self.record_blocks(g), Hit::Path(Path::RecordBlocks));
                self.end_recording(g);
            }
            Action::Refuse => {
                self.coverage.hit(Hit::Path(Path::ChildRefused));
                self.own.guards[g].child = Child::Gone;
            }
            Action::Signal(_) | Action::SignalMain(_) => {
                let at = self.now;
                if self.own.guards[g].lingers_until.is_some() {
                    self.report(g, false);
                }
                if let Child::Runs(life) = &mut self.own.guards[g].child
                    && let Some(obeys) = life.obeys
                {
                    life.leader = life.leader.min(at + obeys);
                    life.rest = life.rest.min(at + obeys);
                }
            }
            Action::Kill => {
                self.coverage.hit(Hit::Path(Path::ChildKilled));
                let guard = &mut self.own.guards[g];
                guard.child = match guard.child {
                    Child::Recording(shim) => Child::Recording(shim.killed()),
                    Child::Runs(life) => life.killed(self.now).map_or(Child::Gone, Child::Runs),
                    Child::Unborn | Child::Gone => Child::Gone,
                };
            }
        }
    }

    pub(super) fn check_started(&mut self, g: usize) {
        let Guard { claim, token, .. } = self.own.guards[g];
        let started = one_child_a_token::Started { claim, token };
        // Tokens may repeat after damage to the document, and the guards of a forked machine share
        // a claim.
        let damaged = !self.own.damages.is_empty() || !self.own.forks.is_empty();
        if !damaged {
            self.found(one_child_a_token::check(&self.own.children, started));
        }
        self.own.children.push(started);
    }

    /// Schedules a report to the daemon. A frozen guard sends the report after it thaws.
    pub(super) fn report(&mut self, g: usize, gone: bool) {
        let latency = self.own.guard_dice.between(1, LATENCY_MAX);
        let at = self.now.max(self.guard_thaws_at(g)) + latency;
        self.at(at, move |world| match world.own.guards[g].connection {
            Some(_) => world.reported_by_container(g, gone),
            None => world.reported(g, gone),
        });
    }

    /// Handles a report as the supervisor and the guard's client do.
    pub(super) fn reported(&mut self, g: usize, gone: bool) {
        let Guard { daemon, token, .. } = self.own.guards[g];
        if !self.processes[daemon].alive || self.own.guards[g].heard {
            return;
        }
        if self.is_frozen(daemon) {
            let at = self.thaws_at(daemon);
            return self.at(at, move |world| world.reported(g, gone));
        }
        if self.own.guards[g].asked_at.is_none() {
            self.input(daemon, Class::Machine, Input::WorkloadEnded { token });
        }
        if self.own.guards[g].shim().is_some() {
            return self.reported_without_child(g);
        }
        if let (true, Child::Runs(life)) = (gone, self.own.guards[g].child)
            && let Some(life) = life.killed(self.now)
        {
            self.own.guards[g].child = Child::Runs(life);
            let at = life.ends().max(self.now) + MS;
            return self.at(at, move |world| world.reported(g, true));
        }
        if gone {
            // The daemon kills the processes that a killed guard left behind.
            self.own.guards[g].child = Child::Gone;
            self.record_end_of_child(g);
            self.own.guards[g].heard = true;
            self.input(daemon, Class::Machine, Input::WorkloadGone { token });
        }
    }

    pub(super) fn is_guarded(&self, directory: usize) -> bool {
        // A shim that writes its record has a handle on the lock too.
        let locks = |guard: &Guard| guard.alive || guard.shim().is_some();
        let guarded = self.any_guard(|guard| guard.directory == directory && locks(guard));
        guarded && !planted!(GuardWithoutLock)
    }

    /// Returns true if `holds` is true for some guard that may still cause events.
    pub(super) fn any_guard(&self, holds: impl Fn(&Guard) -> bool) -> bool {
        self.own
            .guarding
            .iter()
            .any(|g| holds(&self.own.guards[*g]))
    }
}

fn patient(mut terms: Terms) -> Terms {
    if planted!(LossWithoutKill) {
        terms.kill_at = terms.kill_at + Duration::from_secs(3600);
    }
    terms
}
