//! The last phase of a candidate that was asked to shut down and no longer leads.

use std::time::Duration;

use super::Contender;
use super::standby::head_start_of_standby;
use crate::claim::{Turn, earliest};
use crate::election::claims::EndedClaim;
use crate::election::{BootTime, Notice, Stopping};

/// Maximum wait at a shutdown with `workload.ends_first`. Not zero, because a kubelet may restart
/// only the sidecar. The sidecar has 2 s: 0.5 s for the files and the label, this wait, and 0.5 s
/// for the release.
const ENDS_FIRST_WAIT_MAX: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Shutdown {
    pub(crate) requested: bool,
    /// Latest instant to exit; set once the candidate waits only for its release.
    by: Option<BootTime>,
    /// True if the lease must expire, because a status file still names a future deadline.
    keep: bool,
    pub(crate) left_to_expire: bool,
}

pub(crate) enum LastStep {
    Wait(Option<BootTime>),
    Exit,
}

impl Contender {
    pub(crate) fn shut_down(&mut self, now: BootTime) -> bool {
        let first = !std::mem::replace(&mut self.shutdown.requested, true);
        if first {
            // If the candidate is already waiting for its workload, the wait may become shorter.
            self.workload.shorten_drain(now + self.drain_time());
        }
        first
    }

    /// Ends the claim after a step-down. Sends no release while readers may trust a stuck file.
    pub(crate) fn hand_over(&mut self, stopped: Stopping, turn: &mut Turn<'_>) {
        let stuck = stopped.stuck_noticed_at() > turn.now;
        let ended = self.end_stopped(stopped, None, turn.now);
        if self.shutdown.requested && stuck {
            self.shutdown.keep = true;
        } else {
            self.release(&ended, turn);
        }
    }

    pub(crate) fn last_step(&mut self, turn: &mut Turn<'_>) -> LastStep {
        let now = turn.now;
        let busy = self.is_busy();
        // A release does not wait for a read, even if the view is outdated.
        if !busy {
            self.keep_looking(turn);
        }
        // A claim is released only after its workload ended (I6), but a stuck workload may never
        // end.
        let stuck = self.workload.is_stuck();
        if self.workload.runs() && !stuck {
            return self.wait(None, turn);
        }
        let keep = self.shutdown.keep || stuck;
        let exited = self.exited_claim_may_be_stored();
        let open = !self.claims.is_empty() || busy || exited;
        let drain = self.workload.worth_waiting_until();
        let drain = drain.max(self.exit_noticed_at().filter(|_| exited));
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
            let lease = self.view.lease();
            let mine = lease.and_then(|it| self.claims.stored_in(it, &self.me.identity));
            if let Some(mine) = mine.or_else(|| self.exited_claim()) {
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

    /// If the lease names the exited process's claim, returns this claim for its release.
    pub(super) fn exited_claim(&self) -> Option<EndedClaim> {
        let (exited, lease) = (self.claims.exited?, self.view.lease()?);
        let head_start = head_start_of_standby(&self.view).filter(|_| !lease.paused);
        exited.stored_in(lease, head_start)
    }

    pub(super) fn exited_claim_may_be_stored(&self) -> bool {
        let unseen = self.claims.exited.is_some() && self.reads.schedule.behind;
        unseen || self.exited_claim().is_some()
    }

    /// Returns the latest instant at which an unsupervised workload may notice the exit of its
    /// daemon.
    pub(super) fn exit_noticed_at(&self) -> Option<BootTime> {
        let exited = self.claims.exited?;
        Some(exited.demoted_at + planted!(ExitUnnoticed, Duration::ZERO, self.drain_time()))
    }

    pub(crate) fn drain_time(&self) -> Duration {
        let tunables = &self.me.tunables;
        match self.shutdown.requested && tunables.workload_ends_first {
            true => tunables.handoff_delay.min(ENDS_FIRST_WAIT_MAX),
            false => tunables.handoff_delay,
        }
    }

    fn wait(&mut self, until: Option<BootTime>, turn: &mut Turn<'_>) -> LastStep {
        self.read_if_due(turn);
        LastStep::Wait(earliest([until, self.next_read()]))
    }
}
