//! Delivers calls to the store, and answers and inputs to contenders. Carries out the effects that
//! the contenders request.

use std::sync::Arc;

use super::World;
use crate::election::{CallId, Claim, Token};
use crate::lock::{
    End, EntryState, Hint, LockEffect, LockInput, LockMode, LockNotice, LockOperation, LockOutcome,
    Loss,
};
use crate::proof::flawed::lock as flawed;
use crate::proof::model::lock::bounds::Bounds;
use crate::proof::model::lock::machine::{Machine, Place, Stream, draw};
use crate::proof::model::lock::monitor::{Reply, Sending};
use crate::proof::model::lock::properties::Milestone;
use crate::proof::model::lock::store::lock_of;

impl World {
    pub(super) fn land(&mut self, index: usize, number: u64) -> LockOutcome {
        let operation = self.call(index, number).operation;
        let identity = self.machines[index].identity.clone();
        let (outcome, broken) = self.store.perform(&identity, &operation);
        self.broken = self.broken.or(broken);
        if let (LockOperation::Join { entry, .. }, LockOutcome::Applied(_)) = (&operation, &outcome)
        {
            let claim = self.machines[index].contender.as_ref().map(|c| c.claim());
            if claim != Some(entry.claim) {
                self.milestones.push(Milestone::JoinWithoutOwner);
            }
        }
        outcome
    }

    /// Delivers an answer, unless the process that sent the call has exited. A frozen process
    /// receives the answer after it thaws.
    pub(super) fn arrive(
        &mut self,
        index: usize,
        number: u64,
        outcome: LockOutcome,
        bounds: &Bounds,
    ) {
        if self.machines[index].frozen {
            return self.place(index, number, Place::Answered(outcome));
        }
        let machine = self.machine(index);
        let call = machine.calls.take(number);
        let Some(id) = call.id else { return };
        let was_waiting = call.waiting;
        let before = self.held().len();
        let operation = call.operation.clone();
        self.reply(index, id, &operation, outcome, bounds);
        if self.held().len() > before {
            self.milestones.push(match (&operation, was_waiting) {
                (_, false) => Milestone::LateAcquisition,
                (LockOperation::Renew { .. }, _) => Milestone::Confirmed,
                (LockOperation::Evict { .. }, _) => Milestone::TakenOver,
                _ => Milestone::Joined,
            });
        }
    }

    pub(super) fn time_out(&mut self, index: usize, number: u64, bounds: &Bounds) {
        self.disturb();
        let call = self.call(index, number);
        let calls = &mut self.machine(index).calls;
        calls.change(number, |call| call.waiting = false);
        if let Some(id) = call.id {
            self.reply(index, id, &call.operation, LockOutcome::Unknown, bounds);
        }
    }

    fn reply(
        &mut self,
        index: usize,
        call: CallId,
        operation: &LockOperation,
        outcome: LockOutcome,
        bounds: &Bounds,
    ) {
        let ticks = self.ticks;
        let machine = self.machine(index);
        let now = machine.clock(ticks);
        if let Some(contender) = &machine.contender {
            let status = contender.status();
            machine.monitor.before(now, &status);
            machine.monitor.receives(Reply {
                call,
                operation,
                outcome: &outcome,
                claim: status.claim,
                now,
                renew_deadline: machine.seat.pace.timings().renew_deadline(),
            });
        }
        self.input(index, LockInput::Reply { call, outcome }, bounds);
    }

