//! The life of a child and its descendants. After the stop signal, the child exits soon, late, or
//! never. The child may also exit by itself, and a descendant may outlive the child.

use std::time::Duration;

use super::cluster::World;
use super::faults::Fault;
use super::recording::Shim;
use crate::proof::sim::MS;
use crate::proof::sim::rng::Rng;

#[derive(Debug, Clone, Copy)]
pub(super) struct Life {
    /// The time when the child's leader (its first process) exits; `u64::MAX` until the leader
    /// crashes or receives a stop signal.
    pub(super) leader: u64,
    pub(super) leader_ended: bool,
    pub(super) rest: u64,
    /// Time from the stop signal to the child's exit; `None` if the child ignores the signal.
    pub(super) obeys: Option<u64>,
    pub(super) leaves: u64,
    /// Time that the child's leader continues to run after the guard was killed. The kernel ends
    /// the leader only after the guard's lock is free, and not at all if the leader changed its
    /// user.
    pub(super) outlives_guard: u64,
    /// Time that the processes continue to run after SIGKILL, usually zero.
    pub(super) survives: u64,
    pub(super) survived: bool,
}

impl Life {
    pub(super) fn ends(&self) -> u64 {
        if self.leader_ended {
            self.rest
        } else {
            self.leader
        }
    }

    /// Returns the remaining life after SIGKILL at `now`, or `None` if SIGKILL ends the processes
    /// immediately.
    pub(super) fn killed(self, now: u64) -> Option<Self> {
        let ends = now + self.survives;
        (self.survives > 0).then_some(Self {
            leader: if self.survived { self.leader } else { ends },
            rest: if self.survived || !self.leader_ended {
                self.rest
            } else {
                ends
            },
            leaves: 0,
            survived: true,
            ..self
        })
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Child {
    Unborn,
    /// A shim records itself and then becomes the child.
    Recording(Shim),
    Runs(Life),
    Gone,
}

/// Time that descendants may run after the child's leader exits by itself.
pub(super) const LINGER: Duration = Duration::from_millis(700);

impl World {
    /// Draws the life that a child has unless it is killed. Every random value is drawn even if no
    /// fault needs it, so that disabling a fault does not change the later values.
    pub(super) fn drawn_life(&mut self) -> Life {
        let rng = &mut self.own.guard_dice;
        let (stubborn, crashes, forks) = (rng.one_in(3), rng.one_in(3), rng.one_in(3));
        let obeys = rng.between(1, 4_000) * MS;
        let leaves = rng.between(1, 1_500) * MS;
        let lives = match rng.one_in(2) {
            true => rng.between(1, 2_000) * MS,
            false => rng.between(1, 120_000) * MS,
        };
        let untied = rng.one_in(3);
        let outlives_guard = match rng.one_in(2) {
            true => rng.below(5 * MS),
            false => rng.below(1_000 * MS),
        };
        let untied_for = rng.between(1, 60_000) * MS;
        // A separate generator leaves the other draws unchanged.
        let mut rng = Rng::new(self.now, 19);
        let (unkillable, survives) = (rng.one_in(4), rng.between(1_000, 200_000) * MS);
        let unkillable = self.strikes(unkillable, Fault::ChildUnkillable);
        let untied = self.strikes(untied, Fault::ChildUntied);
        let crashes = self.strikes(crashes, Fault::ChildCrashes);
        let stubborn = self.strikes(stubborn, Fault::ChildStubborn);
        let forks = self.strikes(forks, Fault::ChildForks);
        Life {
            leader: if crashes { self.now + lives } else { u64::MAX },
            leader_ended: false,
            rest: u64::MAX,
            obeys: (!stubborn).then_some(obeys),
            leaves: if forks { leaves } else { 0 },
            outlives_guard: if untied { untied_for } else { outlives_guard },
            survives: if unkillable { survives } else { 0 },
            survived: false,
        }
    }

    pub(super) fn end_due_child(&mut self, g: usize) {
        let now = self.now;
        if self.child_still_until(g) > now {
            return;
        }
        let guard = &mut self.own.guards[g];
        let Child::Runs(life) = &mut guard.child else {
            return;
        };
        let ends = !life.leader_ended && now >= life.leader;
        if ends {
            life.leader_ended = true;
            life.rest = now + life.leaves;
            guard.ended_by_itself = !guard.judge.stop_requested() && !guard.judge.killed();
        }
        if life.leader_ended && now >= life.rest {
            guard.child = Child::Gone;
        }
        if ends {
            self.note(|| format!("g{g}'s child ends"));
        }
    }
}
