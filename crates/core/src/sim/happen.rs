//! Delivers scheduled events, and ends all faults for the healing period.

use std::time::Duration;

use super::cluster::{Event, World};
use super::coverage::{Hit, Path};
use super::dice::Dice;
use super::files::Health;
use super::process::{Class, LEASE_MAX};
use super::replica_set::Document;
use super::{MS, SECOND};
use crate::election::{Declared, Input};

impl World {
    pub(super) fn happen(&mut self, event: Event) {
        match event {
            Event::Land {
                process,
                call,
                operation,
                answered,
            } => self.land(process, call, operation, answered),
            Event::Commit(seq) => self.commit(seq),
            Event::Answer {
                process,
                call,
                outcome,
            } => self.answer(process, call, outcome),
            Event::TimeUp { process, call } => self.time_up(process, call),
            Event::StreamOpens { process, opening } => self.stream_opens(process, opening),
            Event::StreamSays {
                process,
                opening,
                says,
            } => self.stream_says(process, opening, *says),
            Event::StreamBeats { process, opening } => self.stream_beats(process, opening),
            Event::StreamSilent { process, opening } => {
                let stream = &self.processes[process].stream;
                if stream.opening == opening && stream.silent {
                    self.stream_ends(process);
                }
            }
            Event::Input {
                process,
                class,
                input,
            } => self.input(process, class, *input),
            Event::Written { process } => self.written(process),
            Event::Looks { process } => self.neighbour_looks(process),
            Event::Start { machine, directory } => self.start(machine, directory),
            Event::Kill { process } => self.kill(process),
            Event::Exited { process } => self.exited(process),
            Event::PrimaryElected => {
                for process in self.live.clone() {
                    self.input(process, Class::News, Input::PrimaryChanged);
                }
            }
            Event::DeposedLearns => {
                self.set.deposed_learns();
                for machine in &mut self.machines {
                    machine.stale = false;
                }
                for process in self.live.clone() {
                    // A cursor survives the step-down of its member. A cursor that breaks is opened
                    // again on the new primary.
                    if self.stream_dice.one_in(2) || !self.processes[process].stream.open {
                        self.stream_ends(process);
                    }
                    self.input(process, Class::News, Input::PrimaryChanged);
                }
            }
            Event::Reported { guard, gone } => self.reported(guard, gone),
            Event::Mend { directory } => self.directories[directory].health = Health::Good,
            Event::Unpause => self.unpause(),
            Event::Freeze { process, until } => self.freeze(process, until),
            Event::Operate { fault, chance } => self.operate(fault, &mut Dice::new(chance, 9)),
            Event::TakeForeignAway(before) => {
                let seq = self.set.edit(|stored| {
                    if stored.document == Document::Foreign {
                        stored.document = *before;
                    }
                });
                self.replicate(seq);
            }
        }
    }

    /// Completes a write of the file thread.
    fn written(&mut self, process: usize) {
        let directory = self.processes[process].directory;
        if !self.processes[process].alive {
            return;
        }
        if self.is_frozen(process) {
            let at = self.thaws_at(process);
            return self.at(at, Event::Written { process });
        }
        if self.directories[directory].health == Health::Hangs {
            return self.at(self.now + 300 * MS, Event::Written { process });
        }
        let (half, second) = (self.chance.one_in(2), self.chance.one_in(2));
        let p = &mut self.processes[process];
        let (flushes, shown) = p
            .files
            .written(&mut self.directories[directory], half, second);
        if flushes > 0 {
            self.coverage.hit(Hit::Path(match shown {
                true => Path::FilesShown,
                false => Path::FilesStuck,
            }));
        }
        self.flushed(process, flushes, shown);
        self.pump(process);
    }

    /// Ends a process that exits on its own. Its file thread first writes that it does not lead, if
    /// the disk allows it.
    fn exited(&mut self, process: usize) {
        if self.is_frozen(process) {
            let at = self.thaws_at(process);
            return self.at(at, Event::Exited { process });
        }
        let directory = &mut self.directories[self.processes[process].directory];
        if matches!(directory.health, Health::Good | Health::Full) {
            directory.files = [None; 2];
        }
        self.kill(process);
    }

    /// Returns the maximum time that a candidate may have to wait for the lease now: the duration
    /// that the holder declared, or the cooldown of a candidate that stepped down. After damage to
    /// the document, the longest duration of all.
    pub(super) fn longest_wait(&self) -> Duration {
        if !self.damages.is_empty() {
            return LEASE_MAX;
        }
        let holder = self.set.primary().lease().and_then(|l| l.holder.as_ref());
        let declared = holder.and_then(|h| h.lease_duration.valid());
        let recent = self.now.saturating_sub(LEASE_MAX.as_nanos() as u64 * 2);
        let replaced = self.replaced.iter().filter(|(at, _)| *at >= recent);
        let own = self
            .machines
            .iter()
            .map(|m| m.tunables.timings.lease_duration());
        let all = own
            .chain(declared)
            .chain(replaced.map(|(_, longest)| *longest));
        all.max().unwrap_or(LEASE_MAX)
    }

    /// Ends all faults, for the healing period.
    pub(super) fn heal(&mut self) {
        self.calm = true;
        self.note(|| "== peace".to_owned());
        self.forget_the_late();
        self.set.no_majority_until = self.set.no_majority_until.min(self.now);
        if self.set.no_primary_until > self.now {
            self.set.no_primary_until = self.now;
            self.happen(Event::PrimaryElected);
        }
        for directory in &mut self.directories {
            directory.health = Health::Good;
        }
        for machine in &mut self.machines {
            machine.asleep_until = self.now.min(machine.asleep_until);
            machine.cut_until = self.now.min(machine.cut_until);
        }
        self.set.deposed_learns();
        for machine in &mut self.machines {
            machine.stale = false;
        }
        for process in self.live.clone() {
            // A stale stream stays stale, and no event reports it.
            if !self.processes[process].stream.stale {
                self.stream_ends(process);
                self.input(process, Class::News, Input::PrimaryChanged);
            }
        }
        // No holder here declares a longer one. A repair with a shorter duration than declared
        // would let others take over while the holder leads.
        let default = Declared { millis: 40_000 };
        let seq = self.set.edit(|stored| {
            if stored.document == Document::Foreign {
                stored.document = Document::Missing;
            }
            if let Some(lease) = stored.lease_mut() {
                lease.paused = false;
                lease.request = None;
                if let Some(holder) = &mut lease.holder
                    && holder.lease_duration.valid().is_none()
                {
                    holder.lease_duration = default;
                }
            }
        });
        self.replicate(seq);
        self.heal_guards();
        for process in self.live.clone() {
            let p = &mut self.processes[process];
            p.frozen_until = p.frozen_until.min(self.now);
            p.stall_next = None;
            self.pump(process);
            self.input(process, Class::Machine, Input::Health { healthy: true });
        }
        let started = SECOND;
        for machine in 0..self.machines.len() {
            if !self
                .live
                .iter()
                .any(|p| self.processes[*p].machine == machine)
            {
                let directory = self.add_directory(machine);
                self.at(self.now + started, Event::Start { machine, directory });
            }
        }
    }
}
