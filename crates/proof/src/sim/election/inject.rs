//! Injects each planned fault when it is due. A fault also affects the events in flight.

use super::cluster::{Forked, World};
use super::coverage::{Hit, Path};
use super::document::{Document, Stored, Writer};
use super::faults::{Fault, is_of_container, is_of_guard};
use super::files::Health;
use super::process::{Class, Cut, TIMINGS_SHORT, timings};
use crate::election::mutation::planted;
use crate::election::{
    Acquisition, Declared, Input, Outcome, Request, RequestKind, Reservation, Revision, Token,
    Tunables,
};
use crate::proof::sim::MS;
use crate::proof::sim::faults::{Kind as _, Planned};
use crate::proof::sim::rng::Rng;
use crate::proof::sim::world::AtPeace;

impl World {
    pub(super) fn inject(&mut self, planned: Planned<Fault>) {
        let mut rng = Rng::new(planned.chance, 6);
        if self.live.is_empty() {
            return;
        }
        // Half of all faults affect the leader.
        let mut live = self.live.iter().copied();
        let leader = live.find(|p| self.processes[*p].leads_now);
        let process = match leader.filter(|_| rng.one_in(2)) {
            Some(leader) => leader,
            None => self.live[rng.index(self.live.len())],
        };
        let fault = planned.fault;
        self.note(|| format!("-- {fault:?} (p{process}): {}", fault.words()));
        if is_of_guard(fault) {
            return self.inject_into_guard(fault, &mut rng);
        }
        if is_of_container(fault) {
            return self.inject_into_container(fault, &mut rng);
        }
        self.coverage.hit(Hit::Fault(fault));
        let machine = self.processes[process].machine;
        match fault {
            Fault::Freeze => self.freeze(process, self.now + rng.between(100, 60_000) * MS),
            Fault::Stall => {
                let cut = [Cut::BeforePublish, Cut::BeforeEffects][rng.index(2)];
                let length = rng.between(100, 45_000) * MS;
                self.processes[process].stall_next = Some((cut, length));
            }
            Fault::Suspend => {
                let length = rng.between(1_000, 60_000) * MS;
                let m = &mut self.machines[machine];
                m.asleep_until = m.asleep_until.max(self.now + length);
                m.slept += length;
            }
            Fault::WallJump => {
                if self.own.skewed {
                    let jump = i64::try_from(rng.below(7_200_000 * MS)).expect("short");
                    self.machines[machine].wall_skew = jump - 3_600_000_000_000;
                }
            }
            Fault::Failover | Fault::Deposed => self.fail_over(fault, &mut rng),
            Fault::MajorityLost => {
                self.set.no_majority_until = self.now + rng.between(500, 30_000) * MS;
            }
            Fault::Partition => {
                self.machines[machine].cut_until = self.now + rng.between(500, 45_000) * MS;
                for other in self.live_on(machine) {
                    self.stream_hangs(other);
                }
            }
            Fault::StreamSilent => self.stream_hangs(process),
            Fault::StreamDeaf => {
                // In most cases all streams become stale together, because one member serves their
                // cursors.
                let all = !rng.one_in(4);
                for other in self.live.clone() {
                    let stream = &mut self.processes[other].stream;
                    stream.stale |= stream.open && (all || other == process);
                }
            }
            Fault::StreamLost => self.stream_ends(process),
            Fault::HintFalse => self.false_hints(),
            Fault::HintsDropped => self.drop_hints(rng.between(1_000, 120_000) * MS),
            Fault::PrimaryChanged => self.input(process, Class::News, Input::PrimaryChanged),
            Fault::Restart
            | Fault::RestartWiped
            | Fault::RestartCopied
            | Fault::CopiedAlive
            | Fault::Reboot
            | Fault::Replaced
            | Fault::Fork
            | Fault::Shutdown => self.inject_into_process(fault, process, &mut rng),
            Fault::Delete
            | Fault::Restore
            | Fault::Foreign
            | Fault::EditDuration
            | Fault::EditRevision => self.inject_into_document(fault, &mut rng),
            Fault::Pause
            | Fault::StepDownRequest
            | Fault::Transfer
            | Fault::StaleRequest
            | Fault::TokenRaised => self.operate(fault, &mut rng),
            Fault::Signal => self.input(process, Class::Machine, Input::StepDown),
            Fault::Unhealthy => {
                self.checked(process, false);
                self.checked_at(self.now + rng.between(100, 40_000) * MS, process);
            }
            Fault::Reconfigure => {
                let tunables = Tunables {
                    timings: timings(rng.next_u64()),
                    ..self.machines[machine].tunables
                };
                self.reconfigure(machine, tunables);
                self.input(process, Class::Machine, Input::Reconfigure(tunables));
            }
            Fault::DiskSlow | Fault::DiskFull | Fault::DiskReadOnly | Fault::DiskHangs => {
                let directory = self.processes[process].directory;
                self.own.directories[directory].health = match fault {
                    Fault::DiskSlow => Health::Slow,
                    Fault::DiskFull => Health::Full,
                    Fault::DiskReadOnly => Health::ReadOnly,
                    _ => Health::Hangs,
                };
                let until = self.now + rng.between(500, 40_000) * MS;
                self.at(until, move |world| {
                    world.own.directories[directory].health = Health::Good;
                });
            }
            Fault::KilledInTurn => self.processes[process].dies_after = Some(rng.below(6)),
            unplanned => unreachable!("{unplanned:?} has no instant"),
        }
    }

