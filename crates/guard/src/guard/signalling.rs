//! The recipients of signals. A process outside of CMD's process group gets the stop signal as a
//! child of the guard. While its parent lives, the parent can pass the signal on, as timeout(1)
//! does, and its id could be reused before the guard signals it.

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::super::groups::{group_of, number};
use super::Guard;

/// Maximum number of children that are remembered, because the guard allocates nothing. A child
/// that it cannot remember does not get the stop signal, only SIGKILL.
const REMEMBERED_MAX: usize = 128;

/// The children outside of CMD's process group that got the stop signal. A second one would make
/// some programs exit at once.
pub(super) struct Asked {
    signal: Option<Signal>,
    /// The process group that got the stop signal as a whole.
    group: Option<i32>,
    children: [Option<Pid>; REMEMBERED_MAX],
}

impl Default for Asked {
    fn default() -> Self {
        Self {
            signal: None,
            group: None,
            children: [None; REMEMBERED_MAX],
        }
    }
}

impl Asked {
    /// Sends the stop signal, if CMD was asked to stop, to a child that did not get it.
    pub(super) fn ask(&mut self, child: Pid) {
        let Some(signal) = self.signal else { return };
        let in_group = self.group.is_some() && group_of(child) == self.group;
        if in_group || self.children.contains(&Some(child)) {
            return;
        }
        if let Some(place) = self.children.iter_mut().find(|place| place.is_none()) {
            *place = Some(child);
            let _ = kill_process(child, signal);
            // A stopped process handles the signal only after it continues.
            let _ = kill_process(child, Signal::CONT);
        }
    }
}

impl Guard {
    /// Asks CMD's process group to stop; then [`Asked::ask`] asks each other child, and each
    /// process that becomes a child because its parent has ended.
    pub(super) fn ask_to_stop(&mut self, signal: Signal) {
        let Some(leader) = &self.leader else { return };
        let asked = &mut self.asked;
        asked.signal = Some(signal);
        if !leader.reaped {
            asked.group = Some(number(leader.pid));
            for signal in [signal, Signal::CONT] {
                // This call fails if all processes in the group have ended.
                let _ = kill_process_group(leader.pid, signal);
            }
        }
        let _ = self.ready.children.each(|child| asked.ask(child));
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
