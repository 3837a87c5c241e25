use std::time::Duration;

use super::Exchange;
use crate::claim::{IN_FLIGHT_MAX, earliest};
use crate::election::{BootTime, CallId};
use crate::lock::{LockTurn, MinHold};

#[derive(Debug, Clone, Hash)]
pub(super) struct Waiting {
    pub(super) position: usize,
    granted: bool,
    pub(super) renew_due: BootTime,
    /// True if this contender heads the queue and the lock has free capacity, but the grant is
    /// missing.
    overlooked: bool,
    /// True if a confirmation found no free slot, so that another holder must leave or be evicted.
    lacks_slot: bool,
    hurry: bool,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WaitingPlace {
    pub(super) position: usize,
    pub(super) granted: bool,
    pub(super) lacks_slot: bool,
}

impl WaitingPlace {
    pub(super) const GRANTED: Self = Self {
        position: 0,
        granted: true,
        lacks_slot: false,
    };
}

impl Waiting {
    pub(super) fn at(place: WaitingPlace, overlooked: bool, renew_due: BootTime) -> Self {
        Self {
            position: place.position,
            granted: place.granted,
            renew_due,
            overlooked,
            lacks_slot: place.lacks_slot && place.granted,
            hurry: false,
        }
    }

    pub(super) fn move_to(&mut self, place: WaitingPlace, overlooked: bool) {
        self.position = place.position;
        self.granted = place.granted;
        self.overlooked = overlooked;
        self.confirmed(place.lacks_slot);
    }

    pub(super) fn at_the_head(&mut self, exchange: &mut Exchange, turn: &mut LockTurn<'_>) {
        self.position = 0;
        let at = turn.now + self.read_interval(exchange, turn);
        exchange.reads.read_at(at);
    }

    pub(super) fn confirmed(&mut self, lacks_slot: bool) {
        self.lacks_slot |= lacks_slot && self.granted;
    }

    pub(super) fn hurry(&mut self, exchange: &Exchange) {
        self.hurry = self.is_granted(exchange);
    }

    fn is_granted(&self, exchange: &Exchange) -> bool {
        self.granted || exchange.stream.granted_after.is_some()
    }

    pub(super) fn advance(
        &mut self,
        exchange: &mut Exchange,
        turn: &mut LockTurn<'_>,
    ) -> Option<BootTime> {
        self.write_if_due(exchange, turn);
        exchange.reads.send_if_due(&exchange.view, turn);
        let next_read = exchange.reads.next();
        if exchange.is_busy() {
            return next_read;
        }
        let write = if self.is_granted(exchange) || self.overlooked {
            Some(turn.now)
        } else {
            earliest([Some(self.renew_due), exchange.next_expiry(self.position)])
        };
        earliest([next_read, write.map(|at| at.max(exchange.retry_at))])
    }

    fn write_if_due(&mut self, exchange: &mut Exchange, turn: &mut LockTurn<'_>) {
        let renew_due = renewal_after(exchange, turn);
        let in_flight = exchange.writes.sent.in_flight();
        let granted = self.is_granted(exchange);
        let in_addition = self.hurry && granted && in_flight < IN_FLIGHT_MAX;
        let free = in_flight == 0 && !exchange.is_evicting();
        let blocked = exchange.reads.behind || exchange.retry_at > turn.now;
        if blocked || !(free || in_addition) {
            return;
        }
        if !granted && std::mem::take(&mut self.overlooked) {
            exchange.evict(Vec::new(), true, turn);
            return exchange.pause_writes(turn);
        }
        let evicts = self.lacks_slot && exchange.any_expired(turn.now);
        if evicts || (!granted && self.renew_due > turn.now) {
            exchange.evict_if_due(self.position, turn);
            return;
        }
        self.renew_due = renew_due;
        self.hurry = false;
        // The renewal may acquire the lock, so it declares the whole minimum hold.
        let min_hold = exchange.options.min_hold;
        let declares = granted && min_hold != MinHold::NONE;
        exchange.renew(declares.then_some(min_hold.get()), turn);
    }

    pub(super) fn shown_by(&self, call: CallId, exchange: &mut Exchange, turn: &mut LockTurn<'_>) {
        exchange.stream.shown(call, self.granted);
        if exchange.stream.may_postdate(call) {
            exchange.reads.due = Some(turn.now);
        } else {
            self.plan_read(exchange, turn);
        }
    }

    pub(super) fn plan_read(&self, exchange: &mut Exchange, turn: &mut LockTurn<'_>) {
        let at = turn.now + self.read_interval(exchange, turn);
        exchange.reads.due = Some(at);
    }

    fn read_interval(&self, exchange: &Exchange, turn: &mut LockTurn<'_>) -> Duration {
        let timings = &exchange.options.timings;
        if !exchange.stream.open {
            return turn.jittered(timings.retry_interval());
        }
        let places = u32::try_from(self.position)
            .unwrap_or(u32::MAX)
            .saturating_add(1);
        let pace = timings.operation_timeout().saturating_mul(places);
        turn.shortened(pace.min(timings.lease_duration() / 3))
    }
}

pub(super) fn renewal_after(exchange: &Exchange, turn: &mut LockTurn<'_>) -> BootTime {
    turn.now + turn.shortened(exchange.options.timings.lease_duration() / 3)
}
