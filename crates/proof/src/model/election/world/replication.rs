//! Replicates writes to a majority, acknowledges them, and sends the events of the change streams.

use super::World;
use crate::election::{Operation, Outcome};
use crate::proof::model::election::bounds::{Bounds, Kind};
use crate::proof::model::election::monitor::{Broken, Milestone};

const EVENTS_MAX: usize = 2;

impl World {
    pub(super) fn land(&mut self, candidate: usize, number: u64) -> Outcome {
        let operation = self.call(candidate, number).operation;
        let identity = self.machines[candidate].identity.clone();
        let before = self.store.primary.clone();
        let outcome = self.store.perform(&identity, &operation);
        if let (
            Operation::Acquire(_) | Operation::TakeOver { .. },
            Outcome::Applied(_),
            Some(before),
        ) = (&operation, &outcome, before)
        {
            if before.paused {
                self.broken = Some(Broken::I8);
            }
            let kept = before.reserved_for.filter(|_| before.holder.is_none());
            if kept.is_some_and(|kept| kept.identity == identity) {
                self.milestone = Some(Milestone::Transferred);
            }
        }
        outcome
    }

    /// Replicates the primary's writes to a majority, acknowledges the lagging writes, and sends
    /// events to the change streams.
    pub(super) fn replicate(&mut self, bounds: &Bounds) {
        if !self.store.lags() {
            return;
        }
        let remember = bounds.kinds.contains(&Kind::StaleReads) && self.faults_left > 0;
        self.store.commit(remember);
        let committed = self.store.committed.clone();
        for candidate in 0..self.machines.len() {
            let streams = bounds.streams && self.machines[candidate].election.is_some();
            if !streams && !self.machines[candidate].calls.lag() {
                continue;
            }
            let machine = self.machine(candidate);
            if let (true, Some(lease)) = (streams, &committed) {
                // Keeps only the oldest and the newest event that a frozen process has not
                // received. Either event can mislead the process. Keeping all events would make the
                // number of states unbounded.
                machine.events.truncate(EVENTS_MAX - 1);
                machine.events.push(lease.clone());
            }
            machine.calls.acknowledge();
        }
    }

    pub(super) fn roll_back(&mut self) {
        self.disturb();
        self.store.primary = self.store.committed.clone();
        self.milestone = Some(Milestone::RollBack);
        for candidate in 0..self.machines.len() {
            self.machine(candidate).calls.roll_back();
        }
    }
}
