//! A contending process: the shipped state machine with a modelled event loop and driver.

use std::collections::VecDeque;

use super::ledger::Ledger;
use crate::election::{BootTime, Claim};
use crate::lock::{LockContender, LockInput, Options};
use crate::proof::flawed::lock as flawed;
use crate::proof::sim::driver::Driver;
use crate::proof::sim::ids::Ids;

#[derive(Clone)]
pub(super) struct Process {
    pub(super) seat: usize,
    pub(super) contender: LockContender,
    pub(super) options: Options,
    pub(super) alive: bool,
    /// Work runs under the lock.
    pub(super) works: bool,
    /// Time of the acquisition, in true time.
    pub(super) acquired_at: Option<u64>,
    /// True time at which the process started.
    pub(super) started_at: u64,
    pub(super) frozen_until: u64,
    /// True time since which the process runs without a pause.
    pub(super) running_since: u64,
    /// Inputs that arrived while the process is frozen.
    pub(super) inbox: VecDeque<LockInput>,
    /// The calls in flight, with their operations.
    pub(super) driver: Driver<&'static str>,
    pub(super) stream: Stream,
    pub(super) ledger: Ledger,
}

#[derive(Clone, Default)]
pub(super) struct Stream {
    pub(super) claim: Option<Claim>,
    pub(super) open: bool,
    /// Number of the current opening. The process drops events of an earlier opening.
    pub(super) opening: u64,
    pub(super) last_at: u64,
    /// The claim of the process's acknowledged join. The claim's first stream reports every event
    /// since the join.
    pub(super) joined: Option<Claim>,
}

impl Process {
    pub(super) fn start(
        seat: usize,
        options: Options,
        now: u64,
        clock: BootTime,
        random: &mut Ids,
    ) -> Self {
        Self {
            seat,
            contender: flawed::contender(options.clone(), clock, random.at(clock)),
            alive: true,
            works: false,
            acquired_at: None,
            started_at: now,
            frozen_until: 0,
            running_since: now,
            inbox: VecDeque::new(),
            driver: Driver::new(),
            stream: Stream::default(),
            ledger: Ledger::remembering(&options.observations, options.token_remembered),
            options,
        }
    }
}
