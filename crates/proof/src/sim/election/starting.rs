//! Starts processes with the contents of their status directory, and ends them.

use std::time::Duration;

use super::cluster::World;
use super::coverage::{Hit, Path};
use super::faults::Fault;
use super::files::Health;
use super::process::{Class, Process};
use crate::election::mutation::planted;
use crate::election::{Input, Token, Watch};
use crate::proof::sim::rng::Rng;
use crate::proof::sim::world::AtPeace;
use crate::proof::sim::{MS, SECOND};

/// Must equal the value in `crates/status/src/directory/predecessor.rs`.
const CHILD_AWAITED_MAX: u64 = SECOND;

impl World {
    pub(super) fn supervise(&mut self, rng: &mut Rng) {
        let drawn = !rng.one_in(3);
        let grace = [1, 5, 20][rng.index(3)];
        let supervises = drawn && self.faults.has(Fault::Supervised);
        let only_hooks = self.machines.len().is_multiple_of(2);
        let machine = self.machines.last_mut().expect("one was added");
        machine.stop_grace = Duration::from_secs(grace);
        if supervises {
            machine.supervises = true;
            // Half of these machines run only hooks. Their workload is unsupervised.
            if only_hooks {
                self.coverage.hit(Hit::Path(Path::OnlyHooks));
            } else {
                // A step-down waits only until the workload has exited.
                machine.confirms_within = None;
                machine.tunables.handoff_delay = Duration::ZERO;
                self.contain();
            }
            self.coverage.hit(Hit::Fault(Fault::Supervised));
        }
    }

    /// Puts the guards of most supervised machines into containers of their own.
    fn contain(&mut self) {
        if self.faults.has(Fault::Contained) && !self.own.container_dice.one_in(4) {
            let last = self.machines.len() - 1;
            self.machines[last].contained = true;
            self.coverage.hit(Hit::Fault(Fault::Contained));
            for directory in 0..self.own.directories.len() {
                if self.own.directories[directory].machine == last {
                    self.furnish(directory);
                }
            }
        }
    }

    /// Draws whether a restarted candidate releases the claim of its predecessor, and whether the
    /// workload of the newest machine becomes ready only after the candidate starts.
    pub(super) fn draw_successors(&mut self, seed: u64) {
        let index = self.machines.len() - 1;
        let mut rng = Rng::new(seed, 22 + index as u64 * 100);
        let (releases, ready_late) = (rng.one_in(4), rng.one_in(4));
        let machine = &mut self.machines[index];
        machine.releases_predecessor = releases;
        machine.ready_late = ready_late && self.faults.has(Fault::Unhealthy);
    }

    /// Makes the workload of a new process become ready some time after the start.
    fn gets_ready(&mut self, process: usize, mut rng: Rng) {
        let within = [200, 3_000, 60_000][rng.index(3)];
        let at = self.now + rng.between(1, within) * MS;
        self.checked(process, false);
        self.checked_at(at, process);
    }

    /// Makes the health checks of a workload pass from `time` on.
    pub(super) fn checked_at(&mut self, time: u64, process: usize) {
        self.at_or(AtPeace::Drop, time, move |world| {
            world.checked(process, true)
        });
    }

    pub(super) fn start_at(&mut self, time: u64, machine: usize, directory: usize) {
        self.at(time, move |world| {
            if let Err((_, again)) = world.start(machine, directory) {
                world.start_at(again, machine, directory);
            }
        });
    }

    /// Starts a witness: a process that releases the claim of an exited process, and exits. It
    /// does nothing if a daemon has the lock of the directory.
    pub(super) fn witness_at(&mut self, time: u64, machine: usize, directory: usize) {
        // With a guard in another container, there is no witness.
        if self.machines[machine].contained {
            return;
        }
        self.at(time, move |world| match world.start(machine, directory) {
            Ok(process) => {
                world.input(process, Class::Machine, Input::Shutdown);
                world.pump(process);
            }
            Err((Path::DirectoryLocked, _)) => {}
            Err((_, again)) => world.witness_at(again, machine, directory),
        });
    }

    /// In half of all cases, starts a witness soon after the process that uses a directory was
    /// killed.
    pub(super) fn may_witness(&mut self, rng: &mut Rng, machine: usize, directory: usize) {
        if rng.one_in(2) {
            let soon = self.now + rng.between(1, 300) * MS;
            self.witness_at(soon, machine, directory);
        }
    }

