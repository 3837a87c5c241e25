//! One turn of a process, with the steps in the order of `event_loop.rs`.

use super::cluster::World;
use super::coverage::{Hit, Path};
use super::files::{Health, RecoveredState, Round, Says};
use super::process::{Class, Cut};
use crate::election::mutation::planted;
use crate::election::{Authority, CallId, Effect, Input, Notice, Outcome, Status};
use crate::proof::sim::MS;
use crate::proof::sim::rng::Rng;

fn acknowledged(input: &Input) -> Option<CallId> {
    match input {
        Input::Reply {
            call,
            outcome: Outcome::Applied(_),
        } => Some(*call),
        _ => None,
    }
}

impl World {
    pub(super) fn pump(&mut self, process: usize) {
        for _ in 0..10_000 {
            if !self.processes[process].alive || self.is_frozen(process) {
                return;
            }
            self.look_at_files(process);
            let now = self.clock(process);
            let p = &mut self.processes[process];
            if let Some(cut) = p.cut.take() {
                self.finish(process, cut);
                continue;
            }
            if p.exiting || self.violation.is_some() {
                return;
            }
            // The timer comes before all pending inputs.
            let next = p.inbox.front();
            let late = planted!(AcknowledgedAfterDeadline)
                && p.leads_now
                && next.is_some_and(|(_, input)| acknowledged(input).is_some());
            let input = if p.election.next_wakeup().is_some_and(|at| at <= now) && !late {
                Input::Tick
            } else if let Some((_, input)) = p.inbox.pop_front() {
                input
            } else {
                return;
            };
            self.turn(process, input);
        }
        panic!("p{process} keeps producing inputs");
    }

    fn turn(&mut self, process: usize, input: Input) {
        let now = self.clock(process);
        if self.trace.is_some() && input != Input::Tick {
            let text = super::report::input(&input);
            self.note(|| format!("p{process} gets {text}"));
        }
        self.before_turn(process, now, &input);
        let p = &mut self.processes[process];
        let valid_until = |status: &Status| status.authority.map(|a: Authority| a.valid_until);
        let before = valid_until(p.election.status());
        let acknowledged = acknowledged(&input);
        p.signalled = input == Input::StepDown;
        p.confirmed = acknowledged.is_some() && p.confirming == acknowledged;
        if let Input::Reconfigure(tunables) = &input {
            p.tunables = *tunables;
        }
        let input = match input {
            Input::StepDown if planted!(SignalLostWhileAcquiring) && !p.facts.holds => Input::Tick,
            input => input,
        };
        p.election.handle(now, input, p.random.at(now));
        let after = valid_until(p.election.status());
        p.leads_now = after.is_some();
        self.after_turn(process, now, before, after, acknowledged);
        match self.processes[process].stall_next.take() {
            Some((cut, length)) => {
                if cut == Cut::BeforeEffects {
                    self.first_half(process);
                }
                self.processes[process].cut = Some(cut);
                self.coverage.hit(Hit::Path(Path::CutInTurn));
                self.freeze(process, self.now + length);
            }
            None => self.finish(process, Cut::BeforePublish),
        }
    }

    fn finish(&mut self, process: usize, cut: Cut) {
        if cut == Cut::BeforePublish {
            self.first_half(process);
        }
        if planted!(EffectsBeforeStatus) {
            self.processes[process].publish();
        } else {
            self.carry_out(process);
        }
        self.hear_after(process, self.processes[process].facts.decided);
        self.look_at_files(process);
    }

    fn first_half(&mut self, process: usize) {
        if planted!(EffectsBeforeStatus) {
            self.carry_out(process);
        } else {
            self.processes[process].publish();
        }
        // The file thread may run between the two halves of a turn.
        if self.chance.one_in(2) {
            self.look_at_files(process);
        }
    }

    fn carry_out(&mut self, process: usize) {
        let mut went_back = false;
        while let Some(effect) = self.processes[process].election.next_effect() {
            if self.dies_now(process) {
                return;
            }
            match effect {
                Effect::Call { id, operation } => self.send(process, id, operation),
                Effect::ReopenStream => self.stream_reopens(process),
                Effect::Demote => {
                    let p = &mut self.processes[process];
                    p.files.flush();
                    p.inbox.retain(|(class, _)| *class != Class::Demoted);
                }
                Effect::Workload(order) => self.order(process, order),
                Effect::Remember {
                    claim,
                    token,
                    lease_longest,
                } => {
                    let p = &mut self.processes[process];
                    p.files.remember = Some(RecoveredState {
                        claim,
                        token,
                        lease_longest: Some(lease_longest),
                        informed: p.facts.knowledge.informed,
                    });
                }
                Effect::Transition(transition) => {
                    self.note(|| format!("p{process} {}", super::report::transition(&transition)));
                    let signalled = self.processes[process].signalled;
                    self.coverage.transition(&transition, signalled);
                    let published = &self.processes[process].published;
                    if let Some(token) = published.stepping_down.or(published.unnoticed) {
                        self.workload_ends(process, token);
                    }
                }
                Effect::Notice(notice) => {
                    went_back |= matches!(notice, Notice::StoreRolledBack { .. });
                    self.noticed(process, &notice);
                }
                Effect::Exit => {
                    self.processes[process].exiting = true;
                    self.exits(process);
                }
            }
        }
        if std::mem::take(&mut self.processes[process].confirmed) {
            self.coverage.hit(Hit::Path(match went_back {
                true => Path::WentBackBelieved,
                false => Path::WentBackRefuted,
            }));
        }
    }

