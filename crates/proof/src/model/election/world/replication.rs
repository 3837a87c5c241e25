//! Replicates writes to a majority, acknowledges them, and sends the events of the change streams.

use std::sync::Arc;

use super::World;
use crate::election::{Operation, Outcome, Watch};
use crate::proof::model::election::bounds::{Bounds, Kind};
use crate::proof::model::election::machine::Machine;
use crate::proof::model::election::monitor::{Broken, Milestone};

const EVENTS_MAX: usize = 2;

impl World {
    pub(super) fn land(&mut self, candidate: usize, number: u64) -> Outcome {
        let operation = self.call(candidate, number).operation;
        let identity = self.machines[candidate].identity.clone();
        let before = self.store.primary.clone();
        let mut outcome = self.store.perform(&identity, &operation);
        if self.machines[candidate].announces(&operation) {
            // A deposed primary may lack the newest renewal, so a rejection proves nothing.
            outcome = match outcome {
                Outcome::Applied(_) => Outcome::PrimaryOnly,
                _ => Outcome::Unknown,
            };
        }
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
                machine.events.push(Watch::Changed(lease.clone()));
            }
            machine.calls.acknowledge();
        }
    }

    /// Sends the hint of an acknowledged release to the candidate that it names.
    pub(super) fn announce(&mut self, by: usize, operation: &Operation) {
        let machine = &self.machines[by];
        let Some(released) = machine.announced.clone() else {
            return;
        };
        if !machine.announces(operation) {
            return;
        }
        let named = |m: &Arc<Machine>| m.identity == released.reserved_for && m.election.is_some();
        if let Some(to) = self.machines.iter().position(named) {
            let events = &mut self.machine(to).events;
            events.truncate(EVENTS_MAX - 1);
            events.push(Watch::Released(released));
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