    /// Starts a process. If another process holds the lock of the directory, returns the reason and
    /// the time of the next attempt.
    fn start(&mut self, machine: usize, directory: usize) -> Result<usize, (Path, u64)> {
        let boot = self.machines[machine].boot;
        // With `GuardWithoutLock`, the guard may still change its record, so the record is not
        // read.
        let unread = planted!(ProofWithoutChild) || planted!(GuardWithoutLock);
        let child_runs = self.recorded_child_runs(directory) && !unread;
        let locked = self.own.directories[directory].locked_by.is_some();
        let awaited = if locked && !planted!(LockIgnored) {
            Some((Path::DirectoryLocked, 5 * SECOND))
        } else if self.is_guarded(directory) {
            // The guard of an exited daemon holds the claim lock until the guard's child has
            // exited. A new daemon waits for this guard.
            Some((Path::GuardAwaited, 50 * MS))
        } else if child_runs && !self.machines[machine].contained && self.may_yet_end(directory) {
            Some((Path::ChildAwaited, 5 * MS))
        } else {
            None
        };
        if let Some((path, wait)) = awaited {
            self.coverage.hit(Hit::Path(path));
            return Err((path, self.now + wait));
        }
        let chance = self.own.starts.next_u64();
        let random = Rng::new(chance, self.processes.len() as u64);
        let mut memory = self.own.directories[directory].memory(boot);
        if child_runs && memory.claim.take().is_some() {
            let apart = self.machines[machine].contained;
            self.coverage.hit(Hit::Path(match apart {
                true => Path::ForeignRecordRefused,
                false => Path::ProofRefused,
            }));
        }
        let record = memory;
        // The proof is valid only if the previous process's status files could be removed, as in
        // `crates/status/src/directory.rs`.
        let dir = &mut self.own.directories[directory];
        if matches!(dir.health, Health::Hangs | Health::ReadOnly) {
            memory.claim = memory.claim.filter(|_| planted!(ProofBesideOldFiles));
        } else {
            dir.files = [None; 2];
        }
        let m = &self.machines[machine];
        let now = self.machine_clock(machine, false);
        let process = self.processes.len();
        let predecessor = (0..process).rfind(|p| self.processes[*p].directory == directory);
        let mut told = memory;
        if planted!(TokenNotRemembered) {
            told.token = Token::ZERO;
        }
        self.processes
            .push(Process::start((machine, m), directory, told, now, random));
        self.processes[process].facts.known = memory.token;
        self.start_neighbour(process);
        if let (true, Some(before)) = (planted!(SeenKeptAcrossRestart), predecessor) {
            let before = self.processes[before].election.clone();
            self.processes[process].election.continue_from(&before);
        }
        let dir = &mut self.own.directories[directory];
        dir.locked_by = Some(process);
        (dir.child, dir.child_awaited_since) = (None, None);
        dir.record(record, boot);
        self.live.push(process);
        self.note(|| {
            let knows = super::report::memory(&memory);
            format!("p{process} starts on m{machine} d{directory}, which remembers {knows}")
        });
        if self.machines[machine].contained {
            self.processes[process].facts.alone_since = Some(now);
            self.checked(process, true);
            self.invite(directory);
        }
        if self.machines[machine].ready_late && self.troubles(Fault::Unhealthy) {
            self.gets_ready(process, Rng::new(chance, 23));
        }
        if self.processes[process].streams {
            let at = self.now + self.chance.between(1, 40) * MS;
            self.opens_at(at, process, 0);
        } else {
            self.input(process, Class::News, Input::Watch(Watch::Lost));
        }
        self.pump(process);
        Ok(process)
    }

    /// Returns true while a new daemon waits for the child of a killed guard, as in
    /// `crates/status/src/directory/predecessor.rs`. The claim's lock becomes free before the
    /// kernel ends this child.
    fn may_yet_end(&mut self, directory: usize) -> bool {
        let now = self.now;
        let since = &mut self.own.directories[directory].child_awaited_since;
        now < *since.get_or_insert(now) + CHILD_AWAITED_MAX
    }

    pub(super) fn exits(&mut self, process: usize) {
        let at = self.now + 250 * MS;
        self.at(at, move |world| world.exited(process));
    }

    /// Ends a process that exits by itself. The file thread first writes "not leader", if the disk
    /// permits the write.
    fn exited(&mut self, process: usize) {
        if self.is_frozen(process) {
            let at = self.thaws_at(process);
            return self.at(at, move |world| world.exited(process));
        }
        let directory = &mut self.own.directories[self.processes[process].directory];
        if matches!(directory.health, Health::Good | Health::Full) {
            directory.files = [None; 2];
        }
        self.kill(process);
    }

    pub(super) fn kill(&mut self, process: usize) {
        let p = &mut self.processes[process];
        if std::mem::replace(&mut p.alive, false) {
            let directory = p.directory;
            self.own.directories[directory].locked_by = None;
            self.live.retain(|id| *id != process);
            self.note(|| format!("p{process} is gone"));
            self.orphan_guards(process);
        }
    }
}
