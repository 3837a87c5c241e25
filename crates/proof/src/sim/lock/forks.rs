//! A forked machine continues from one snapshot as two twins, which share one claim, one clock and
//! one generator of ids.

use super::world::World;
use crate::election::{Authority, BootTime, Claim};
use crate::lock::LockOutcome;
use crate::proof::sim::MS;
use crate::proof::sim::rng::Rng;
use crate::proof::sim::world::AtPeace;

/// A forked machine. Both twins may hold the lock because of writes that were sent before the
/// fork.
#[derive(Debug, Clone)]
pub(super) struct Forked {
    processes: [usize; 2],
    seats: [usize; 2],
    claim: Claim,
    /// The end of the authority from these writes, on the clock that both twins share.
    until: BootTime,
}

impl World {
    /// Clones a running machine. The connections of the clone are broken.
    ///
    /// A machine is cloned at most once. In an older version, the filter of a leave compares only
    /// the claim, so nothing protects two twins of that version from each other.
    pub(super) fn fork(&mut self, process: usize, chance: u64) {
        let seat = self.processes[process].seat;
        let forked = self.own.forks.iter().any(|fork| fork.seats.contains(&seat));
        if forked || self.machines[seat].older {
            return;
        }
        let mut rng = Rng::new(chance, 6);
        let (id, copy) = (self.processes.len(), self.machines.len());
        let mut machine = self.machines[seat].clone();
        machine.random.copied(Rng::new(rng.next_u64(), 7));
        self.machines.push(machine);
        let mut twin = self.processes[process].clone();
        twin.seat = copy;
        let (works, follows) = (twin.works, twin.stream.claim.is_some());
        let (claim, calls) = (twin.contender.claim(), twin.driver.calls());
        let until = self.clock(process) + twin.options.timings.renew_deadline();
        self.processes.push(twin);
        self.live.push(id);
        self.own.forks.push(Forked {
            processes: [process, id],
            seats: [seat, copy],
            claim,
            until,
        });
        self.own.observer.forked(claim, process, id);
        self.note(|| format!("p{id} on seat {copy} is a copy of p{process}"));
        for call in calls {
            let at = self.now + rng.between(10, 3_000) * MS;
            self.answer_at(at, (id, call, LockOutcome::Unknown));
            self.time_out_at(at, id, call);
        }
        if follows {
            self.stream_ends(id);
        }
        let ends = self.now + rng.between(1, 12_000) * MS;
        if works {
            self.at(ends, move |world| world.work_ends(id, claim));
        }
        if rng.one_in(2) {
            let at = self.now + rng.between(1_000, 120_000) * MS;
            self.at_or(AtPeace::Drop, at, move |world| world.kill(id));
        }
    }

    /// Returns true if a process with this claim was running when its machine was forked.
    pub(super) fn is_of_twins(&self, claim: Claim) -> bool {
        self.own.forks.iter().any(|fork| fork.claim == claim)
    }

    pub(super) fn is_twin(&self, process: usize) -> bool {
        let mut forks = self.own.forks.iter();
        forks.any(|fork| fork.processes.contains(&process))
    }

    /// Returns the number of the fork if this authority comes from a write before the fork, and if
    /// the other twin also holds the lock or has already left.
    pub(super) fn excused_by(&self, process: usize, authority: Authority) -> Option<usize> {
        let claim = self.processes[process].contender.claim();
        self.own.forks.iter().position(|fork| {
            let other = fork.processes.into_iter().find(|twin| *twin != process);
            let other = other.filter(|_| fork.processes.contains(&process));
            let holds = |twin: usize| {
                let held = self.processes[twin]
                    .contender
                    .authority_at(self.clock(twin));
                let twin = &self.processes[twin];
                twin.alive && twin.contender.claim() == claim && held.is_some()
            };
            let acted = other.is_some_and(holds) || self.own.observer.has_left(claim);
            fork.claim == claim && authority.valid_until <= fork.until && other.is_some() && acted
        })
    }
}
