//! The recipients of signals. A process outside of CMD's process group gets the stop signal as a
//! child of the guard. While its parent lives, the parent can pass the signal on, as timeout(1)
//! does, and its id could be reused before the guard signals it.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::super::children::started;
use super::super::groups::{group_of, number};
use super::Guard;

/// Maximum number of children that are remembered, because the guard allocates nothing. Of further
/// children, only those that are there when CMD is asked to stop get the stop signal.
const REMEMBERED_MAX: usize = 128;
/// Duration of a clock tick of /proc, on all machines.
const TICK: Duration = Duration::from_millis(10);

/// The children outside of CMD's process group that got the stop signal. A second one would make
/// some programs exit at once.
pub(super) struct StopReceivers {
    signal: Option<Signal>,
    /// The time of the stop, in clock ticks since boot. A process that started since then is part of the
    /// stop, for example an upload that a handler of the signal began, and has the grace period.
    at: u64,
    /// The process group that got the stop signal as a whole.
    group: Option<i32>,
    children: [Option<Pid>; REMEMBERED_MAX],
}

impl Default for StopReceivers {
    fn default() -> Self {
        Self {
            signal: None,
            at: 0,
            group: None,
            children: [None; REMEMBERED_MAX],
        }
    }
}

impl StopReceivers {
    /// Sends the stop signal, if CMD was asked to stop, to a process that has become a child since.
    pub(super) fn adopt(&mut self, child: Pid) {
        let in_group = self.group.is_some() && group_of(child) == self.group;
        if self.signal.is_some() && !in_group && !self.children.contains(&Some(child)) {
            let is_new = started(child).is_none_or(|started| started >= self.at);
            if self.remember(child) && !is_new {
                self.ask(child);
            }
        }
    }

    /// Returns false if there is no place left.
    fn remember(&mut self, child: Pid) -> bool {
        let place = self.children.iter_mut().find(|place| place.is_none());
        place.map(|place| *place = Some(child)).is_some()
    }

    pub(super) fn forget(&mut self, child: Pid) {
        let known = |place: &&mut Option<Pid>| **place == Some(child);
        if let Some(place) = self.children.iter_mut().find(known) {
            *place = None;
        }
    }

    fn ask(&self, child: Pid) {
        if let Some(signal) = self.signal {
            let _ = kill_process(child, signal);
            // A stopped process handles the signal only after it continues.
            let _ = kill_process(child, Signal::CONT);
        }
    }
}

impl Guard {
    /// Sends the stop signal to CMD's process group and to each child outside of it. Later,
    /// [`StopReceivers::adopt`] asks each process that becomes a child because its parent has ended.
    pub(super) fn ask_to_stop(&mut self, signal: Signal) {
        let Some(leader) = &self.leader else { return };
        let asked = &mut self.asked;
        let since_boot = Duration::from_nanos(leasehold_clock::boot_now().as_nanos());
        asked.at = u64::try_from(since_boot.as_millis() / TICK.as_millis()).unwrap_or(u64::MAX);
        asked.signal = Some(signal);
        if !leader.reaped {
            asked.group = Some(number(leader.pid));
            for signal in [signal, Signal::CONT] {
                // This call fails if all processes in the group have ended.
                let _ = kill_process_group(leader.pid, signal);
            }
        }
        let _ = self.ready.children.each(|child| {
            if asked.group.is_none() || group_of(child) != asked.group {
                asked.ask(child);
                asked.remember(child);
            }
        });
    }

    /// Relays a signal only to CMD's first process, because SIGTTIN would stop a descendant that
    /// does not expect it. Relays SIGCONT to all processes, because a job continues as a whole.
    pub(super) fn relay(&mut self, signal: i32) {
        match Signal::from_named_raw(signal) {
            Some(Signal::CONT) => self.signal(Signal::CONT),
            Some(signal) => self.signal_leader(signal),
            None => {}
        }
    }

    pub(super) fn signal_leader(&self, signal: Signal) {
        if let Some(leader) = self.leader.as_ref().filter(|leader| !leader.reaped) {
            let _ = kill_process(leader.pid, signal);
        }
    }

    /// Sends a signal to CMD's process group and to all children outside of it.
    pub(super) fn signal(&mut self, signal: Signal) {
        let Some(leader) = &self.leader else { return };
        let group = (!leader.reaped).then_some(leader.pid);
        if let Some(group) = group {
            let _ = kill_process_group(group, signal);
        }
        let _ = self.ready.children.each(|child| {
            if group.is_none() || group_of(child) != group.map(number) {
                let _ = kill_process(child, signal);
            }
        });
    }
}