    pub(super) fn input(&mut self, index: usize, input: LockInput, bounds: &Bounds) {
        let (ticks, mut drawn) = (self.ticks, self.drawn);
        let machine = self.machine(index);
        let now = machine.clock(ticks);
        let Some(mut contender) = machine.contender.take() else {
            return;
        };
        machine.monitor.before(now, &contender.status());
        if let LockInput::Hint(Hint::Granted(grant)) = &input {
            let renew_deadline = machine.seat.pace.timings().renew_deadline();
            machine
                .monitor
                .granted(contender.claim(), *grant, renew_deadline);
        }
        let mode = machine.seat.mode;
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            let claim = contender.claim();
            flawed::handle(&mut contender, now, input, &mut draw(&mut drawn));
            let machine = self.machine(index);
            let authority = contender.authority_at(now);
            let broken = machine.monitor.after(contender.claim(), authority);
            self.broken = self.broken.or(broken);
            while let Some(effect) = flawed::next_effect(&mut contender, mode) {
                match effect {
                    LockEffect::Call { id, operation } => {
                        let holds = authority.is_some();
                        drawn += 1;
                        self.send(index, id, operation, holds, drawn);
                    }
                    LockEffect::Watch(claim) => {
                        let stream = &mut self.machine(index).stream;
                        *stream = Stream {
                            claim,
                            open: bounds.streams && claim.is_some(),
                            ..Default::default()
                        };
                        if stream.open {
                            stream.events.push(Hint::Opened { since_join: false });
                        } else if claim.is_some() {
                            inputs.push(LockInput::Hint(Hint::Lost));
                        }
                    }
                    LockEffect::Acquired { token, .. } => {
                        if contender.status().provisional {
                            self.milestones.push(Milestone::HeldByGrant);
                        }
                        self.acquired(index, token);
                        self.place_acquired(index, contender.claim());
                        let done = lock_of(&self.store.committed);
                        let done = done.is_some_and(|lock| !lock.successes.is_empty());
                        if done && self.machines[index].seat.once {
                            self.broken = self.broken.or(Some("once per period"));
                        }
                    }
                    LockEffect::Lost(Loss::Deadline) => {
                        self.milestones.push(Milestone::DeadlinePassed);
                    }
                    LockEffect::Lost(Loss::Rejected) => {
                        self.milestones.push(Milestone::RenewalRejected);
                    }
                    // The model never rolls back an acknowledged write, so the contender is wrong.
                    LockEffect::Lost(Loss::StoreRolledBack) => {
                        self.broken = self.broken.or(Some("no false alarm"));
                    }
                    LockEffect::Notice(notice) => self.noticed(index, claim, &notice),
                    LockEffect::Exit(end) => {
                        self.ended(index, &end);
                        self.machine(index).contender = Some(contender);
                        let remember = self.starts_left > 0;
                        self.machine(index).exit(remember);
                        self.drawn = drawn;
                        return;
                    }
                }
            }
        }
        self.machine(index).contender = Some(contender);
        self.drawn = drawn;
    }

    fn send(
        &mut self,
        index: usize,
        id: CallId,
        operation: LockOperation,
        holds: bool,
        number: u64,
    ) {
        let (ticks, store) = (self.ticks, &self.store);
        let machine: &mut Machine = Arc::make_mut(&mut self.machines[index]);
        let now = machine.clock(ticks);
        let broken = machine.monitor.sends(Sending {
            call: id,
            operation: &operation,
            now,
            store,
            operation_timeout: machine.seat.pace.timings().operation_timeout(),
            holds,
            works: machine.works,
        });
        machine.calls.send(id, operation, now, number);
        self.broken = self.broken.or(broken);
    }

    fn acquired(&mut self, index: usize, token: Token) {
        // Provisional authority can begin and end within one long tick. Therefore, an acquisition
        // itself resets the count of idle ticks.
        self.disturb();
        let machine = self.machine(index);
        machine.works = true;
        // Shared holders and holders of slots may receive their replies in any order.
        let in_order = machine.seat.mode != LockMode::Exclusive || token > self.token_held;
        if !in_order {
            self.broken = self.broken.or(Some("I3"));
        }
        self.token_held = self.token_held.max(token);
    }

    /// Checks the end of a contender. A non-blocking contender must first evict the entries that it
    /// knows to be expired.
    fn ended(&mut self, index: usize, end: &End) {
        if let End::Skipped { .. } = end {
            self.milestones.push(Milestone::Skipped);
        }
        if let End::Released = end {
            let committed = lock_of(&self.store.committed);
            if !self.machines[index].monitor.may_have_released(committed) {
                self.broken = self.broken.or(Some("reported releases happened"));
            }
        }
        if let End::Busy { .. } = end {
            let machine = &self.machines[index];
            let timeout = machine.seat.pace.timings().operation_timeout();
            let now = machine.clock(self.ticks);
            if machine.monitor.knows_expired(&self.store, now, timeout) {
                self.broken = self.broken.or(Some("expired entries are evicted"));
            }
        }
    }

    fn noticed(&mut self, index: usize, claim: Claim, notice: &LockNotice) {
        match notice {
            LockNotice::Evicted { state, .. } => self.milestones.push(match state {
                EntryState::Held => Milestone::HolderSwept,
                EntryState::Kept => Milestone::KeptPlaceSwept,
                EntryState::Granted => Milestone::GranteeSwept,
                EntryState::Waiting => Milestone::WaiterSwept,
            }),
            LockNotice::PlaceLost => {
                self.milestones.push(Milestone::PlaceLost);
                if !self.machines[index].monitor.saw_removed(claim) {
                    self.broken = self.broken.or(Some("a place reported as lost is gone"));
                }
            }
            LockNotice::StoreRolledBack { .. } | LockNotice::Duplicate { .. } => {
                // The model never rolls back an acknowledged write and never forks a machine, so
                // the contender is wrong.
                self.broken = self.broken.or(Some("no false alarm"));
            }
            LockNotice::QueueFull
            | LockNotice::InvalidLeaseDuration { .. }
            | LockNotice::TokensExhausted => {
                self.broken = self.broken.or(Some("no false alarm"));
            }
        }
    }
}
