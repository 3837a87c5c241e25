//! The last phase of a candidate that was asked to shut down and no longer leads.

use super::contend::Contender;
use super::effect::Notice;
use super::supervise::{DrainAfterLoss, WorkloadState};
use super::time::BootTime;
use crate::claim::{Turn, earliest};

/// Progress of a shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Shutdown {
    /// Latest instant to exit; set once only the release remains.
    by: Option<BootTime>,
    /// True if a file still names a deadline ahead, so that the lease must expire without a
    /// release.
    pub(super) keep: bool,
    /// True if a claim may be stored after the exit.
    pub(super) left_to_expire: bool,
}

/// The next step of a shutdown.
pub(super) enum LastStep {
    Wait(Option<BootTime>),
    Exit,
}

impl Shutdown {
    /// Performs the next step of a process that no longer leads: it releases its stored claims, for
    /// at most one operation timeout, then exits.
    pub(super) fn next(
        &mut self,
        contender: &mut Contender,
        workload: &WorkloadState,
        turn: &mut Turn<'_>,
    ) -> LastStep {
        let now = turn.now;
        let busy = contender.is_busy();
        // A release drops a read in flight, even if the view waits for it.
        if !busy {
            contender.reads.keep_looking(&contender.me, turn);
        }
        // A claim is released only after its workload is gone (I6). A stuck workload is not waited
        // for, because it may never end.
        let stuck = workload.is_stuck();
        if workload.runs() && !stuck {
            return wait(None, contender, turn);
        }
        let keep = self.keep || stuck;
        let open = !contender.claims.is_empty() || busy;
        let drain = workload.drain.map(DrainAfterLoss::worth_waiting_until);
        let drain = drain.filter(|until| *until > now);
        if open && drain.is_some() && !keep {
            return wait(drain, contender, turn);
        }
        let releases = contender.situation(workload).release_from() <= now && !keep;
        let operation_timeout = contender.me.timings().operation_timeout();
        let by = *self.by.get_or_insert(now + operation_timeout);
        if by > now && releases {
            if busy {
                contender.read_if_due(turn);
                return LastStep::Wait(Some(by));
            }
            if contender.reads.schedule.behind && open {
                return wait(Some(by), contender, turn);
            }
            let (view, claims, me) = (&contender.view, &contender.claims, &contender.me);
            let lease = view.lease();
            if let Some(mine) = lease.and_then(|it| claims.stored_in(it, &me.identity)) {
                contender.release(&mine, turn);
                return LastStep::Wait(Some(by));
            }
        }
        if let Some(until) = contender.withdraw_before_exit(by, turn) {
            return LastStep::Wait(Some(until));
        }
        if self.keep {
            turn.effects.notice(Notice::LeftToExpire);
        }
        self.left_to_expire = contender.may_be_stored();
        contender.exit();
        LastStep::Exit
    }
}

/// Sends a read if one is due, and waits for the next one, but at most until `until`.
fn wait(until: Option<BootTime>, contender: &mut Contender, turn: &mut Turn<'_>) -> LastStep {
    contender.read_if_due(turn);
    LastStep::Wait(earliest([until, contender.reads.schedule.next()]))
}