    pub(super) fn fail_over(&mut self, fault: Fault, rng: &mut Rng) {
        let open = self.set.open_writes();
        let kept = rng.index(open + 1);
        let coverage = &mut self.coverage;
        coverage.hit_if(open > 0, Hit::Path(Path::FailoverOpen));
        coverage.hit_if(kept < open, Hit::Path(Path::FailoverLost));
        let deposed = fault == Fault::Deposed;
        let gap = match deposed {
            true => rng.between(1, 2_000),
            false => rng.between(500, 12_000),
        };
        self.set.no_primary_until = self.now + gap * MS;
        self.set.no_majority_until = 0;
        let hour = 3_600_000_000_000;
        let skew = [0, hour, -hour][rng.index(3)];
        if self.own.skewed {
            self.own.clock_skew = skew;
        }
        self.at(self.set.no_primary_until, Self::primary_elected);
        self.replace_primary(kept, deposed, |_| rng.between(1, 5_000) * MS);
        if deposed {
            for machine in &mut self.machines {
                machine.stale = rng.one_in(2);
            }
            let learns = self.now + rng.between(2_000, 20_000) * MS;
            self.at(learns, Self::deposed_learns);
        }
        for process in self.live.clone() {
            if self.machines[self.processes[process].machine].stale {
                self.processes[process].stream.stale = true;
            } else {
                self.stream_ends(process);
            }
        }
    }

    fn inject_into_process(&mut self, fault: Fault, process: usize, rng: &mut Rng) {
        let p = &self.processes[process];
        let (machine, old) = (p.machine, p.directory);
        let later = self.now + rng.between(5, 8_000) * MS;
        match fault {
            Fault::Restart => {
                self.kill(process);
                self.start_at(later, machine, old);
                self.may_witness(rng, machine, old);
            }
            Fault::RestartWiped => {
                self.kill(process);
                self.own.directories[old].files = [None; 2];
                let directory = self.add_directory(machine);
                self.start_at(later, machine, directory);
            }
            Fault::RestartCopied => {
                self.kill(process);
                let directory = self.add_directory(machine);
                self.own.directories[directory].record = self.own.directories[old].record;
                self.own.directories[old].files = [None; 2];
                self.start_at(later, machine, directory);
            }
            Fault::CopiedAlive => {
                let other = rng.index(self.machines.len());
                let copy = self.add_directory(other);
                self.own.directories[copy].record = self.own.directories[old].record;
                if self.machines[other].boot != self.machines[machine].boot {
                    // On a clone of the disk, the copy of the file has the original inode.
                    self.own.directories[copy].inode = self.own.directories[old].inode;
                }
                self.start_at(later, other, copy);
                let end = later + rng.between(20_000, 90_000) * MS;
                self.kill_at(end, process);
            }
            Fault::Reboot => {
                self.machines[machine].boot += 1_000;
                self.lose_guards(machine);
                for other in self.live_on(machine) {
                    self.kill(other);
                }
                self.start_at(later, machine, old);
            }
            Fault::Replaced => {
                // Simulates a container that is replaced while its process hangs, or a second
                // container that is started next to the first.
                self.freeze(process, self.now + rng.between(5_000, 60_000) * MS);
                let directory = match rng.one_in(2) {
                    true => self.add_directory(machine),
                    false => old,
                };
                self.start_at(later, machine, directory);
                let end = later + rng.between(20_000, 90_000) * MS;
                self.kill_at(end, process);
            }
            Fault::Fork => self.fork(process, rng),
            _ => {
                self.input(process, Class::Machine, Input::Shutdown);
                let back = self.now + rng.between(1_000, 20_000) * MS;
                self.start_at(back, machine, old);
            }
        }
    }

