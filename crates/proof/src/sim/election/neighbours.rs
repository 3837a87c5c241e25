//! Unsupervised workloads. A workload runs next to its candidate's process, and checks at least
//! every `handoff_delay` whether the candidate still leads. Between two checks the workload works
//! under the claim that the earlier check showed.

use std::time::Duration;

use super::cluster::World;
use super::coverage::Hit;
use super::document::{Committed, Stored, Writer, claim_of};
use super::faults::Fault;
use super::invariants::release_after_the_workload::{self as release, Beside};
use crate::election::{Claim, Token};
use crate::proof::sim::rng::Rng;

/// The workload next to one process. By default, the workload checks before each effect.
#[derive(Debug, Clone, Default)]
pub(super) struct Neighbour {
    /// The interval between checks by the clock of the machine, or `None` if the workload checks
    /// before each effect.
    looks_every: Option<Duration>,
    /// True if the workload reads the status file; false if the workload asks over HTTP.
    reads_file: bool,
    works: Option<(Claim, Token)>,
    /// The token of the leadership whose end the workload confirmed last. The workload does not
    /// start again under this token.
    confirmed: Option<Token>,
    looked_at: u64,
}

impl World {
    pub(super) fn draw_neighbour(&mut self, rng: &mut Rng) {
        let (per_mille, reads_file) = (rng.between(500, 980), rng.one_in(2));
        let machine = self.machines.last_mut().expect("one was added");
        let mut longest = machine.tunables.handoff_delay;
        if machine.tunables.workload_ends_first {
            longest = longest.min(Duration::from_secs(1));
        }
        let polls = self.faults.has(Fault::WorkloadPolls);
        let every = longest * u32::try_from(per_mille).expect("per mille") / 1000;
        machine.neighbour = Neighbour {
            looks_every: Some(every).filter(|_| polls && !longest.is_zero()),
            reads_file,
            ..Neighbour::default()
        };
    }

    pub(super) fn start_neighbour(&mut self, process: usize) {
        let p = &mut self.processes[process];
        p.neighbour = self.machines[p.machine].neighbour.clone();
        if p.neighbour.looks_every.is_some() {
            self.coverage.hit(Hit::Fault(Fault::WorkloadPolls));
            self.looks_at(self.now, process);
        }
    }

    fn looks_at(&mut self, at: u64, process: usize) {
        self.at(at, move |world| world.neighbour_looks(process));
    }

    fn neighbour_looks(&mut self, process: usize) {
        let p = &self.processes[process];
        let machine = &self.machines[p.machine];
        let Some(every) = p.neighbour.looks_every else {
            return;
        };
        if machine.asleep_until > self.now {
            return self.looks_at(machine.asleep_until, process);
        }
        let now = self.clock(process);
        let directory = &self.own.directories[p.directory];
        let file = directory.files[0]
            .filter(|says| says.process == process && says.boot == machine.boot)
            .filter(|says| says.until > now);
        let http = (p.alive && !self.is_frozen(process))
            .then(|| p.published.at(now).authority)
            .flatten()
            .and_then(|authority| p.facts.of_token(authority.token));
        let works = match p.neighbour.reads_file {
            true => file.map(|says| (says.claim, says.token)),
            false => http.map(|facts| (facts.claim, facts.token)),
        };
        let works = works.filter(|(_, token)| p.neighbour.confirmed != Some(*token));
        let over = !p.alive && works.is_none();
        let next = self.now + self.stretched(p.machine, every);
        let neighbour = &mut self.processes[process].neighbour;
        neighbour.works = works;
        neighbour.looked_at = self.now;
        if !over {
            self.looks_at(next, process);
        }
    }

    pub(super) fn neighbour_confirms(&mut self, process: usize, token: Token) {
        let neighbour = &mut self.processes[process].neighbour;
        neighbour.confirmed = Some(token);
        neighbour.works = neighbour.works.filter(|(_, under)| *under != token);
    }

    /// Checks the workloads when a committed write releases a claim or acquires a released lease.
    pub(super) fn check_neighbours(&mut self, committed: &Committed) {
        let holder = |stored: &Stored| stored.lease().and_then(claim_of);
        let (before, after) = (holder(&committed.before), holder(&committed.after));
        match (before, after, committed.write) {
            (Some(claim), None, Writer::Process(process)) => {
                // The writer may be a witness, which releases the claim of an exited process.
                let makes = |p: &usize| self.processes[*p].facts.claim(claim).is_some();
                let maker = (0..self.processes.len()).rfind(makes);
                self.own.freed = Some((maker.unwrap_or(process), claim))
            }
            (None, Some(_), Writer::Process(process)) => {
                if let Some((by, claim)) = self.own.freed.take() {
                    let beside = self.beside(by, claim, process);
                    self.found(release::check_concurrent(beside));
                }
            }
            (None, None, _) => {}
            _ => self.own.freed = None,
        }
    }

    fn beside(&self, by: usize, claim: Claim, next: usize) -> Beside {
        let releaser = &self.processes[by];
        let neighbour = &releaser.neighbour;
        let every = neighbour.looks_every.unwrap_or_default();
        // A workload whose check is overdue has just woken, and has had no time to check.
        let overdue = neighbour.looked_at + self.stretched(releaser.machine, every) <= self.now;
        let troubled =
            self.own.edited || !self.own.forks.is_empty() || !self.own.damages.is_empty();
        Beside {
            works: neighbour.works.is_some_and(|(under, _)| under == claim),
            elsewhere: releaser.machine != self.processes[next].machine,
            tolerated: overdue || troubled,
        }
    }
}
