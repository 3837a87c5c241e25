//! The last phase of a candidate that was asked to shut down and no longer leads.

use super::drain::DrainAfterLoss;
use super::effect::Notice;
use super::time::BootTime;
use super::{Effect, Election, Shutdown, State, Turn, earliest};

impl Election {
    /// Shuts down a candidate that does not lead: releases its claims in the store, for at most one
    /// operation timeout, then exits.
    pub(super) fn finish(&mut self, shutdown: Shutdown, turn: &mut Turn<'_>) -> Option<BootTime> {
        // A release drops a read in flight, even if the view waits for it.
        if !self.is_busy() {
            self.reads.keep_looking(&self.me, turn);
        }
        // A claim is released only after its workload is gone (I6). A stuck workload is not waited
        // for, because it may never end.
        let stuck = self.workload.is_stuck();
        if self.workload.runs() && !stuck {
            self.reads
                .send_if_due(&self.view, &mut self.outbox, turn.now);
            return self.reads.next();
        }
        let keep = shutdown.keep || stuck;
        let open = !self.claims.is_empty() || self.is_busy();
        let drain = self.workload.drain();
        let from = drain.map_or_else(BootTime::default, DrainAfterLoss::worth_waiting_until);
        if open && from > turn.now && !keep {
            self.reads
                .send_if_due(&self.view, &mut self.outbox, turn.now);
            return earliest([Some(from), self.reads.next()]);
        }
        let releases = self.release_from() <= turn.now && !keep;
        let by = shutdown
            .by
            .unwrap_or_else(|| turn.now + self.me.timings().operation_timeout());
        self.shutdown = Some(Shutdown {
            by: Some(by),
            ..shutdown
        });
        if by > turn.now && releases {
            if self.is_busy() {
                self.reads
                    .send_if_due(&self.view, &mut self.outbox, turn.now);
                return Some(by);
            }
            if self.reads.is_behind() && open {
                self.reads
                    .send_if_due(&self.view, &mut self.outbox, turn.now);
                return earliest([Some(by), self.reads.next()]);
            }
            let lease = self.view.lease();
            let mine = lease.and_then(|lease| self.claims.stored_in(lease, &self.me.identity));
            if let Some(mine) = mine {
                self.release(&mine, turn);
                return Some(by);
            }
        }
        if let Some(until) = self.withdraw_before_exit(by, turn) {
            return Some(until);
        }
        if shutdown.keep {
            self.outbox.notice(Notice::LeftToExpire);
        }
        self.left_to_expire = self.may_be_stored();
        self.state = State::Exited;
        self.outbox.push(Effect::Exit);
        None
    }

    /// Returns true if the document may name a claim of this process: an acquisition or a release was
    /// not answered, or no release was sent.
    fn may_be_stored(&self) -> bool {
        let held = self.view.lease().and_then(|lease| lease.holder.as_ref());
        self.is_acquiring()
            || !self.claims.is_empty()
            || (!self.reads.is_behind()
                && held.is_some_and(|holder| holder.session == self.me.session))
    }

    /// Returns true if this candidate has exited while its claim may still be stored, because no
    /// release was acknowledged. The lease then expires by itself.
    pub const fn is_left_to_expire(&self) -> bool {
        self.left_to_expire
    }
}