    /// Clones a running machine. The clone has the claims, the clock and the boot of the original,
    /// and a directory with the original inode. The connections of the clone are broken.
    fn fork(&mut self, process: usize, rng: &mut Rng) {
        let machine = self.clone_machine(self.processes[process].machine);
        let mut directory = self.own.directories[self.processes[process].directory].clone();
        let mut twin = self.processes[process].clone();
        let id = self.processes.len();
        directory.machine = machine;
        directory.locked_by = Some(id);
        twin.machine = machine;
        twin.directory = self.own.directories.len();
        // Changes only the speed of the twin's machine. Both twins continue with the same random
        // generator, because not every hypervisor notifies the kernel of a clone.
        twin.random.copied(Rng::new(rng.next_u64(), 7));
        twin.stream.open = false;
        let exiting = twin.exiting;
        let streams = twin.streams;
        let opening = twin.stream.opening;
        // Each twin may lead until the deadline of the writes that were sent before the fork.
        let now = self.clock(process);
        let claims = twin.facts.claims.iter();
        let claims = claims.map(|c| (c.claim, now + c.timings.renew_deadline()));
        let claims = claims.collect();
        self.own.forks.push(Forked { claims });
        let calls = twin.driver.calls();
        self.own.directories.push(directory);
        self.processes.push(twin);
        self.live.push(id);
        self.fork_guards(process, id);
        for call in calls {
            let at = self.now + rng.between(10, 3_000) * MS;
            self.answer_at(at, (id, call, Outcome::Unknown));
            self.time_out_at(at, id, call);
        }
        if streams {
            self.opens_at(self.now + MS, id, opening);
        }
        if exiting {
            self.exits(id);
        }
        if rng.one_in(2) {
            let end = self.now + rng.between(1_000, 120_000) * MS;
            self.kill_at(end, id);
        }
    }

    /// Repeats a revision with another claim, like a partial restore of the document. A follower
    /// that compares only revisions misses this change of leaders.
    fn repeat_revision(&mut self, rng: &mut Rng) {
        let leads = |p: &usize| self.processes[*p].leads_now;
        let (leaders, followers): (Vec<usize>, Vec<usize>) =
            self.live.iter().partition(|p| leads(p));
        let (Some(leader), false) = (leaders.first().copied(), followers.is_empty()) else {
            return;
        };
        let follower = followers[rng.index(followers.len())];
        let Some(known) = self.processes[follower].election.revision_seen() else {
            return;
        };
        let back = self.now + rng.between(25_000, 70_000) * MS;
        self.stream_hangs(follower);
        self.freeze(follower, back);
        self.input(leader, Class::Machine, Input::StepDown);
        let at = back - rng.below(2_000) * MS;
        self.at_or(AtPeace::Drop, at, move |world| {
            world.own.edited = true;
            world.edit(|stored| {
                if let Some(lease) = stored.lease_mut() {
                    lease.revision = known;
                }
            });
        });
    }

    fn inject_into_document(&mut self, fault: Fault, rng: &mut Rng) {
        if fault == Fault::EditRevision && !rng.one_in(4) {
            return self.repeat_revision(rng);
        }
        let backup = match self.own.archive.backups.len() {
            0 => None,
            n => Some(self.own.archive.backups[rng.index(n)].clone()),
        };
        let revision = Revision::random(rng);
        let before = self.set.primary().document.clone();
        self.edit(|stored| match fault {
            Fault::Delete => stored.document = Document::Missing,
            Fault::Restore => {
                if let Some(backup) = backup {
                    *stored = backup;
                }
            }
            Fault::Foreign => stored.document = Document::Foreign,
            Fault::EditDuration => {
                if let Some(holder) = stored.lease_mut().and_then(|l| l.holder.as_mut()) {
                    let millis = [0, -1, 20, i64::MAX][rng.index(4)];
                    holder.lease_duration = Declared { millis };
                }
            }
            _ => {
                if let Some(lease) = stored.lease_mut() {
                    lease.revision = revision;
                }
            }
        });
        match fault {
            Fault::EditRevision => self.own.edited = true,
            Fault::Foreign if before != Document::Foreign => {
                let at = self.now + rng.between(1_000, 30_000) * MS;
                self.at_or(AtPeace::HappenNow, at, |world| {
                    world.take_foreign_away(before)
                });
            }
            _ => {}
        }
    }

    pub(super) fn edit(&mut self, change: impl FnOnce(&mut Stored)) {
        if let Some(seq) = self.set.edit(Writer::Operator, change) {
            self.commit_at(self.now + 2 * MS, seq);
            self.hint_of_operator();
        }
    }

