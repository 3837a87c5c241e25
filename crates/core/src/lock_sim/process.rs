//! A contending process: the shipped state machine, with models of the runner and the driver around
//! it.

use std::collections::VecDeque;

use super::ledger::Ledger;
use crate::election::{BootTime, CallId, Claim};
use crate::lock::{Input, LockContender, Options};
use crate::sim::dice::Dice;

pub(super) struct Process {
    pub(super) seat: usize,
    pub(super) contender: LockContender,
    pub(super) options: Options,
    pub(super) random: Dice,
    pub(super) alive: bool,
    /// Work runs under the lock.
    pub(super) works: bool,
    /// Time of the acquisition, in true time.
    pub(super) acquired_at: Option<u64>,
    pub(super) frozen_until: u64,
    /// Start of the current run without a pause, in true time.
    pub(super) running_since: u64,
    /// Inputs that wait while the process is frozen.
    pub(super) inbox: VecDeque<Input>,
    pub(super) driver: Vec<Driven>,
    pub(super) stream: Stream,
    pub(super) ledger: Ledger,
}

/// A call that the driver has in flight.
pub(super) struct Driven {
    pub(super) call: CallId,
    pub(super) timed_out: bool,
}

#[derive(Default)]
pub(super) struct Stream {
    pub(super) claim: Option<Claim>,
    pub(super) open: bool,
    /// Number of the current opening. Events of an earlier opening are dropped.
    pub(super) opening: u64,
    pub(super) last_at: u64,
}

impl Process {
    pub(super) fn start(
        seat: usize,
        options: Options,
        now: u64,
        clock: BootTime,
        mut random: Dice,
    ) -> Self {
        Self {
            seat,
            contender: LockContender::new(options.clone(), clock, &mut random),
            random,
            alive: true,
            works: false,
            acquired_at: None,
            frozen_until: 0,
            running_since: now,
            inbox: VecDeque::new(),
            driver: Vec::new(),
            stream: Stream::default(),
            ledger: Ledger::remembering(&options.observations),
            options,
        }
    }

    /// Removes an answered call from the driver and returns its state.
    pub(super) fn returned(&mut self, call: CallId) -> Option<Driven> {
        let place = self.driver.iter().position(|d| d.call == call)?;
        Some(self.driver.remove(place))
    }

    /// Marks a call as timed out. Returns true if it had no answer.
    pub(super) fn timed_out(&mut self, call: CallId) -> bool {
        let driven = self.driver.iter_mut().find(|d| d.call == call);
        driven.is_some_and(|driven| !std::mem::replace(&mut driven.timed_out, true))
    }
}
