//! The deadlines that a daemon sets for its guard: to start the child, to kill the child, and to
//! confirm the child's exit.

use std::time::Duration;

use super::child::Child;
use super::cluster::World;
use super::coverage::{Hit, Path};
use super::guards::{CONFIRMED_WITHIN, GUARD_LATE_MAX, Guard, WAKE_MAX};
use super::invariants::guards_act_in_time as acts;
use super::invariants::starts_are_bounded as bounded;
use super::process::Class;
use crate::deadline_policy::DesiredState;
use crate::election::mutation::planted;
use crate::election::{BootTime, Input};

/// Must equal the value in `crates/supervisor/src/lib.rs`.
const STARTED_WITHIN: Duration = Duration::from_secs(10);

impl World {
    /// Returns the time when the guard must kill its child, as in `crates/guard/src/client.rs`.
    pub(super) fn guard_due(&self, g: usize) -> Option<BootTime> {
        let guard = &self.own.guards[g];
        let daemon = &self.processes[guard.daemon];
        let apart = guard.connection.is_some();
        let done = apart || !guard.alive || guard.judge.killed() || !daemon.alive;
        let due = guard.wanted.kill_at();
        let due = (guard.start_given_up).map_or(due, |at| at.min(due));
        (!done).then(|| due + GUARD_LATE_MAX)
    }

    /// Returns the time when the daemon reports that the workload has survived SIGKILL, as in
    /// `crates/supervisor/src/command.rs`.
    pub(super) fn stuck_at(&self, g: usize) -> Option<BootTime> {
        let guard = &self.own.guards[g];
        let DesiredState { terms, stop, .. } = guard.wanted;
        let waits = self.processes[guard.daemon].alive && !guard.heard && !guard.told_stuck;
        let stop = [stop.map(|stop| stop.kill_at), guard.start_given_up];
        let killed_at = stop.into_iter().flatten().min().filter(|_| waits)?;
        let killed_at = killed_at.min(terms.kill_at);
        Some(killed_at + terms.kill_at.since(terms.valid_until) + CONFIRMED_WITHIN)
    }

    pub(super) fn report_stuck(&mut self, g: usize) {
        let Guard {
            daemon,
            token,
            machine,
            ..
        } = self.own.guards[g];
        let now = self.machine_clock(machine, true);
        if self.is_frozen(daemon) || self.stuck_at(g).is_none_or(|due| now < due) {
            return;
        }
        self.own.guards[g].told_stuck = true;
        if planted!(StopUnbounded) {
            return;
        }
        let input = match planted!(KilledCountsAsGone) {
            true => Input::WorkloadGone { token },
            false => Input::WorkloadStuck { token },
        };
        self.input(daemon, Class::Machine, input);
    }

    pub(super) fn keep(&mut self, g: usize) {
        let daemon = self.own.guards[g].daemon;
        let now = self.machine_clock(self.own.guards[g].machine, true);
        if self.is_frozen(daemon) || self.guard_due(g).is_none_or(|due| now < due) {
            return;
        }
        self.coverage.hit(Hit::Path(Path::GuardLate));
        self.note(|| format!("p{daemon} kills its guard g{g}, which is late"));
        self.check_late_guard(g);
        self.kill_guard(g);
    }

    /// Returns the time when the daemon abandons the start of a child, as in
    /// `crates/supervisor/src/lib.rs`.
    pub(super) fn start_due(&self, g: usize) -> Option<BootTime> {
        let guard = &self.own.guards[g];
        let starts = matches!(guard.child, Child::Unborn | Child::Recording(_));
        let waits = self.processes[guard.daemon].alive && !guard.heard;
        let waits = waits && starts && guard.start_given_up.is_none();
        (waits && !planted!(StartUnbounded)).then(|| guard.ordered_at + STARTED_WITHIN)
    }

    pub(super) fn give_up_start(&mut self, g: usize) {
        let Guard {
            daemon,
            token,
            machine,
            ..
        } = self.own.guards[g];
        let now = self.machine_clock(machine, true);
        if self.is_frozen(daemon) || self.start_due(g).is_none_or(|due| now < due) {
            return;
        }
        let guard = &mut self.own.guards[g];
        guard.start_given_up = Some(now);
        guard.wanted = guard.wanted.killed();
        guard.asked_at.get_or_insert(now);
        self.send_newest_record(g);
        self.input(daemon, Class::Machine, Input::WorkloadEnded { token });
    }

    pub(super) fn check_start(&mut self, g: usize) {
        let guard = &self.own.guards[g];
        let process = &self.processes[guard.daemon];
        let status = process.election.status();
        let leads = status.authority.is_some_and(|a| a.token == guard.token);
        let starts = matches!(guard.child, Child::Unborn | Child::Recording(_));
        if !leads || !starts || !process.alive {
            return;
        }
        let now = self.machine_clock(guard.machine, true);
        let runs = self.running_since(self.thaws_at(guard.daemon));
        let lasts = now.since(guard.ordered_at + STARTED_WITHIN);
        let lasts = lasts.min(runs.unwrap_or_default());
        self.found(bounded::check(bounded::Start { lasts }));
    }

    /// Called when a daemon considers its guard late: checks that the guard had no time to act.
    pub(super) fn check_late_guard(&mut self, g: usize) {
        let thaws = self.guard_thaws_at(g).max(self.own.guards[g].told_at);
        let runs = self.running_since(thaws);
        self.found(acts::check(acts::Late {
            runs,
            wake_max: Duration::from_nanos(WAKE_MAX),
        }));
    }
}