    fn dies_now(&mut self, process: usize) -> bool {
        let p = &mut self.processes[process];
        let Some(left) = p.dies_after else {
            return false;
        };
        p.dies_after = left.checked_sub(1);
        if left > 0 || self.calm {
            return false;
        }
        let (machine, old) = (p.machine, p.directory);
        self.look_at_files(process);
        self.kill(process);
        let directory = match self.chance.one_in(3) {
            true => self.add_directory(machine),
            false => old,
        };
        if directory != old {
            self.own.directories[old].files = [None; 2];
        }
        let later = self.now + self.chance.between(5, 3_000) * MS;
        self.start_at(later, machine, directory);
        let mut rng = Rng::new(self.chance.next_u64(), 21);
        self.may_witness(&mut rng, machine, directory);
        true
    }

    fn workload_ends(&mut self, process: usize, token: crate::election::Token) {
        let machine = self.processes[process].machine;
        if let Some(within) = self.machines[machine].confirms_within {
            let at = self.now + 1 + self.chance.below(within);
            self.input_at(at, process, Input::WorkloadDone { token });
        }
    }

    pub(super) fn look_at_files(&mut self, process: usize) {
        if self.is_frozen(process) || !self.processes[process].alive {
            return;
        }
        let now = self.clock(process);
        let p = &mut self.processes[process];
        let boot = self.machines[p.machine].boot;
        let directory = &mut self.own.directories[p.directory];
        if !matches!(directory.health, Health::Hangs | Health::ReadOnly)
            && let Some(memory) = p.files.remember.take()
        {
            directory.record(memory, boot);
        }
        let facts = &p.facts;
        let says = |status: &Status| {
            let authority = status.authority?;
            let claim = facts.of_token(authority.token)?.claim;
            Some(Says {
                process,
                claim,
                token: authority.token,
                until: authority.valid_until,
                boot,
            })
        };
        match p.files.look(&p.published, now, &p.tunables.timings, says) {
            Round::Idle => {}
            Round::Writes => {
                let length = match directory.health {
                    Health::Slow => self.chance.between(1, 2_000) * MS,
                    Health::Good | Health::Full | Health::ReadOnly | Health::Hangs => MS / 5,
                };
                let at = self.now + length;
                self.at(at, move |world| world.written(process));
            }
            Round::Shown(flushes) => self.flushed(process, flushes, true),
        }
    }

    fn written(&mut self, process: usize) {
        let directory = self.processes[process].directory;
        if !self.processes[process].alive {
            return;
        }
        if self.is_frozen(process) {
            let at = self.thaws_at(process);
            return self.at(at, move |world| world.written(process));
        }
        if self.own.directories[directory].health == Health::Hangs {
            return self.at(self.now + 300 * MS, move |world| world.written(process));
        }
        let (half, second) = (self.chance.one_in(2), self.chance.one_in(2));
        let p = &mut self.processes[process];
        let (flushes, shown) = p
            .files
            .written(&mut self.own.directories[directory], half, second);
        if flushes > 0 {
            self.coverage.hit(Hit::Path(match shown {
                true => Path::FilesShown,
                false => Path::FilesStuck,
            }));
        }
        self.flushed(process, flushes, shown);
        self.pump(process);
    }

    /// Decides at random whether the pod's label changes later than the files. The API server may
    /// also never answer.
    fn label_pending(&mut self, process: usize) -> bool {
        let dice = &mut self.own.label_dice;
        let (pending, answered) = (dice.one_in(4), !dice.one_in(3));
        let after = dice.between(1, 600) * MS;
        if pending && answered {
            self.input_at(self.now + after, process, Input::LabelDemoted);
        }
        pending
    }

    fn flushed(&mut self, process: usize, flushes: usize, shown: bool) {
        for _ in 0..flushes {
            let label_pending = self.label_pending(process);
            let input = Input::Demoted {
                shown,
                label_pending,
            };
            self.processes[process].deliver(Class::Demoted, input);
        }
    }
}
