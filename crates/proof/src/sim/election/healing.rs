//! Ends all faults before the period without faults.

use std::time::Duration;

use super::cluster::World;
use super::document::Document;
use super::files::Health;
use super::process::{Class, LEASE_MAX};
use crate::election::{Declared, Input, Tunables};
use crate::proof::sim::SECOND;

impl World {
    /// Returns how long a candidate may have to wait for the lease now. The wait is the duration
    /// that the holder declared, or the candidate's own cooldown. After damage to the document, the
    /// wait may be the longest permitted duration.
    pub(super) fn longest_wait(&self) -> Duration {
        if !self.own.damages.is_empty() {
            return LEASE_MAX;
        }
        let holder = self.set.primary().lease().and_then(|l| l.holder.as_ref());
        let declared = holder.and_then(|h| h.lease_duration.valid());
        let recent = self.now.saturating_sub(LEASE_MAX.as_nanos() as u64 * 2);
        let replaced = self.own.replaced.iter().filter(|(at, _)| *at >= recent);
        let replaced = replaced.map(|(_, longest)| *longest);
        let machines = self.machines.iter();
        let own = machines.map(|m| m.tunables.timings.lease_duration());
        own.chain(declared)
            .chain(replaced)
            .max()
            .unwrap_or(LEASE_MAX)
    }

    fn end_preferences(&mut self) {
        for machine in &mut self.machines {
            machine.tunables.prefer_interval = None;
        }
        for process in self.live.clone() {
            let tunables = Tunables {
                prefer_interval: None,
                ..self.processes[process].tunables
            };
            self.input(process, Class::Machine, Input::Reconfigure(tunables));
        }
    }

    pub(super) fn heal(&mut self) {
        self.calm = true;
        self.note(|| "== peace".to_owned());
        self.forget_the_late();
        self.set.no_majority_until = self.set.no_majority_until.min(self.now);
        if self.set.no_primary_until > self.now {
            self.set.no_primary_until = self.now;
            self.primary_elected();
        }
        for directory in &mut self.own.directories {
            directory.health = Health::Good;
        }
        for machine in &mut self.machines {
            machine.asleep_until = self.now.min(machine.asleep_until);
            machine.cut_until = self.now.min(machine.cut_until);
        }
        self.use_new_primary();
        for process in self.live.clone() {
            // A stale stream stays stale, and no event informs the process.
            if !self.processes[process].stream.stale {
                self.stream_ends(process);
                self.input(process, Class::News, Input::PrimaryChanged);
            }
        }
        // No holder in the simulation declares a longer duration. If a repair declared a shorter
        // duration, other candidates could take over while the holder leads.
        let default = Declared { millis: 40_000 };
        self.edit(|stored| {
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
        self.heal_guards();
        self.end_preferences();
        for process in self.live.clone() {
            let p = &mut self.processes[process];
            p.frozen_until = p.frozen_until.min(self.now);
            p.stall_next = None;
            self.pump(process);
            self.checked(process, true);
        }
        for machine in 0..self.machines.len() {
            if self.live_on(machine).is_empty() {
                let directory = self.add_directory(machine);
                self.start_at(self.now + SECOND, machine, directory);
            }
        }
    }
}