    /// In half of all cases, makes an operator pause the lease or make a request within 10 ms after
    /// a candidate adopts an acquisition of unknown outcome. In half of these cases, the candidate
    /// also gets the shortest durations, and its process freezes for longer than these durations
    /// permit.
    pub(super) fn meddle(&mut self, process: usize, chance: u64) {
        let mut rng = Rng::new(chance, 8);
        if rng.one_in(2) {
            return;
        }
        self.coverage.hit(Hit::Fault(Fault::Meddling));
        let faults = [Fault::Pause, Fault::StepDownRequest, Fault::Transfer];
        let (fault, chance) = (faults[rng.index(3)], rng.next_u64());
        let at = self.now + rng.below(10) * MS;
        self.at(at, move |world| {
            world.operate(fault, &mut Rng::new(chance, 9))
        });
        if rng.one_in(2) {
            let machine = self.processes[process].machine;
            let tunables = Tunables {
                timings: timings(TIMINGS_SHORT),
                ..self.machines[machine].tunables
            };
            self.reconfigure(machine, tunables);
            self.input_at(self.now + 1, process, Input::Reconfigure(tunables));
            let until = self.now + rng.between(11_000, 20_000) * MS;
            self.at(self.now + 2, move |world| world.freeze(process, until));
        }
    }

    /// May deliver a signal during an acquisition. May also delay the acquisition and, just before
    /// it reaches the store, restore the document that the acquisition expects. Returns the delay.
    pub(super) fn disturb_acquisition(
        &mut self,
        process: usize,
        new: &Acquisition,
        quick: u64,
        chance: u64,
    ) -> u64 {
        let mut rng = Rng::new(chance, 20);
        if rng.one_in(8) && self.troubles(Fault::Signal) {
            let at = self.now + rng.below(quick);
            self.input_at(at, process, Input::StepDown);
        }
        let stored = self.set.primary().clone();
        let meant = stored.lease().map(|it| it.revision) == Some(new.expected);
        let facts = &self.processes[process].facts;
        let earlier = facts.claims.iter().rev().skip(1);
        let same_token = earlier.filter(|claim| claim.token == new.token).count();
        // The observer distinguishes the claims of one process by their tokens, so this token must
        // be unused.
        if !(rng.one_in(4) && meant && same_token == 0 && self.troubles(Fault::RestoredUnder)) {
            return 0;
        }
        self.coverage.hit(Hit::Fault(Fault::RestoredUnder));
        let timeout = self.stretched(
            self.processes[process].machine,
            self.processes[process].operation_timeout,
        );
        let delay = rng.between(timeout / 50, timeout * 9 / 10);
        let at = self.now + quick + delay - MS;
        self.at_or(AtPeace::Drop, at, move |world| {
            world.edit(|now| *now = stored);
        });
        delay
    }

    fn reconfigure(&mut self, machine: usize, tunables: Tunables) {
        let before = std::mem::replace(&mut self.machines[machine].tunables, tunables);
        let longest = before.timings.lease_duration();
        self.own.replaced.push((self.now, longest));
    }

    fn operate(&mut self, fault: Fault, rng: &mut Rng) {
        let to = rng.index(self.machines.len());
        let reservation = Reservation {
            identity: self.machines[to].identity.clone(),
            duration: std::time::Duration::from_secs(5),
        };
        let revision = Revision::random(rng);
        self.edit(|stored| {
            let Some(lease) = stored.lease_mut() else {
                return;
            };
            let token = lease.token;
            let (kind, token) = match fault {
                Fault::Pause => return lease.paused = true,
                Fault::TokenRaised => return lease.token = token.next().unwrap_or(token),
                Fault::StepDownRequest => (RequestKind::StepDown, token),
                Fault::Transfer => (RequestKind::Transfer(reservation), token),
                _ => {
                    let stale = Token::new((token.get() - 1).max(0));
                    (RequestKind::StepDown, stale.unwrap_or(token))
                }
            };
            lease.request = Some(Request { kind, token });
            if planted!(RequestChangesRevision) {
                lease.revision = revision;
            }
        });
        if fault == Fault::Pause {
            let until = self.now + rng.between(1_000, 40_000) * MS;
            self.at(until, Self::unpause);
        }
    }

    fn unpause(&mut self) {
        self.edit(|stored| {
            if let Some(lease) = stored.lease_mut() {
                lease.paused = false;
            }
        });
    }

    /// Restores the lease if the store still contains the unrecognized document that replaced the
    /// lease.
    fn take_foreign_away(&mut self, before: Document) {
        self.edit(|stored| {
            if stored.document == Document::Foreign {
                stored.document = before;
            }
        });
    }

    pub(super) fn live_on(&self, machine: usize) -> Vec<usize> {
        let here = |process: &usize| self.processes[*process].machine == machine;
        self.live.iter().copied().filter(here).collect()
    }

    fn kill_at(&mut self, time: u64, process: usize) {
        self.at_or(AtPeace::Drop, time, move |world| world.kill(process));
    }

    /// Schedules an input that comes from the process's own machine and not from the store.
    pub(super) fn input_at(&mut self, time: u64, process: usize, input: Input) {
        self.at_or(AtPeace::Drop, time, move |world| {
            world.input(process, Class::Machine, input);
        });
    }
}
