//! The last phase of a candidate that was asked to shut down and no longer leads.

use super::supervise::DrainAfterLoss;
use super::{BootTime, Contender, Notice};
use crate::claim::{Turn, earliest};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Shutdown {
    pub(super) requested: bool,
    /// Latest instant to exit; set once the candidate waits only for its release.
    by: Option<BootTime>,
    /// True if a status file still names a future deadline, so that the lease must expire.
    pub(super) keep: bool,
    /// True if a claim may be stored after the exit.
    pub(super) left_to_expire: bool,
}

pub(super) enum LastStep {
    Wait(Option<BootTime>),
    Exit,
}

impl Contender {
    /// Releases the stored claims, for at most one operation timeout, and then exits.
    pub(super) fn last_step(&mut self, turn: &mut Turn<'_>) -> LastStep {
        let now = turn.now;
        let busy = self.is_busy();
        // A release does not wait for a read, even if the view is behind.
        if !busy {
            self.keep_looking(turn);
        }
        // A claim is released only after its workload is gone (I6), which may never happen.
        let stuck = self.workload.is_stuck();
        if self.workload.runs() && !stuck {
            return self.wait(None, turn);
        }
        let keep = self.shutdown.keep || stuck;
        let open = !self.claims.is_empty() || busy;
        let drain = self.workload.drain.map(DrainAfterLoss::worth_waiting_until);
        let drain = drain.filter(|until| *until > now);
        if open && drain.is_some() && !keep {
            return self.wait(drain, turn);
        }
        let releases = self.release_from() <= now && !keep;
        let operation_timeout = self.me.timings().operation_timeout();
        let by = *self.shutdown.by.get_or_insert(now + operation_timeout);
        if by > now && releases {
            if busy {
                self.read_if_due(turn);
                return LastStep::Wait(Some(by));
            }
            if self.reads.schedule.behind && open {
                return self.wait(Some(by), turn);
            }
            let (view, claims, me) = (&self.view, &self.claims, &self.me);
            let lease = view.lease();
            if let Some(mine) = lease.and_then(|it| claims.stored_in(it, &me.identity)) {
                self.release(&mine, turn);
                return LastStep::Wait(Some(by));
            }
        }
        if let Some(until) = self.withdraw_before_exit(by, turn) {
            return LastStep::Wait(Some(until));
        }
        if self.shutdown.keep {
            turn.effects.notice(Notice::LeftToExpire);
        }
        self.shutdown.left_to_expire = self.may_be_stored();
        (self.write, self.checking) = (None, None);
        LastStep::Exit
    }

    fn wait(&mut self, until: Option<BootTime>, turn: &mut Turn<'_>) -> LastStep {
        self.read_if_due(turn);
        LastStep::Wait(earliest([until, self.reads.schedule.next()]))
    }
}
